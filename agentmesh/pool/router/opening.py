"""Streams opened on agents' connections: chosen, reserved, opened, and opened elsewhere when that failed."""

from collections.abc import Callable, Collection

import attrs
import trio

from agentmesh.errors import LocalProtocolError
from agentmesh.pool.router.attached import Attached, attached_to
from agentmesh.pool.router.claims import ConnectionKey
from agentmesh.pool.router.connection import Connection, Lease, State
from agentmesh.pool.router.leased import Opened, PooledStream
from agentmesh.pool.router.retrying import OPEN_BUDGET, RetryBudget, blames_connection
from agentmesh.pool.router.selection import NotChosen, pick
from agentmesh.pool.router.table import Pool, PoolTable
from agentmesh.protocols.pool import Code, ConnEpoch, Open, Opening, OpenResult, RouterSide, Stage, open_target

OFFLINE = OpenResult(Stage.SELECTION, Code.AGENT_OFFLINE, retryable=True)
RETURNED = OFFLINE  # by a connection that is leaving
GONE = OpenResult(Stage.RELAY, Code.AGENT_OFFLINE, retryable=True)  # the connection that another router meant


@attrs.define
class Attempts:
    """What one open has been through.

    Attributes:
        give_up_at: when its time is over.
        result: of the last try that failed.
        tried: the connections of this router that it has been to.
        elsewhere: those of others.
    """

    budget: RetryBudget
    give_up_at: float
    result: OpenResult | None = None
    tried: list[Connection] = attrs.Factory(list[Connection])
    elsewhere: set[ConnectionKey] = attrs.Factory(set[ConnectionKey])
    retries: int = 0

    @property
    def left(self) -> float:
        """Seconds."""
        return self.give_up_at - trio.current_time()

    def failed(self, result: OpenResult) -> bool:
        """Note how a try failed. Whether there may be another, which is counted."""
        self.result = result
        if result == RETURNED:  # which costs nobody anything
            return True
        if not self.budget.take(result, self.retries, self.left):
            return False
        self.retries += 1
        return True


class Opener:
    """Opens streams on the connections of one router.

    Args:
        table: the connections.
        accepts: whether a stream of another router may be opened on a connection.
    """

    def __init__(self, table: PoolTable, accepts: Callable[[ConnectionKey], bool]) -> None:
        self.table = table
        self._accepts = accepts
        self.retries = RetryBudget()

    def begin(self) -> Attempts:
        """An open is made for a client."""
        self.retries.note_open()
        return Attempts(self.retries, trio.current_time() + OPEN_BUDGET)

    async def open(self, agent: str, request: Open) -> Opened:
        """Open a stream to a target, on a connection of this router.

        Args:
            agent: the agent, in any case.
            request: the target; the agent's ID and the number of the open are filled in.
        Returns:
            The stream, the caller's to close; or why there is none. No connection that failed was given a byte.
        Raises:
            AmbiguousAgentError: several agents are called so.
        Cancellation: safe; no stream is left.
        """
        pool = self.table.lookup(agent)
        if pool is None:
            return OFFLINE
        attempts = self.begin()
        found = await self.open_here(pool, request, attempts)
        return (attempts.result or found.result) if isinstance(found, NotChosen) else found

    async def open_here(self, pool: Pool, request: Open, attempts: Attempts) -> Opened | NotChosen:
        """As `open`, with what the open has been through already; NotChosen when no connection is left to try."""
        while True:
            lease = self._pick(pool, request, attempts.tried)
            if isinstance(lease, NotChosen):
                return lease
            opened = await self._open_on(lease, request, attempts.left)
            if isinstance(opened, PooledStream):
                return opened
            attempts.tried.append(lease.connection)
            if not attempts.failed(opened):
                return opened

    def _pick(self, pool: Pool, request: Open, tried: Collection[Connection]) -> Lease | NotChosen:
        return pick(
            pool,
            protocol=request.protocol,
            limits=self.table.limits,
            now=trio.current_time(),
            trace_id=request.trace_id,
            tried=tried,
        )

    async def open_on(self, key: ConnectionKey, request: Open) -> Opened:
        """Open a stream on this very life of this connection, or not at all: for other routers.

        Returns:
            As `open`; a connection that is not there, or lives on under another epoch, is nobody.
        """
        pool = self.table.get(key.agent_id)
        connection = pool.by_id.get(key.connection_id) if pool else None
        if pool is None or connection is None or connection.epoch != key.epoch:
            return GONE
        if not self._accepts(key):
            return GONE
        others = [one for one in pool.connections if one is not connection]
        lease = self._pick(pool, request, others)
        return lease.result if isinstance(lease, NotChosen) else await self._open_on(lease, request, OPEN_BUDGET)

    async def _open_on(self, lease: Lease, request: Open, timeout: float) -> Opened:
        connection, link = lease.connection, attached_to(lease.connection)
        try:
            stream_id = link.control.tell(RouterSide.begin_open)
        except LocalProtocolError:  # it has begun to drain, and we were not told yet
            lease.end()
            return RETURNED
        lease.stream_id = stream_id
        asked = attrs.evolve(
            request,
            agent_id=connection.claim.agent_id,
            stream_id=stream_id,
            target_connection_id="",
            target_connection_epoch=ConnEpoch(0),
        )
        opening: Opening | None = None
        try:
            with trio.CancelScope() as scope:
                link.opening[stream_id] = scope
                opening = await open_target(link.session, asked, timeout)
        except BaseException:
            lease.end()
            link.end(stream_id)
            raise
        finally:
            link.opening.pop(stream_id, None)
        return self._settle(lease, link, opening)

    def _settle(self, lease: Lease, link: Attached, opening: Opening | None) -> Opened:
        connection, stream_id, now = lease.connection, lease.stream_id, trio.current_time()
        if opening is None:
            lease.end()
            link.end(stream_id)
            return RETURNED
        if opening.stream is None:
            lease.fail(now, blames_connection(opening.result))
            link.end(stream_id)
            return opening.result
        if connection.state is State.CLOSED:  # in this very moment
            opening.stream.reset()
            return RETURNED
        lease.accept(now)
        pooled = link.streams[stream_id] = PooledStream(opening.stream, lease, lambda: link.end(stream_id))
        return pooled
