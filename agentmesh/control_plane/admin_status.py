"""What an admin looks at first: how many there are of what."""

from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from agentmesh.control_plane.admin_members import INSTANT, NUMBER, TEXT
from agentmesh.control_plane.metrics import NODE_STATES, TOKEN_STATES
from agentmesh.control_plane.operations import Door, Operation, Schema
from agentmesh.control_plane.records import Census, Status
from agentmesh.control_plane.store import Store
from agentmesh.control_plane.times import instant_text
from agentmesh.credentials import ROLE_NODE, ROLE_ROUTER

ENROLLMENT_STATES = (Status.PENDING, Status.APPROVED, Status.REJECTED)


def _counted(names: Sequence[str], of: Schema = NUMBER) -> dict[str, Any]:
    return {"type": "object", "properties": dict.fromkeys(names, of)}


STATUS = {
    "type": "object",
    "properties": {
        "version": TEXT,
        "nodes": _counted((ROLE_NODE, ROLE_ROUTER), _counted(NODE_STATES)),
        "enrollments": _counted([status.value for status in ENROLLMENT_STATES]),
        "bootstrap_tokens": _counted(TOKEN_STATES),
        "users": NUMBER,
        "banned": NUMBER,
        "routers": NUMBER,
        "connected_peers": NUMBER,
        "policy": _counted(("roles", "bindings")),
        "signing_keys": NUMBER,
        "retiring_key_expires_at": {**INSTANT, "nullable": True},
    },
}


class AdminStatus:
    """Args:
    wall_clock: gives the seconds since 1970.
    """

    def __init__(self, store: Store, wall_clock: Callable[[], float]) -> None:
        self._store, self._wall_clock = store, wall_clock

    def operations(self) -> Sequence[Operation]:
        return [
            Operation(
                method="GET",
                path="/admin/status",
                handle=self.status,
                summary="How many there are of what.",
                door=Door.ADMIN,
                gives=STATUS,
                refusals=(401, 403),
            )
        ]

    async def status(self, _: Request) -> Response:
        census, policy = await self._store.census(self._wall_clock()), await self._store.access.policy()
        counts = {"roles": len(policy.roles), "bindings": len(policy.bindings)}
        return JSONResponse({"version": version("agentmesh"), **_view(census), "policy": counts})


def _view(census: Census) -> dict[str, object]:
    return {
        "nodes": {
            role: {state: census.nodes.get((role, state), 0) for state in NODE_STATES}
            for role in (ROLE_NODE, ROLE_ROUTER)
        },
        "enrollments": {status.value: census.enrollments.get(status, 0) for status in ENROLLMENT_STATES},
        "bootstrap_tokens": {state: census.tokens.get(state, 0) for state in TOKEN_STATES},
        "users": census.users,
        "banned": census.banned,
        "routers": len(census.leases),
        "connected_peers": sum(lease.connected_peers for lease in census.leases),
        "signing_keys": census.signing_keys,
        "retiring_key_expires_at": None if census.retiring_until is None else instant_text(census.retiring_until),
    }
