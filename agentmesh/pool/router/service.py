"""The router's side: agents' connections are registered, watched and ended."""

import random
from collections import Counter
from collections.abc import Callable, MutableSequence

import trio

from agentmesh.abc import Admission, Stream
from agentmesh.pool.router.attached import Attached, Bearer, FindBearer, NoRegistry, Registrar, attached_to
from agentmesh.pool.router.audit import Action
from agentmesh.pool.router.claims import Claim, ConnectionKey, Reason, Refusal, claim_of
from agentmesh.pool.router.connection import Connection, State
from agentmesh.pool.router.metadata import MetadataBook, Taken
from agentmesh.pool.router.opening import Opener
from agentmesh.pool.router.table import PoolTable, Registration
from agentmesh.protocols.pool import (
    CAPABILITIES,
    Ack,
    Closing,
    Control,
    DrainReason,
    Hello,
    RouterSide,
    open_control,
    pool_protocol,
)
from agentmesh.protocols.pool.events import (
    Drained,
    DrainExpired,
    DrainReceived,
    Event,
    HelloReceived,
    MetadataReceived,
    PeerLeft,
    PeerSilent,
    RttMeasured,
    StatsReceived,
)
from agentmesh.runtime.registry import Protocol
from agentmesh.runtime.session import MuxSession
from agentmesh.types import PeerId

RELEASE_TIMEOUT = 2.0  # seconds
REPLACED_TIMEOUT = 30.0  # seconds that the streams of a connection have which lives on elsewhere
ADMIN_TIMEOUT = 10.0  # seconds that streams have when an operator closes their connection
EXPIRE_INTERVAL = 10.0  # seconds


class PoolService:
    """The connections of agents to one router.

    Args:
        table: what they are kept in.
        bearer: whose credential was shown on a session; None when none was.
        registrar: the registry of the cluster.

    Attributes:
        opener: opens streams on them.
        metadata: what agents tell of themselves.
        peers: how many connections each member has that is an agent's process.
    """

    def __init__(
        self,
        table: PoolTable,
        bearer: FindBearer,
        registrar: Registrar | None = None,
        capabilities: tuple[str, ...] = CAPABILITIES,
    ) -> None:
        self.table = table
        self.metadata = MetadataBook()
        self.peers: Counter[PeerId] = Counter()
        self._bearer = bearer
        self._registrar = registrar or NoRegistry()
        self._registrar.watch(self._lose)
        self.opener = Opener(table, self._registrar.accepts)
        self._capabilities = capabilities
        self._come_back_after: float | None = None
        self._ended = trio.lowlevel.ParkingLot()

    def protocol(self, admission: Admission = Admission.MEMBER) -> Protocol:
        """What serves agents' connections; list it where the host is built."""
        return pool_protocol(self.serve, admission)

    # ── connections ──

    async def serve(self, stream: Stream) -> None:
        """Serve one connection of an agent, to its end.

        Raises:
            RemoteProtocolError, BrokenResourceError, TooSlowError: of its control stream.
        """
        async with open_control(RouterSide(trio.current_time()), stream) as control:
            try:
                event = await control.next_event()
            except trio.EndOfChannel:
                return
            if not isinstance(event, HelloReceived):
                return
            outcome = await self._register(event.hello, stream, control)
            if isinstance(outcome, Refusal):
                _answer(control, _refusal_ack(event.hello, outcome))
                await control.finish()
                return
            await self._serve_registered(outcome, event.hello, control)

    async def _register(self, hello: Hello, stream: Stream, control: Control[RouterSide]) -> Registration | Refusal:
        now = trio.current_time()
        bearer = self._bearer(stream.session) or Bearer(None, "")
        claim = claim_of(hello, bound_to=bearer.agent_id, token_id=bearer.token_id, peer=str(stream.peer))
        if isinstance(claim, Refusal):
            strange = Claim(
                agent_id=hello.agent_id,
                instance_id=hello.instance_id,
                connection_id=hello.connection_id,
                epoch=hello.epoch,
                token_id=bearer.token_id,
            )
            return self.table.refuse(strange, claim.reason, now)
        if self._come_back_after is not None:
            return self.table.refuse(claim, Reason.SHUTTING_DOWN, now, self._come_back_after)
        place = self.table.begin(claim, now)
        if isinstance(place, Refusal):
            return place
        try:
            epoch = await self._registrar.register(claim)
        except BaseException:
            self.table.abandon(place)
            raise
        if isinstance(epoch, Refusal):
            self.table.abandon(place)
            return self.table.refuse(claim, epoch.reason, trio.current_time(), epoch.retry_after)
        session = stream.session
        assert isinstance(session, MuxSession)
        registration = self.table.complete(place, epoch, Attached(session, control), trio.current_time())
        if isinstance(registration, Refusal):  # the registry has forgotten what we remember
            await self._registrar.release(ConnectionKey(claim.agent_id, claim.connection_id, epoch))
        return registration

    async def _serve_registered(self, registration: Registration, hello: Hello, control: Control[RouterSide]) -> None:
        connection, link = registration.connection, attached_to(registration.connection)
        reason = "lost"
        self.peers[link.session.peer] += 1
        try:
            if registration.replaced is not None:
                attached_to(registration.replaced).drop("replaced")
            self._acknowledge(connection, hello, control)
            while True:
                event = await control.next_event()
                if isinstance(event, PeerLeft | PeerSilent):
                    reason = "left" if isinstance(event, PeerLeft) else "silent"
                    return
                if isinstance(event, Drained):
                    reason = "drained"
                    await control.finish()
                    return
                self._hear(connection, link, event, trio.current_time())
        finally:
            self._end(connection, link, reason)
            with trio.move_on_after(RELEASE_TIMEOUT) as scope:
                scope.shield = True
                await self._registrar.release(connection.key)

    def _acknowledge(self, connection: Connection, hello: Hello, control: Control[RouterSide]) -> None:
        now, claim = trio.current_time(), connection.claim
        taken = self.metadata.take(claim.agent_id, claim.instance_id, hello, now)
        _answer(control, self._ack(connection, hello, taken))

    def _ack(self, connection: Connection, hello: Hello, taken: Taken) -> Ack:
        return Ack(
            agent_id=connection.claim.agent_id,
            epoch=connection.epoch,
            revision=hello.revision,
            accepted=taken.accepted,
            idempotent=taken.idempotent,
            connection_pool_supported=True,
            max_connections_per_agent=self.table.limits.max_connections_per_agent,
            server_node_id=self.table.node_id,
            errors=taken.problems,
            capabilities=tuple(one for one in self._capabilities if one in connection.claim.capabilities),
        )

    def _hear(self, connection: Connection, link: Attached, event: Event, now: float) -> None:
        connection.heard(now)
        match event:
            case RttMeasured(_, smoothed):
                connection.heard(now, smoothed)
            case StatsReceived(stats):
                connection.take_stats(stats, now)
            case MetadataReceived(hello):
                self._acknowledge(connection, hello, link.control)
            case DrainReceived(drain, returned):
                self._give_no_more(connection, drain.reason)
                link.give_back(returned)
            case DrainExpired(stream_ids):
                link.reset(stream_ids)
            case _:
                pass

    def _end(self, connection: Connection, link: Attached, reason: str) -> None:
        claim = connection.claim
        reason = "drained" if reason == "lost" and connection.is_drained else reason  # its agent was the first to close
        self.table.close(connection, trio.current_time(), reason)
        link.drop(reason)
        self.peers -= Counter([link.session.peer])  # which keeps no zeros
        self._ended.unpark_all()
        pool = self.table.get(claim.agent_id)
        if pool is None or claim.instance_id not in pool.instances:
            self.metadata.forget(claim.agent_id, claim.instance_id)

    # ── the end ──

    async def run(self) -> None:
        """Forget what is to be forgotten, until cancelled."""
        while True:
            await trio.sleep(EXPIRE_INTERVAL)
            self.table.expire(trio.current_time())

    def drain(self, connection: Connection, reason: DrainReason, timeout: float, retry_after: float = 0.0) -> bool:
        """Let one connection go: no more streams, and those open have so many seconds. False when it goes already."""
        control = attached_to(connection).control
        now = trio.current_time()
        self._give_no_more(connection, reason)
        if control.machine.is_finished or control.machine.ours.has_begun:
            return False
        control.tell(lambda machine: machine.send_drain(reason, now, timeout, retry_after))
        return True

    def _give_no_more(self, connection: Connection, reason: DrainReason) -> None:
        if connection.state is State.OPEN:
            self.table.note(Action.DRAINING, connection, trio.current_time(), reason)
        connection.drain()

    def recheck(self, peer: PeerId) -> None:
        """A member has shown another credential: what it is for no longer ends."""
        for pool in self.table if peer in self.peers else ():
            for connection in pool.connections:
                link = attached_to(connection)
                bearer = self._bearer(link.session) if link.session.peer == peer else None
                if link.session.peer == peer and (bearer is None or bearer.agent_id != pool.agent_id):
                    link.drop("its credential is for another agent")

    def close_for_admin(self, key: ConnectionKey, timeout: float = ADMIN_TIMEOUT) -> Closing:
        """Let one life of one connection go, because an operator says so; its streams have so many seconds."""
        pool = self.table.get(key.agent_id)
        connection = pool.by_id.get(key.connection_id) if pool else None
        if connection is None:
            return Closing.GONE
        if connection.epoch != key.epoch:
            return Closing.STALE
        if self.drain(connection, DrainReason.ADMIN_CLOSE, timeout):
            self.table.note(Action.CLOSED_BY_ADMIN, connection, trio.current_time())
        return Closing.BEGUN

    def _lose(self, connection: Connection) -> None:
        """The connection lives on elsewhere: what is here is not to be used any more."""
        self.drain(connection, DrainReason.REPLACED, REPLACED_TIMEOUT)

    async def leave(
        self,
        over: float,
        timeout: float,
        retry_after: float = 0.0,
        shuffle: Callable[[MutableSequence[Connection]], None] = random.shuffle,
    ) -> None:
        """Let all connections go, one after another, and take no more; return when they have gone.

        Args:
            over: seconds in which they are told: not all agents look for another router at once.
            timeout: seconds that the streams of each have.
            retry_after: seconds until this router may be back.
        Cancellation: safe; those not told yet stay.
        """
        self._come_back_after = retry_after
        connections = [connection for pool in self.table for connection in pool.connections]
        shuffle(connections)
        for connection in connections:
            self.drain(connection, DrainReason.SERVER_SHUTDOWN, timeout, retry_after)
            await trio.sleep(over / len(connections))
        with trio.move_on_after(timeout):
            while len(self.table):
                await self._ended.park()


def _answer(control: Control[RouterSide], ack: Ack) -> None:
    """Answer a hello, or metadata; unless the agent has gone while that was considered."""
    if not control.machine.is_finished:
        control.tell(lambda machine: machine.send_ack(ack, trio.current_time()))


def _refusal_ack(hello: Hello, refusal: Refusal) -> Ack:
    return Ack(
        agent_id=hello.agent_id,
        registered=False,
        accepted=False,
        connection_pool_supported=True,
        retry_after_ms=round(refusal.retry_after * 1000),
        errors=(refusal.problem,),
    )
