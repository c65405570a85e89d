"""What an operator sees of agents and does to their connections, over HTTP, in JSON: `docs/agents-api.md`."""

from collections.abc import Callable
from http import HTTPStatus

import trio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from agentmesh.errors import MeshError
from agentmesh.pool.admin_client import PREFIX
from agentmesh.pool.router.audit import Action, AuditEvent
from agentmesh.pool.router.claims import ConnectionKey
from agentmesh.pool.router.invariants import violations
from agentmesh.pool.router.selection import healthy
from agentmesh.pool.router.trace import MAX_TRACES, TraceRing
from agentmesh.pool.router.views import (
    Moment,
    agent_summary,
    agent_view,
    connection_views,
    scaling_views,
    totals,
    trace_view,
)
from agentmesh.protocols.pool import MAX_EPOCH, Closing, ConnEpoch
from agentmesh.router.agents.lookup import Found, OfAgents, find_agent
from agentmesh.router.agents.problems import EXCEPTION_HANDLERS, RefusedError
from agentmesh.router.agents.stream import EventStream

DEFAULT_LIMIT = 100  # agents on a page
MAX_LIMIT = 1000
CLOSE_TIMEOUT = 10.0  # seconds that the router of a connection may take to say that it closes it
RETRY_AFTER_UNREACHABLE = 5  # seconds


class AgentsApi:
    """The pages about agents.

    Args:
        agents: of the router.
        wall_clock: seconds since 1970.
    """

    def __init__(self, agents: OfAgents, wall_clock: Callable[[], float]) -> None:
        self._agents, self._wall_clock = agents, wall_clock
        self._table = agents.service.table

    def app(self) -> Starlette:
        """The ASGI application."""
        agent, stream = PREFIX + "/{agent_id}", EventStream(self._agents.events, self._moment)
        routes = [
            Route(PREFIX, self.list_agents),
            Route(f"{PREFIX}/events", stream, methods=["GET"]),
            Route(agent, self.show),
            Route(f"{agent}/connections", self.connections),
            Route(agent + "/connections/{connection_id}", self.close, methods=["DELETE"]),
            Route(f"{agent}/metadata", self.metadata),
            Route(f"{agent}/traces", self.traces),
            Route(f"{agent}/scaling", self.scaling),
            Route("/debug/invariants", self.invariants),
        ]
        app = Starlette(routes=routes, exception_handlers=EXCEPTION_HANDLERS)
        app.router.redirect_slashes = False
        return app

    def _moment(self) -> Moment:
        return Moment(trio.current_time(), self._wall_clock())

    async def _find(self, request: Request) -> Found:
        return await find_agent(self._agents, request.path_params["agent_id"])

    # ── what there is ──

    async def list_agents(self, request: Request) -> Response:
        """A page of the agents of this router, and what all of them come to."""
        limit = _whole(request, "limit", DEFAULT_LIMIT, 1, MAX_LIMIT)
        cursor, moment = request.query_params.get("cursor", ""), self._moment()
        behind = sorted((pool for pool in self._table if pool.agent_id > cursor), key=lambda pool: pool.agent_id)
        page = behind[:limit]
        return JSONResponse(
            {
                "serverNodeId": self._table.node_id,
                "agents": [agent_summary(self._table, pool, moment) for pool in page],
                "nextCursor": page[-1].agent_id if len(behind) > limit else None,
                "summary": totals(self._table, moment),
            }
        )

    async def show(self, request: Request) -> Response:
        """One agent, with its processes and connections."""
        found = await self._find(request)
        view = agent_view(self._table, found.agent_id, self._moment(), found.leases)
        return JSONResponse({**view, "registry": found.registry})

    async def connections(self, request: Request) -> Response:
        """The connections of one agent, those of other routers as the registry lists them."""
        found = await self._find(request)
        views = connection_views(self._table, found.agent_id, self._moment(), found.leases)
        return JSONResponse({"agentId": found.agent_id, "registry": found.registry, "connections": views})

    async def metadata(self, request: Request) -> Response:
        """What an agent's processes tell of themselves."""
        found, now = await self._find(request), trio.current_time()
        well = healthy(found.pool, self._table.limits, now)
        elsewhere = [lease for lease in found.leases if lease.server_node_id != self._table.node_id]
        view = self._agents.service.metadata.view(found.agent_id, found.pool.connections, well, now, elsewhere)
        return JSONResponse({**view.to_json(), "registry": found.registry})

    async def traces(self, request: Request) -> Response:
        """Why connections were chosen for streams, the latest first."""
        limit = _whole(request, "limit", MAX_TRACES, 1, MAX_TRACES)
        found, wanted, moment = await self._find(request), request.query_params.get("traceId"), self._moment()
        ring = self._table.traces.get(found.agent_id) or TraceRing()
        traces = [one for one in reversed(ring.latest()) if wanted is None or one.trace_id == wanted]
        return JSONResponse(
            {
                "agentId": found.agent_id,
                "traces": [trace_view(trace, moment) for trace in traces[:limit]],
                "chosen": {scope.value: count for scope, count in ring.chosen.items()},
                "none": {scope.value: count for scope, count in ring.none.items()},
            }
        )

    async def scaling(self, request: Request) -> Response:
        """What an agent's processes last decided on the number of their connections."""
        found = await self._find(request)
        return JSONResponse({"agentId": found.agent_id, "instances": scaling_views(found.pool, self._moment())})

    async def invariants(self, _: Request) -> Response:
        """What has to hold and does not: nothing, or 503."""
        return invariants_answer(self._agents)

    # ── what is done ──

    async def close(self, request: Request) -> Response:
        """Close one life of one connection, here or at its router."""
        epoch = _epoch(request)
        found = await self._find(request)
        key = ConnectionKey(found.agent_id, request.path_params["connection_id"], epoch)
        closing = Closing.STALE if _is_over(found, key) else await self._close(key)
        if closing is Closing.STALE:
            current = _current_epoch(found, key.connection_id)
            text = "the connection lives on in another life; nothing was closed"
            raise RefusedError(
                HTTPStatus.CONFLICT,
                "stale_epoch",
                text,
                currentEpoch=current,
                currentEpochDecimal=None if current is None else str(current),
            )
        return JSONResponse(
            {
                "agentId": key.agent_id,
                "connectionId": key.connection_id,
                "connectionEpoch": epoch,
                "connectionEpochDecimal": str(epoch),
                "status": closing.value,
            }
        )

    async def _close(self, key: ConnectionKey) -> Closing:
        reason = "its router did not answer in time"
        with trio.move_on_after(CLOSE_TIMEOUT):
            try:
                return await self._agents.close(key)
            except MeshError as exc:
                reason = str(exc)
        self._note_failure(key)
        text = f"the connection may be there still, and was not closed: {reason}"
        raise RefusedError(
            HTTPStatus.SERVICE_UNAVAILABLE, "owner_unreachable", text, retry_after=RETRY_AFTER_UNREACHABLE
        )

    def _note_failure(self, key: ConnectionKey) -> None:
        event = AuditEvent(
            action=Action.CLOSE_FAILED,
            at=trio.current_time(),
            agent_id=key.agent_id,
            instance_id="",
            connection_id=key.connection_id,
            server_node_id=self._table.node_id,
            token_id="",
            epoch=key.epoch,
            reason="owner_unreachable",
        )
        self._table.audit.record(event)


def invariants_answer(agents: OfAgents) -> Response:
    """What has to hold of a router's agents, and does not: 200 and an empty list, or 503."""
    keeper = None if agents.lister is None else agents.lister.keeper
    found = violations(agents.service.table, trio.current_time(), keeper=keeper, book=agents.service.metadata)
    return JSONResponse(found, HTTPStatus.SERVICE_UNAVAILABLE if found else HTTPStatus.OK)


def _is_over(found: Found, key: ConnectionKey) -> bool:
    """Whether a later life of the connection is known to have begun: its router need not be asked."""
    return any(one.connection_id == key.connection_id and one.connection_epoch > key.epoch for one in found.leases)


def _current_epoch(found: Found, connection_id: str) -> int | None:
    """Of the life that the connection has now, where that is known."""
    here = found.pool.by_id.get(connection_id)
    if here is not None:
        return here.epoch
    return next((lease.connection_epoch for lease in found.leases if lease.connection_id == connection_id), None)


def _epoch(request: Request) -> ConnEpoch:
    given = request.query_params.get("connectionEpoch")
    if given is None:
        raise RefusedError(HTTPStatus.BAD_REQUEST, "epoch_missing", "say which life: ?connectionEpoch=")
    return ConnEpoch(_whole(request, "connectionEpoch", 0, 0, MAX_EPOCH))


def _whole(request: Request, name: str, absent: int, lowest: int, highest: int) -> int:
    """A whole number in the query. Raises RefusedError (400)."""
    text = request.query_params.get(name)
    if text is None:
        return absent
    digits = text.isascii() and text.isdecimal() and len(text) <= len(str(highest))
    if not digits or not lowest <= int(text) <= highest:
        raise RefusedError(HTTPStatus.BAD_REQUEST, "no_number", f"{name} is a whole number from {lowest} to {highest}")
    return int(text)
