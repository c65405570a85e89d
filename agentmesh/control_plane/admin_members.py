"""What an admin does about members: who they are, bans, recovery."""

import logging
from collections.abc import Callable, Sequence
from functools import partial

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from agentmesh.control_plane.herald import Herald
from agentmesh.control_plane.http import answer, no_content, read_json, read_message
from agentmesh.control_plane.operations import Door, Operation, Parameter, Schema
from agentmesh.control_plane.proof import parse_peer
from agentmesh.control_plane.records import Lease, Node, Owner
from agentmesh.control_plane.refusals import bad_request, not_found
from agentmesh.control_plane.store import MAX_LISTED, Store, until_settled
from agentmesh.control_plane.times import instant_text
from agentmesh.types import PeerId
from agentmesh.wire.messages.mesh.v1 import TokenRevokeRequest, TokenRevokeResponse

logger = logging.getLogger(__name__)

TEXT = {"type": "string"}
INSTANT = {"type": "string", "format": "date-time"}
NUMBER = {"type": "integer"}
NODE = {
    "type": "object",
    "properties": {
        "peer_id": TEXT,
        "role": TEXT,
        "labels": {"type": "object", "additionalProperties": TEXT},
        "enrolled_by": {"type": "string", "enum": ["bootstrap", "oidc", "workload"]},
        "owner": {**TEXT, "nullable": True},
        "enrolled_at": INSTANT,
        "credential_expires_at": INSTANT,
        "autonomous_recovery": {"type": "boolean"},
        "banned": {"type": "boolean"},
    },
}
ROUTER = {
    "type": "object",
    "properties": {
        "peer_id": TEXT,
        "addresses": {"type": "array", "items": TEXT},
        "labels": {"type": "object", "additionalProperties": TEXT},
        "renewed_at": INSTANT,
        "expires_at": INSTANT,
        "connected_peers": NUMBER,
        "directory_size": NUMBER,
        "connections": NUMBER,
        "connection_limit": NUMBER,
    },
}
RECOVERY = {"type": "object", "required": ["enabled"], "properties": {"enabled": {"type": "boolean"}}}
PEER = Parameter("id", "A peer ID, in any spelling.")
AFTER = Parameter("after", "List the nodes whose peer IDs come behind this one.")


def listed(name: str, element: Schema) -> Schema:
    """The schema of an object with one list."""
    return {"type": "object", "properties": {name: {"type": "array", "items": element}}}


class AdminMembers:
    """Args:
    wall_clock: gives the seconds since 1970.
    """

    def __init__(self, store: Store, herald: Herald, wall_clock: Callable[[], float]) -> None:
        self._store, self._herald, self._wall_clock = store, herald, wall_clock

    def operations(self) -> Sequence[Operation]:
        return [
            Operation(
                method="GET",
                path="/admin/nodes",
                handle=self.nodes,
                summary=f"The nodes that were admitted, {MAX_LISTED} at a time.",
                door=Door.ADMIN,
                gives=listed("nodes", NODE),
                refusals=(400, 401, 403),
                query=(AFTER,),
            ),
            Operation(
                method="GET",
                path="/admin/routers",
                handle=self.routers,
                summary="The routers that are up, with their load.",
                door=Door.ADMIN,
                gives=listed("routers", ROUTER),
                refusals=(401, 403),
            ),
            Operation(
                method="POST",
                path="/admin/revoke",
                handle=self.ban,
                summary="Ban a peer, and whoever owns it.",
                door=Door.ADMIN,
                takes=TokenRevokeRequest,
                gives=TokenRevokeResponse,
                refusals=(401, 403),
            ),
            Operation(
                method="POST",
                path="/admin/nodes/{id}/unban",
                handle=self.unban,
                summary="Lift the ban of a peer, and of whoever owns it.",
                door=Door.ADMIN,
                status=204,
                refusals=(400, 401, 403),
                path_parameters=(PEER,),
            ),
            Operation(
                method="POST",
                path="/admin/nodes/{id}/autonomous-recovery",
                handle=self.recovery,
                summary="Say whether a node may come back by itself when its credential's key has retired.",
                door=Door.ADMIN,
                takes=RECOVERY,
                status=204,
                refusals=(401, 403, 404),
                path_parameters=(PEER,),
            ),
        ]

    async def nodes(self, request: Request) -> Response:
        after = request.query_params.get("after", "")
        found = await self._store.access.nodes(str(parse_peer(after)) if after else "", MAX_LISTED)
        banned = (await self._store.mirror.look()).banned
        return JSONResponse({"nodes": [node_view(node, owner, str(node.peer) in banned) for node, owner in found]})

    async def routers(self, _: Request) -> Response:
        leases = await self._store.live_leases(self._wall_clock())
        return JSONResponse({"routers": [_router_view(lease) for lease in leases]})

    async def ban(self, request: Request) -> Response:
        peer = parse_peer((await read_message(request, TokenRevokeRequest)).peer_id)
        for banned in await self._herald.ban(peer):
            logger.warning("banned", extra={"peer": banned, "with": peer})
        return answer(request, TokenRevokeResponse(success=True))

    async def unban(self, request: Request) -> Response:
        peer = _peer_in(request)
        await until_settled(partial(self._store.access.unban, peer))
        logger.warning("ban lifted", extra={"peer": peer})
        return no_content()

    async def recovery(self, request: Request) -> Response:
        peer, sent = _peer_in(request), await read_json(request, {"enabled": (bool,)})
        if "enabled" not in sent:
            raise bad_request("missing: enabled")
        if not await until_settled(partial(self._store.access.set_autonomous_recovery, peer, sent["enabled"])):
            raise not_found("there is no such node")
        logger.info("autonomous recovery", extra={"peer": peer, "enabled": sent["enabled"]})
        return no_content()


def _peer_in(request: Request) -> PeerId:
    return parse_peer(request.path_params["id"])


def node_view(node: Node, owner: Owner | None, banned: bool) -> dict[str, object]:
    """A node, as admins and its owner see it."""
    return {
        "peer_id": str(node.peer),
        "role": node.role,
        "labels": dict(node.labels),
        "enrolled_by": owner.enrolled_by.value if owner else "bootstrap",
        "owner": owner.identity if owner else None,
        "enrolled_at": instant_text(node.enrolled_at),
        "credential_expires_at": instant_text(node.issue.expires_at),
        "autonomous_recovery": owner is not None and owner.autonomous_recovery,
        "banned": banned,
    }


def _router_view(lease: Lease) -> dict[str, object]:
    return {
        "peer_id": str(lease.peer),
        "addresses": [str(address) for address in lease.addresses],
        "labels": dict(lease.labels),
        "renewed_at": instant_text(lease.renewed_at),
        "expires_at": instant_text(lease.expires_at),
        "connected_peers": lease.connected_peers,
        "directory_size": lease.directory_size,
        "connections": lease.connections,
        "connection_limit": lease.connection_limit,
    }
