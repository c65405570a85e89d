"""What those call whom an identity provider knows: to register a peer, and to invite others."""

import logging
from collections.abc import Callable, Sequence
from http import HTTPStatus

import attrs
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from agentmesh.control_plane.admin import TOKEN, TOKEN_FIELDS, WANTED_TOKEN, is_admin, made, token_view
from agentmesh.control_plane.admin_members import NODE, TEXT, node_view
from agentmesh.control_plane.config import Config
from agentmesh.control_plane.http import bearer, no_content, read_json, read_message
from agentmesh.control_plane.info import InfoPage
from agentmesh.control_plane.member_api import EnrollLimit, with_routers
from agentmesh.control_plane.operations import Door, Operation, Parameter
from agentmesh.control_plane.records import TokenOwner, User
from agentmesh.control_plane.refusals import bad_request, forbidden, not_found
from agentmesh.control_plane.registration import Registration
from agentmesh.control_plane.store import Store
from agentmesh.control_plane.tokens import TOKEN_ID, full_role
from agentmesh.credentials import ROLE_ROUTER
from agentmesh.wire.messages.mesh.v1 import EnrollRequest, EnrollResponse

logger = logging.getLogger(__name__)

MAX_USER_TTL = 168 * 3600.0  # seconds that a user's bootstrap token is good
MAX_USER_USAGES = 10

USER = {"type": "object", "properties": {"id": TEXT, "issuer": TEXT, "email": TEXT}}
STATUS = {
    "type": "object",
    "properties": {
        "user": USER,
        "nodes": {"type": "array", "items": NODE},
        "bootstrap_tokens": {"type": "array", "items": TOKEN},
    },
}
WHICH = Parameter("id", "Of the bootstrap token.", required=True)


@attrs.frozen
class Inviter:
    """Who makes bootstrap tokens. `user` is None for an admin."""

    user: User | None


class IdentityApi:
    """Args:
    wall_clock: gives the seconds since 1970.
    """

    def __init__(
        self,
        store: Store,
        registration: Registration,
        info: InfoPage,
        limit: EnrollLimit,
        config: Config,
        wall_clock: Callable[[], float],
    ) -> None:
        self._store, self._registration, self._info, self._limit = store, registration, info, limit
        self._admin_token, self._wall_clock = config.admin_token, wall_clock

    def operations(self) -> Sequence[Operation]:
        return [
            Operation(
                method="POST",
                path="/register",
                handle=self.register,
                summary="Become a member on an identity provider's word, or get a new credential as one.",
                takes=EnrollRequest,
                gives=EnrollResponse,
                refusals=(401, 403, 429),
            ),
            Operation(
                method="GET",
                path="/user/status",
                handle=self.status,
                summary="Who the caller is, with its nodes and bootstrap tokens.",
                door=Door.USER,
                gives=STATUS,
                refusals=(401, 403),
            ),
            Operation(
                method="POST",
                path="/user/bootstrap-tokens",
                handle=self.create_token,
                summary=f"Make a bootstrap token for up to {MAX_USER_USAGES} nodes of one's own.",
                door=Door.USER,
                takes=WANTED_TOKEN,
                gives=TOKEN,
                status=HTTPStatus.CREATED,
                refusals=(401, 403),
            ),
            Operation(
                method="POST",
                path="/user/revoke",
                handle=self.revoke_token,
                summary="Revoke a bootstrap token of one's own.",
                door=Door.USER,
                status=HTTPStatus.NO_CONTENT,
                refusals=(401, 403, 404),
                query=(WHICH,),
            ),
        ]

    async def register(self, request: Request) -> Response:
        self._limit.take()
        message = await read_message(request, EnrollRequest)
        return with_routers(request, await self._registration.register(message), self._info)

    async def status(self, request: Request) -> Response:
        user = await self._user(request)
        nodes = await self._store.access.nodes_of(user.id)
        tokens = await self._store.access.tokens_of(user.id)
        found = {
            "user": {"id": user.id, "issuer": user.issuer, "email": user.email},
            "nodes": [node_view(node, owner, banned=False) for node, owner in nodes],
            "bootstrap_tokens": [token_view(token, owner) for token, owner in tokens],
        }
        return JSONResponse(found)

    async def create_token(self, request: Request) -> Response:
        inviter = await self._inviter(request)
        sent = await read_json(request, TOKEN_FIELDS)
        owner, recovers = sent.pop("owner", None), sent.pop("autonomous_recovery", False)
        if inviter.user is None:
            if owner is not None and await self._store.access.user(owner) is None:
                raise bad_request("there is no such user")
        else:
            _check_ceilings(sent)
            if owner not in (None, inviter.user.id):
                raise forbidden("a token of somebody else is an admin's to make")
            if recovers:
                raise forbidden("autonomous recovery is an admin's to give")
            owner = inviter.user.id
        return await made(self._store, self._wall_clock, sent, TokenOwner(owner, recovers))

    async def revoke_token(self, request: Request) -> Response:
        user, token_id = await self._user(request), request.query_params.get("id", "")
        asked = [token_id] if TOKEN_ID.fullmatch(token_id) else []
        owner = (await self._store.access.token_owners(asked)).get(token_id)
        if owner is None or owner.identity != user.id:
            raise not_found("there is no such bootstrap token of yours")
        await self._store.revoke_token(token_id, self._wall_clock())
        return no_content()

    async def _inviter(self, request: Request) -> Inviter:
        return Inviter(None) if is_admin(request.headers, self._admin_token) else Inviter(await self._user(request))

    async def _user(self, request: Request) -> User:
        """Raises RefusedError: 401 no token that is good, 403 banned."""
        said = await self._registration.verify(bearer(request, "a token of the identity provider"))
        user = User(said.identity, said.issuer.url, said.email, self._wall_clock())
        if said.issuer.workload:
            raise forbidden("this is for people")
        if await self._store.access.is_banned(user.id):
            raise forbidden("you are banned")
        await self._store.access.put_user(user)
        return user


def _check_ceilings(sent: dict[str, object]) -> None:
    """Raises RefusedError: 400 more than a user may have, 403 a role that is an admin's to give."""
    role, usages, ttl = sent.get("role"), sent.get("max_usages"), sent.get("ttl")
    if isinstance(role, str) and full_role(role) == ROLE_ROUTER:
        raise forbidden("routers are an admin's to invite")
    if isinstance(usages, int) and usages > MAX_USER_USAGES:
        raise bad_request(f"max_usages is at most {MAX_USER_USAGES}")
    if isinstance(ttl, int | float) and ttl > MAX_USER_TTL:
        raise bad_request(f"ttl is at most {MAX_USER_TTL:.0f} seconds")
