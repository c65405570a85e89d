"""What an admin does about bootstrap tokens and enrollments, in JSON, behind the admin token."""

import hmac
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from agentmesh.control_plane.admin_members import INSTANT, NUMBER, TEXT, listed
from agentmesh.control_plane.approvals import Approvals
from agentmesh.control_plane.http import no_content, read_json, secret_json
from agentmesh.control_plane.operations import Door, Operation, Parameter
from agentmesh.control_plane.records import BootstrapToken, Enrollment, Status, TokenOwner
from agentmesh.control_plane.refusals import bad_request, forbidden, not_found, unauthorized
from agentmesh.control_plane.store import Store
from agentmesh.control_plane.times import instant_text
from agentmesh.control_plane.tokens import TOKEN_ID, create_token
from agentmesh.credentials import ROLES

TOKEN_FIELDS: dict[str, tuple[type, ...]] = {
    "role": (str,),
    "max_usages": (int,),
    "ttl": (int, float),
    "description": (str,),
    "owner": (str,),
    "autonomous_recovery": (bool,),
}
MAX_ENROLLMENT_ID = 2**31 - 1
STATUSES = {status.value: status for status in (Status.PENDING, Status.APPROVED, Status.REJECTED)}

TOKEN = {
    "type": "object",
    "properties": {
        "token": TEXT,  # when it is made, and never again
        "id": TEXT,
        "role": TEXT,
        "max_usages": NUMBER,
        "usages": NUMBER,
        "description": TEXT,
        "created_at": INSTANT,
        "expires_at": INSTANT,
        "revoked_at": {**INSTANT, "nullable": True},
        "owner": {**TEXT, "nullable": True},
        "autonomous_recovery": {"type": "boolean"},
    },
}
WANTED_TOKEN = {
    "type": "object",
    "required": ["role", "max_usages", "ttl"],
    "additionalProperties": False,
    "properties": {
        "role": {"type": "string", "enum": [*ROLES, *ROLES.values()]},
        "max_usages": {"type": "integer", "minimum": 1, "maximum": 1_000_000},
        "ttl": {"type": "number", "minimum": 0, "exclusiveMinimum": True, "description": "Seconds."},
        "description": TEXT,
        "owner": {**TEXT, "description": "A user, as <issuer>|<subject>."},
        "autonomous_recovery": {"type": "boolean"},
    },
}
ENROLLMENT = {
    "type": "object",
    "properties": {
        "id": NUMBER,
        "peer_id": TEXT,
        "token_id": TEXT,
        "role": TEXT,
        "labels": {"type": "object", "additionalProperties": TEXT},
        "status": {"type": "string", "enum": list(STATUSES)},
        "created_at": INSTANT,
        "resolved_at": {**INSTANT, "nullable": True},
    },
}
SPOKEN_OF = Parameter("id", "What a bootstrap token is spoken of as.")
ENROLLMENT_ID = Parameter("id", "Of the enrollment.", schema=NUMBER)
WHICH = Parameter("status", "Only those of one status.", schema={"type": "string", "enum": list(STATUSES)})


class AdminOnly:
    """Lets requests pass that carry `Authorization: Bearer <admin token>`; when there is no such token, none."""

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self._app, self._token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._token is None:
            raise forbidden("this control plane has no admin token")
        if not is_admin(Headers(scope=scope), self._token):
            raise unauthorized("an admin token is needed")
        await self._app(scope, receive, send)


def is_admin(headers: Headers, token: str | None) -> bool:
    """Whether the headers carry the admin token, if there is one."""
    scheme, _, presented = headers.get("authorization", "").partition(" ")
    right = hmac.compare_digest(presented.strip().encode(), (token or "").encode())
    return token is not None and scheme.lower() == "bearer" and right


class Admin:
    """Args:
    wall_clock: gives the seconds since 1970.
    """

    def __init__(self, store: Store, approvals: Approvals, wall_clock: Callable[[], float]) -> None:
        self._store, self._approvals, self._wall_clock = store, approvals, wall_clock

    def operations(self) -> Sequence[Operation]:
        resolve = [
            Operation(
                method="POST",
                path=f"/admin/enrollments/{{id:int}}/{verb}",
                handle=handle,
                summary=summary,
                door=Door.ADMIN,
                status=204,
                refusals=(401, 403, 404, 409, 410),
                path_parameters=(ENROLLMENT_ID,),
            )
            for verb, handle, summary in (
                ("approve", self.approve, "Admit the peer."),
                ("reject", self.reject, "Turn the peer away."),
            )
        ]
        return [
            Operation(
                method="POST",
                path="/admin/bootstrap-tokens",
                handle=self.create_token,
                summary="Make a bootstrap token. Its value is in the answer, and nowhere else ever.",
                door=Door.ADMIN,
                takes=WANTED_TOKEN,
                gives=TOKEN,
                status=201,
                refusals=(401, 403),
            ),
            Operation(
                method="GET",
                path="/admin/bootstrap-tokens",
                handle=self.list_tokens,
                summary="The newest bootstrap tokens.",
                door=Door.ADMIN,
                gives=listed("bootstrap_tokens", TOKEN),
                refusals=(401, 403),
            ),
            Operation(
                method="DELETE",
                path="/admin/bootstrap-tokens/{id}",
                handle=self.revoke_token,
                summary="Revoke a bootstrap token. It may be done again.",
                door=Door.ADMIN,
                status=204,
                refusals=(401, 403, 404),
                path_parameters=(SPOKEN_OF,),
            ),
            Operation(
                method="GET",
                path="/admin/enrollments",
                handle=self.list_enrollments,
                summary="The newest enrollments.",
                door=Door.ADMIN,
                gives=listed("enrollments", ENROLLMENT),
                refusals=(400, 401, 403),
                query=(WHICH,),
            ),
            *resolve,
        ]

    async def create_token(self, request: Request) -> Response:
        sent = await read_json(request, TOKEN_FIELDS)
        owner = sent.pop("owner", None)
        if owner is not None and await self._store.access.user(owner) is None:
            raise bad_request("there is no such user")
        recovers = sent.pop("autonomous_recovery", False)
        return await made(self._store, self._wall_clock, sent, TokenOwner(owner, recovers))

    async def list_tokens(self, _: Request) -> Response:
        tokens = await self._store.tokens()
        owners = await self._store.access.token_owners([token.id for token in tokens])
        return JSONResponse({"bootstrap_tokens": [token_view(token, owners.get(token.id)) for token in tokens]})

    async def revoke_token(self, request: Request) -> Response:
        token_id: str = request.path_params["id"]
        if not TOKEN_ID.fullmatch(token_id) or not await self._store.revoke_token(token_id, self._wall_clock()):
            raise not_found("there is no such bootstrap token")
        return no_content()

    async def list_enrollments(self, request: Request) -> Response:
        wanted = request.query_params.get("status")
        if wanted is not None and wanted not in STATUSES:
            raise bad_request(f"status is one of {', '.join(STATUSES)}")
        found = await self._store.enrollments(STATUSES[wanted] if wanted else None)
        return JSONResponse({"enrollments": [_enrollment_view(enrollment) for enrollment in found]})

    async def approve(self, request: Request) -> Response:
        await self._approvals.approve(_enrollment_id(request))
        return no_content()

    async def reject(self, request: Request) -> Response:
        await self._approvals.reject(_enrollment_id(request))
        return no_content()


async def made(store: Store, wall_clock: Callable[[], float], sent: dict[str, Any], owner: TokenOwner) -> Response:
    """Make the bootstrap token that a body asks for. Raises RefusedError (400)."""
    if missing := {"role", "max_usages", "ttl"} - sent.keys():
        raise bad_request(f"missing: {', '.join(sorted(missing))}")
    value, token = await create_token(store, wall_clock, owner=owner, **sent)
    return secret_json({"token": value, **token_view(token, owner)}, HTTPStatus.CREATED)


def token_view(token: BootstrapToken, owner: TokenOwner | None) -> dict[str, object]:
    """A bootstrap token, without its value."""
    owner = owner or TokenOwner()
    return {
        "id": token.id,
        "role": token.role,
        "max_usages": token.max_usages,
        "usages": token.usages,
        "description": token.description,
        "created_at": instant_text(token.created_at),
        "expires_at": instant_text(token.expires_at),
        "revoked_at": None if token.revoked_at is None else instant_text(token.revoked_at),
        "owner": owner.identity,
        "autonomous_recovery": owner.autonomous_recovery,
    }


def _enrollment_id(request: Request) -> int:
    wanted: int = request.path_params["id"]
    return min(wanted, MAX_ENROLLMENT_ID)  # there are no larger ones, and databases do not take any


def _enrollment_view(enrollment: Enrollment) -> dict[str, object]:
    return {
        "id": enrollment.id,
        "peer_id": str(enrollment.peer),
        "token_id": enrollment.token_id,
        "role": enrollment.role,
        "labels": dict(enrollment.labels),
        "status": enrollment.status.value,
        "created_at": instant_text(enrollment.created_at),
        "resolved_at": None if enrollment.resolved_at is None else instant_text(enrollment.resolved_at),
    }
