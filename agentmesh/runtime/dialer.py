"""Dials peers for a host: one dial a peer at a time, each address an attempt in a task of its own.

The attempts of a dial begin one after another (RFC 8305, "Happy Eyeballs"): the next when one has failed, or when they
have not come to anything for a moment. They are in the order of the transports: a peer that can be reached over TCP is
reached over that, before it is tried over what runs on top of it.
"""

from collections.abc import Awaitable, Callable, Sequence

import trio

from agentmesh.abc import ByteStream, Direction, Transport
from agentmesh.errors import DialError
from agentmesh.runtime.config import HostConfig
from agentmesh.runtime.dialing import Dial
from agentmesh.runtime.session import MuxSession
from agentmesh.runtime.tls import TlsContext
from agentmesh.runtime.upgrade import HANDSHAKE_ERRORS, Upgraded, upgrade_outbound
from agentmesh.types import Address, PeerId

MakeSession = Callable[[Upgraded, Direction, Address | None], MuxSession]
RunSession = Callable[[MuxSession], Awaitable[None]]


class Dialer:
    """The dials under way.

    Args:
        nursery: the host's; attempts run in it, and the one that wins lives on there as its session.
        transports: the first that can dial an address does; those of the first are tried first.
        security: the host's identity.
        config: the bounds and time limits.
        make_session: makes a session of a link.
        run_session: runs it, to its end.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        transports: Sequence[Transport],
        security: TlsContext,
        config: HostConfig,
        make_session: MakeSession,
        run_session: RunSession,
    ) -> None:
        self._nursery = nursery
        self._transports = transports
        self._security = security
        self._config = config
        self._make_session = make_session
        self._run_session = run_session
        self._dials: dict[PeerId, Dial] = {}

    def __len__(self) -> int:
        return len(self._dials)

    async def connect(self, peer: PeerId, addresses: Sequence[Address]) -> MuxSession:
        """A new session to `peer`, or the one that another caller's dial brings. As `Host.connect`."""
        dial = self._dials.get(peer)
        if dial is None or dial.is_over:
            dial = self._dials[peer] = self._begin(peer, addresses)
        return await self._wait(dial)

    async def connect_anew(self, peer: PeerId, addresses: Sequence[Address]) -> MuxSession:
        """A session of the caller's own. As `Host.connect_anew`."""
        return await self._wait_alone(self._begin(peer, addresses))

    async def connect_unknown(self, address: Address) -> MuxSession:
        """A session of the caller's own to whoever answers. As `Host.connect_unknown`."""
        return await self._wait_alone(self._begin(None, (address,)))

    async def _wait_alone(self, dial: Dial) -> MuxSession:
        try:
            return await self._wait(dial)
        except trio.Cancelled:
            dial.abandon()
            raise

    async def _wait(self, dial: Dial) -> MuxSession:
        with trio.move_on_after(self._config.dial_timeout):
            await dial.wait()
        self._forget(dial)
        return dial.outcome()

    def _begin(self, peer: PeerId | None, addresses: Sequence[Address]) -> Dial:
        usable = [address for address in dict.fromkeys(addresses) if peer is None or address.peer in (None, peer)]
        attempts = {
            address: transport
            for transport in self._transports
            for address in usable
            if self._dialer(address) is transport
        }
        if not attempts:
            whose = "" if peer is None else f" of {peer}"
            raise DialError(f"no address{whose} that can be dialled from here ({len(addresses)} given)")
        chosen = list(attempts)[: self._config.max_dial_addresses]
        dial = Dial(peer, chosen)
        self._nursery.start_soon(self._run, dial, {address: attempts[address] for address in chosen})
        return dial

    def _dialer(self, address: Address) -> Transport | None:
        return next((transport for transport in self._transports if transport.can_dial(address)), None)

    async def _run(self, dial: Dial, attempts: dict[Address, Transport]) -> None:
        """All attempts of one dial; the winning one lives on as its session."""
        try:
            async with trio.open_nursery() as nursery:
                for address, transport in attempts.items():
                    nursery.start_soon(self._attempt, dial, address, transport)
                    await dial.wait_turn(self._config.dial_stagger)
                    if dial.is_over:
                        break
        finally:
            dial.end()
            self._forget(dial)

    async def _attempt(self, dial: Dial, address: Address, transport: Transport) -> None:
        with dial.scope(address):
            try:
                async with transport.dial(address) as stream:
                    await self._establish(dial, address, stream)
            except HANDSHAKE_ERRORS as exc:
                dial.failed(address, exc)

    async def _establish(self, dial: Dial, address: Address, stream: ByteStream) -> None:
        try:
            with trio.fail_after(self._config.handshake_timeout):
                upgraded = await upgrade_outbound(stream, self._security, dial.peer, address.tls_name)
        except HANDSHAKE_ERRORS as exc:
            dial.failed(address, exc)
            return
        session = self._make_session(upgraded, Direction.OUTBOUND, address)
        if dial.won(session, address):
            self._forget(dial)
            await self._run_session(session)

    def _forget(self, dial: Dial) -> None:
        if dial.is_over and dial.peer is not None and self._dials.get(dial.peer) is dial:
            del self._dials[dial.peer]
