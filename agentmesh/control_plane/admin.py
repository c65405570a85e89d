"""What an admin calls: bootstrap tokens and enrollments, in JSON, behind the admin token."""

import hmac
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from http import HTTPStatus

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from agentmesh.control_plane.approvals import Approvals
from agentmesh.control_plane.http import read_json, secret_json
from agentmesh.control_plane.records import BootstrapToken, Enrollment, Status
from agentmesh.control_plane.refusals import RefusedError, bad_request, forbidden, unauthorized
from agentmesh.control_plane.store import Store
from agentmesh.control_plane.tokens import create_token

TOKEN_FIELDS = {"role": (str,), "max_usages": (int,), "ttl": (int, float), "description": (str,)}
MAX_ENROLLMENT_ID = 2**31 - 1
STATUSES = {status.value: status for status in (Status.PENDING, Status.APPROVED, Status.REJECTED)}


class AdminOnly:
    """Lets requests pass that carry `Authorization: Bearer <admin token>`; when there is no such token, none."""

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self._app, self._token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._token is None:
            raise forbidden("this control plane has no admin token")
        scheme, _, presented = Headers(scope=scope).get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(presented.strip().encode(), self._token.encode()):
            raise unauthorized("an admin token is needed")
        await self._app(scope, receive, send)


class Admin:
    """The admin's part of the interface.

    Args:
        wall_clock: gives the seconds since 1970.
    """

    def __init__(self, store: Store, approvals: Approvals, wall_clock: Callable[[], float]) -> None:
        self._store, self._approvals, self._wall_clock = store, approvals, wall_clock

    def routes(self) -> Sequence[Route]:
        """Their paths are below /admin."""
        return [
            Route("/bootstrap-tokens", self.create_token, methods=["POST"]),
            Route("/bootstrap-tokens", self.list_tokens),
            Route("/bootstrap-tokens/{id}", self.revoke_token, methods=["DELETE"]),
            Route("/enrollments", self.list_enrollments),
            Route("/enrollments/{id:int}/approve", self.approve, methods=["POST"]),
            Route("/enrollments/{id:int}/reject", self.reject, methods=["POST"]),
        ]

    async def create_token(self, request: Request) -> Response:
        sent = await read_json(request, TOKEN_FIELDS)
        if missing := {"role", "max_usages", "ttl"} - sent.keys():
            raise bad_request(f"missing: {', '.join(sorted(missing))}")
        value, token = await create_token(self._store, self._wall_clock, **sent)
        return secret_json({"token": value, **_token_view(token)}, HTTPStatus.CREATED)

    async def list_tokens(self, _: Request) -> Response:
        return JSONResponse({"bootstrap_tokens": [_token_view(token) for token in await self._store.tokens()]})

    async def revoke_token(self, request: Request) -> Response:
        if not await self._store.revoke_token(request.path_params["id"], self._wall_clock()):
            raise RefusedError(HTTPStatus.NOT_FOUND, "there is no such bootstrap token")
        return Response(status_code=HTTPStatus.NO_CONTENT)

    async def list_enrollments(self, request: Request) -> Response:
        wanted = request.query_params.get("status")
        if wanted is not None and wanted not in STATUSES:
            raise bad_request(f"status is one of {', '.join(STATUSES)}")
        found = await self._store.enrollments(STATUSES[wanted] if wanted else None)
        return JSONResponse({"enrollments": [_enrollment_view(enrollment) for enrollment in found]})

    async def approve(self, request: Request) -> Response:
        await self._approvals.approve(_enrollment_id(request))
        return Response(status_code=HTTPStatus.NO_CONTENT)

    async def reject(self, request: Request) -> Response:
        await self._approvals.reject(_enrollment_id(request))
        return Response(status_code=HTTPStatus.NO_CONTENT)


def _enrollment_id(request: Request) -> int:
    wanted: int = request.path_params["id"]
    return min(wanted, MAX_ENROLLMENT_ID)  # there are no larger ones, and databases do not take any


def _token_view(token: BootstrapToken) -> dict[str, object]:
    return {
        "id": token.id,
        "role": token.role,
        "max_usages": token.max_usages,
        "usages": token.usages,
        "description": token.description,
        "created_at": _instant(token.created_at),
        "expires_at": _instant(token.expires_at),
        "revoked_at": None if token.revoked_at is None else _instant(token.revoked_at),
    }


def _enrollment_view(enrollment: Enrollment) -> dict[str, object]:
    return {
        "id": enrollment.id,
        "peer_id": str(enrollment.peer),
        "token_id": enrollment.token_id,
        "role": enrollment.role,
        "labels": dict(enrollment.labels),
        "status": enrollment.status.value,
        "created_at": _instant(enrollment.created_at),
        "resolved_at": None if enrollment.resolved_at is None else _instant(enrollment.resolved_at),
    }


def _instant(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
