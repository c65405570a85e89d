"""The events of agents' connections as server-sent events."""

import json
from collections.abc import Callable
from http import HTTPStatus

import attrs
import trio
from starlette.requests import Request

from agentmesh.pool.admin_client import HEARTBEAT_INTERVAL
from agentmesh.pool.router.audit import AuditEvent
from agentmesh.pool.router.views import Moment, View
from agentmesh.protocols.http import Receive, Scope, Send
from agentmesh.router.agents.events import AgentEvents, Happened, Listener, Missed
from agentmesh.router.agents.problems import RefusedError

RETRY_MILLISECONDS = 3000  # after which a listener that was cut off comes again
RETRY_AFTER_FULL = 10  # seconds
HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # or a proxy would keep them until it has many
]
OVERFLOW = "overflow"  # the event that says that others are missing


@attrs.frozen
class EventStream:
    """The ASGI application of one path.

    `Last-Event-ID` in the request, or `lastEventId` in its query, goes on behind that event. `agentId` in the query
    leaves out the events of other agents.

    Args:
        events: of the router.
        moment: says what time it is.
    """

    events: AgentEvents
    moment: Callable[[], Moment]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if self.events.is_full:
            text = "as many listen as may; close one, or ask later"
            raise RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, "too_many_listeners", text, retry_after=RETRY_AFTER_FULL)
        await send({"type": "http.response.start", "status": HTTPStatus.OK, "headers": HEADERS})
        if request.method == "HEAD":
            await send({"type": "http.response.body", "body": b""})
            return
        last_id = request.headers.get("last-event-id") or request.query_params.get("lastEventId", "")
        agent_id = request.query_params.get("agentId", "").lower()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_cancel_when_gone, receive, nursery.cancel_scope)
            with self.events.listen(last_id) as listener:
                await self._tell(listener, agent_id, send)

    async def _tell(self, listener: Listener, agent_id: str, send: Send) -> None:
        """Tell what happens, for ever."""
        text = f"retry: {RETRY_MILLISECONDS}\n\n"
        while True:
            await send({"type": "http.response.body", "body": text.encode(), "more_body": True})
            found: list[Happened | Missed] = []
            with trio.move_on_after(HEARTBEAT_INTERVAL):
                found = await listener.receive()
            text = "".join(self._written(one) for one in found if _is_about(one, agent_id))
            # Without data it is no event; its ID is kept all the same, that of one about another agent, perhaps.
            text = text or f": nothing new\nid: {listener.last_id}\n\n"

    def _written(self, one: Happened | Missed) -> str:
        if isinstance(one, Missed):
            return f"event: {OVERFLOW}\ndata: {json.dumps({'missed': one.count})}\n\n"
        data = json.dumps(event_view(one.event, self.moment()))
        return f"id: {one.id}\nevent: {one.event.action.value}\ndata: {data}\n\n"


def event_view(event: AuditEvent, moment: Moment) -> View:
    """An event as JSON."""
    return {
        "action": event.action.value,
        "at": moment.instant(event.at),
        "agentId": event.agent_id,
        "instanceId": event.instance_id,
        "connectionId": event.connection_id,
        "connectionEpoch": event.epoch,
        "connectionEpochDecimal": str(event.epoch),
        "serverNodeId": event.server_node_id,
        "tokenId": event.token_id,
        "reason": event.reason,
        "count": event.count,
    }


def _is_about(one: Happened | Missed, agent_id: str) -> bool:
    return isinstance(one, Missed) or not agent_id or one.event.agent_id.lower() == agent_id


async def _cancel_when_gone(receive: Receive, scope: trio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
