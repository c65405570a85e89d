"""A host: identity, transports, protocols and sessions, in a nursery of its own."""

import logging
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import trio

from agentmesh.abc import ByteStream, Direction, Transport
from agentmesh.errors import AddressError, DialError
from agentmesh.identity import Identity
from agentmesh.runtime.accept import StreamAcceptor
from agentmesh.runtime.admission import AdmissionBook
from agentmesh.runtime.config import HostConfig
from agentmesh.runtime.connections import ConnectionManager
from agentmesh.runtime.dialer import Dialer
from agentmesh.runtime.doors import Visitor
from agentmesh.runtime.figures import HANDSHAKE_FAILURES, failure_of
from agentmesh.runtime.nursery import open_background
from agentmesh.runtime.pulse import Pulse
from agentmesh.runtime.registry import Protocol, ProtocolRegistry
from agentmesh.runtime.session import MuxSession
from agentmesh.runtime.statistics import HostStatistics
from agentmesh.runtime.stream import MuxStream
from agentmesh.runtime.tls import TlsContext
from agentmesh.runtime.upgrade import HANDSHAKE_ERRORS, Upgraded, receive_inbound
from agentmesh.types import Address, PeerId, ProtocolId

logger = logging.getLogger(__name__)


@asynccontextmanager
async def open_host(
    *,
    identity: Identity,
    transports: Sequence[Transport],
    protocols: Sequence[Protocol] = (),
    listen: Sequence[Address] = (),
    config: HostConfig | None = None,
    admissions: AdmissionBook | None = None,
    security: Callable[[Identity], TlsContext] = TlsContext,
) -> AsyncGenerator["Host"]:
    """Open a host; leaving the block closes its sessions, listeners and tasks within `config.close_timeout` seconds,
    and a moment more for links whose peers do not read.

    Args:
        identity: who the host is.
        transports: the ways it dials and listens; the first that takes an address serves it.
        protocols: what it speaks.
        listen: where it listens, from the start of the block.
        config: the bounds and time limits.
        admissions: who is admitted; what fills it (auth) and what asks it (relay) can be given the same book.
        security: how its links are secured.
    Raises:
        AddressError: no transport listens on one of `listen`.
        OSError: an address is taken.
        ValueError: two protocols share an ID, or two doors a byte.
        ExceptionGroup: a protocol's background work failed.
    """
    book = AdmissionBook(time.time) if admissions is None else admissions  # an empty book is false
    host = Host(security(identity), identity, transports, protocols, config or HostConfig(), book)
    async with open_background() as nursery, AsyncExitStack() as listeners:
        host.start(nursery)
        for address in listen:
            await listeners.enter_async_context(host.listening(address))
        try:
            yield host
        finally:
            await host.stop()


class Host:
    """What `open_host` gives: the runtime of one peer in this process.

    Attributes:
        identity: who the host is.
        admissions: who is admitted; the auth protocol writes it, the gate reads it.
        connections: the sessions.
        registry: the protocols spoken.
        config: the bounds and time limits.
    """

    def __init__(
        self,
        security: TlsContext,
        identity: Identity,
        transports: Sequence[Transport],
        protocols: Sequence[Protocol],
        config: HostConfig,
        admissions: AdmissionBook,
    ) -> None:
        self.identity = identity
        self.config = config
        self.registry = ProtocolRegistry(protocols)
        self.admissions = admissions
        self.connections = ConnectionManager(config.connections)
        self._transports = tuple(transports)
        self._security = security
        self._acceptor = StreamAcceptor(self.registry, self.admissions, config.session.negotiation_timeout)
        self._listening: list[tuple[Address, ...]] = []
        self._handshakes_failed = dict.fromkeys(HANDSHAKE_FAILURES, 0)
        self._on_disconnect: list[Callable[[PeerId], None]] = []
        self._on_listening: list[Callable[[], None]] = []
        self._pulse = Pulse()
        self._dialer: Dialer

    @property
    def peer(self) -> PeerId:
        return self.identity.peer

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Where the host listens, each address ending in its own /p2p/<peer>."""
        return tuple(address for group in self._listening for address in group)

    def session(self, peer: PeerId) -> MuxSession | None:
        """The session to use for `peer`, if one is open."""
        return self.connections.get(peer)

    def statistics(self) -> HostStatistics:
        return HostStatistics(
            connections=self.connections.statistics(),
            streams=self._acceptor.statistics(),
            admitted=len(self.admissions),
            dialing=len(self._dialer),
            handshakes_failed=dict(self._handshakes_failed),
        )

    def on_disconnect(self, callback: Callable[[PeerId], None]) -> None:
        """Have `callback(peer)` called, synchronously, when the last session to a peer has ended. It must not raise."""
        self._on_disconnect.append(callback)

    def on_listening(self, callback: Callable[[], None]) -> None:
        """Have `callback()` called, synchronously, when `addresses` are others. It must not raise."""
        self._on_listening.append(callback)

    # ── dialling ──

    async def connect(self, peer: PeerId, addresses: Sequence[Address] = ()) -> MuxSession:
        """The session to `peer`: the standing one, or a new one by the first address that works.

        Args:
            peer: who must be at the other end.
            addresses: where to look, one soon after another; those that name another peer or no transport here speaks
                are left out.
        Raises:
            DialError: no address, or none worked, and its cause says why for each; or the peer is barred.
        Cancellation: safe. Callers of one peer share one dial; it goes on while any of them waits.
        """
        if peer == self.peer:
            raise DialError("a host does not dial itself")
        if self.admissions.is_barred(peer):
            raise DialError(f"{peer} is barred")
        if (session := self.session(peer)) is not None:
            await trio.lowlevel.checkpoint()
            return session
        return await self._dialer.connect(peer, addresses)

    async def connect_anew(self, peer: PeerId, addresses: Sequence[Address]) -> MuxSession:
        """One more session to `peer`, whatever stands already: for who has several, and closes them.

        Raises:
            DialError: as `connect`.
        Cancellation: safe; no session is left.
        """
        if peer == self.peer:
            raise DialError("a host does not dial itself")
        if self.admissions.is_barred(peer):
            raise DialError(f"{peer} is barred")
        return await self._dialer.connect_anew(peer, addresses)

    async def connect_unknown(self, address: Address) -> MuxSession:
        """One more session, to whoever is at an address: one of several behind a load balancer, say. `peer` of the
        session is who it is, proved by its handshake.

        Args:
            address: where to look; a peer in it must be the one that answers.
        Raises:
            DialError: nobody answered, or the host itself, or a peer that is barred.
        Cancellation: safe; no session is left.
        """
        if address.peer is not None:
            return await self.connect_anew(address.peer, (address,))
        session = await self._dialer.connect_unknown(address)
        if session.peer == self.peer or self.admissions.is_barred(session.peer):
            session.abort("not a peer to be connected to")
            what = "the host itself" if session.peer == self.peer else f"{session.peer}, who is barred"
            raise DialError(f"{address} leads to {what}")
        return session

    async def open_stream(self, peer: PeerId, protocol: ProtocolId) -> MuxStream:
        """Open a stream on the standing session to `peer`.

        Raises:
            DialError: there is no session: `connect` first.
            RejectedError, SessionClosedError: as `Session.open_stream`.
        """
        session = self.session(peer)
        if session is None:
            raise DialError(f"no session to {peer}")
        return await session.open_stream(protocol)

    # ── listening ──

    @asynccontextmanager
    async def listening(self, address: Address) -> AsyncGenerator[tuple[Address, ...]]:
        """Listen on one more address for as long as the block lasts; the sessions accepted there end with it.

        Yields:
            Where it can be dialled, each ending in /p2p/<peer>.
        Raises:
            AddressError: no transport here listens on it.
            OSError: it is taken.
        """
        transport = next((one for one in self._transports if one.can_listen(address)), None)
        if transport is None:
            raise AddressError(f"no transport here listens on {address}")
        async with transport.listen(address) as listener, open_background() as nursery:
            nursery.start_soon(listener.serve, self._accept)
            bound = tuple(address.with_peer(self.peer) for address in listener.addresses)
            self._listening.append(bound)
            self._tell_listening()
            try:
                yield bound
            finally:
                self._listening.remove(bound)
                self._tell_listening()

    def _tell_listening(self) -> None:
        for callback in self._on_listening:
            callback()

    async def _accept(self, stream: ByteStream, source: Address | None) -> None:
        """One inbound connection, from its first byte to the end of its session, or of what its door leads to."""
        if not self.connections.begin_handshake(source, trio.current_time()):
            return
        try:
            found = await self._upgrade_inbound(stream, source)
            if isinstance(found, Upgraded) and self.admissions.is_barred(found.peer):
                logger.info("session refused", extra={"peer": found.peer, "source": source, "reason": "barred"})
            elif isinstance(found, Upgraded):
                await self._run_session(self._make_session(found, Direction.INBOUND, source))
        finally:
            self.connections.release_source(source)
        if isinstance(found, Visitor):
            await found.door.serve(stream, found.preamble)

    async def _upgrade_inbound(self, stream: ByteStream, source: Address | None) -> Upgraded | Visitor | None:
        try:
            with trio.fail_after(self.config.handshake_timeout):
                return await receive_inbound(stream, self._security, self.registry.doors)
        except HANDSHAKE_ERRORS as exc:
            self._handshakes_failed[failure_of(exc)] += 1
            left = isinstance(exc, trio.BrokenResourceError)  # as every dialer does whose other address was faster
            level = logging.DEBUG if left else logging.INFO
            logger.log(level, "handshake failed", extra={"source": source, "reason": repr(exc)})
            return None
        finally:
            self.connections.end_handshake(source)

    # ── sessions ──

    def _make_session(self, upgraded: Upgraded, direction: Direction, address: Address | None) -> MuxSession:
        return MuxSession(upgraded, direction, self._acceptor, self.config.session, address, self.connections.memory)

    async def _run_session(self, session: MuxSession) -> None:
        if self.admissions.is_barred(session.peer):  # since it was dialled
            session.abort("the peer is barred")
        self.connections.add(session)
        try:
            await session.run(self._pulse)
        finally:
            if self.connections.remove(session):
                self.admissions.revoke(session.peer)
                for callback in self._on_disconnect:
                    callback(session.peer)

    # ── the block ──

    def start(self, nursery: trio.Nursery) -> None:
        """For `open_host`: begin the background work."""
        self._dialer = Dialer(
            nursery, self._transports, self._security, self.config, self._make_session, self._run_session
        )
        nursery.start_soon(self.admissions.run)
        nursery.start_soon(self._pulse.run)
        for protocol in self.registry:
            if protocol.run is not None:
                nursery.start_soon(protocol.run, self)

    async def stop(self) -> None:
        """For `open_host`: close every session gracefully within `close_timeout`; what is left then is cut."""
        with trio.move_on_after(self.config.close_timeout) as scope:
            scope.shield = True
            async with trio.open_nursery() as nursery:
                for session in list(self.connections):
                    nursery.start_soon(session.aclose)
