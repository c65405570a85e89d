"""Connections of this machine and what becomes of each: a tunnel is opened for it, and carries it to its end."""

import enum
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import attrs
import trio

from agentmesh.errors import DialError
from agentmesh.forward.carrying import carry
from agentmesh.forward.front import Event, Front, TargetRequested
from agentmesh.node import TunnelError, TunnelTarget
from agentmesh.pool.agent.targets import cut
from agentmesh.protocols.pool import Code, OpenResult, Stage

logger = logging.getLogger(__name__)

REQUEST_TIMEOUT = 10.0  # seconds that a client of a proxy has to say where it wants to
LINGER_TIMEOUT = 2.0  # seconds that a client has to take a refusal and to hang up
STOP_TIMEOUT = 5.0  # seconds that connections have to end when the program stops
TOO_MANY_TOLD = 1000  # the first connection too many is in the log, and every so many'th
READ_BYTES = 16 * 1024

NOT_CONNECTED = OpenResult(Stage.SELECTION, Code.AGENT_OFFLINE, retryable=True)


class Outcome(enum.Enum):
    """What became of a connection."""

    WHOLE = "whole"  # both ways were carried to their ends
    CUT = "cut"  # either side broke, or the program stopped
    NO_TUNNEL = "no_tunnel"
    NO_REQUEST = "no_request"  # a client of a proxy asked for nothing that is served
    TOO_MANY = "too_many"  # it was closed at once


OpenTunnel = Callable[[TunnelTarget], Awaitable[trio.abc.HalfCloseableStream]]
MakeFront = Callable[[], Front]
Way = Callable[[trio.abc.HalfCloseableStream], Awaitable[Outcome]]
Port = tuple[trio.abc.Listener[trio.abc.HalfCloseableStream], Way]


@attrs.frozen
class ForwardStatistics:
    """A snapshot.

    Attributes:
        open: connections now.
        ended: all others since the start, by outcome (each of Outcome, from 0).
        bytes_forth: carried to targets, by those that have ended.
    """

    open: int
    ended: dict[Outcome, int]
    bytes_forth: int
    bytes_back: int


class Forwarder:
    """Carries connections through tunnels.

    Args:
        open_tunnel: a stream to a target; raises DialError when there is none.
        max_connections: how many it carries at once.
    """

    def __init__(self, open_tunnel: OpenTunnel, max_connections: int = 1024) -> None:
        self._open_tunnel = open_tunnel
        self._max_connections = max_connections
        self._open = 0
        self._ended = Counter[Outcome]()
        self._forth = self._back = 0
        self._accepting = trio.CancelScope()

    def statistics(self) -> ForwardStatistics:
        ended = {outcome: self._ended[outcome] for outcome in Outcome}
        return ForwardStatistics(self._open, ended, self._forth, self._back)

    def lead_to(self, target: TunnelTarget) -> Way:
        """The way of connections that all lead to one target."""
        return partial(self._serve_plain, target)

    def ask(self, make_front: MakeFront) -> Way:
        """The way of connections whose clients say where they lead."""
        return partial(self._serve_client, make_front)

    async def run(self, ports: Sequence[Port]) -> None:
        """Accept until `stop` is called; return when the last connection has ended, or STOP_TIMEOUT seconds later.

        Args:
            ports: listeners, each with the way of its connections.
        """
        async with trio.open_nursery() as connections:
            with self._accepting:
                async with trio.open_nursery() as accepting:
                    for listener, way in ports:
                        accept = partial(trio.serve_listeners, handler_nursery=connections)
                        accepting.start_soon(accept, partial(self.serve, way), [listener])
            connections.cancel_scope.deadline = trio.current_time() + STOP_TIMEOUT

    def stop(self) -> None:
        """Accept no more."""
        self._accepting.cancel()

    async def serve(self, way: Way, connection: trio.abc.HalfCloseableStream) -> None:
        """Serve one connection, to its end; it is closed then.

        Cancellation: it is cut.
        """
        if self._open >= self._max_connections:
            if self._ended[Outcome.TOO_MANY] % TOO_MANY_TOLD == 0:
                logger.warning("too many connections", extra={"limit": self._max_connections})
            self._ended[Outcome.TOO_MANY] += 1
            await cut(connection)
            return
        self._open += 1
        outcome = Outcome.CUT
        try:
            outcome = await way(connection)
        except trio.BrokenResourceError as exc:
            logger.debug("connection broke", extra={"reason": exc})
        finally:
            self._open -= 1
            self._ended[outcome] += 1
            await cut(connection)  # does nothing to one that was closed in order

    async def _serve_plain(self, target: TunnelTarget, connection: trio.abc.HalfCloseableStream) -> Outcome:
        tunnel = await self._tunnel(target)
        return Outcome.NO_TUNNEL if isinstance(tunnel, OpenResult) else await self._carry(connection, tunnel)

    async def _serve_client(self, make_front: MakeFront, connection: trio.abc.HalfCloseableStream) -> Outcome:
        front, event = make_front(), None
        with trio.move_on_after(REQUEST_TIMEOUT):
            event = await _next_event(front, connection)
        if not isinstance(event, TargetRequested):
            reason = "no request in time" if event is None else event.reason
            logger.info("client refused", extra={"reason": reason})
            await _part(connection)
            return Outcome.NO_REQUEST
        tunnel = await self._tunnel(event.target)
        if isinstance(tunnel, OpenResult):
            front.send_refused(tunnel)
            await connection.send_all(front.data_to_send())
            await _part(connection)
            return Outcome.NO_TUNNEL
        try:
            front.send_accepted()
            await connection.send_all(front.data_to_send())
        except BaseException:
            await cut(tunnel)
            raise
        return await self._carry(connection, tunnel, front.received)

    async def _tunnel(self, target: TunnelTarget) -> trio.abc.HalfCloseableStream | OpenResult:
        try:
            return await self._open_tunnel(target)
        except DialError as exc:
            result, trace = (exc.result, exc.trace_id) if isinstance(exc, TunnelError) else (NOT_CONNECTED, "")
            logger.warning("no tunnel", extra={"target": str(target), "reason": str(exc), "trace": trace})
            return result

    async def _carry(
        self, connection: trio.abc.HalfCloseableStream, tunnel: trio.abc.HalfCloseableStream, received: bytes = b""
    ) -> Outcome:
        copied = await carry(connection, tunnel, received)
        self._forth += copied.forth
        self._back += copied.back
        return Outcome.WHOLE if copied.is_whole else Outcome.CUT


async def _next_event(front: Front, connection: trio.abc.HalfCloseableStream) -> Event:
    while (event := front.next_event()) is None:
        front.receive_data(bytes(await connection.receive_some(READ_BYTES)))
        if out := front.data_to_send():
            await connection.send_all(out)
    return event


async def _part(connection: trio.abc.HalfCloseableStream) -> None:
    """Close it when the client has had time to take what was sent last."""
    with trio.move_on_after(LINGER_TIMEOUT):
        await connection.send_eof()
        while await connection.receive_some(READ_BYTES):
            pass
    await connection.aclose()
