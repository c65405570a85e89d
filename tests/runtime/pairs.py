"""Two sessions joined by a simulated network, with real TLS between them."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import cast

import attrs
import trio

from agentmesh.abc import Direction, Link
from agentmesh.errors import RemoteProtocolError
from agentmesh.identity import Identity
from agentmesh.runtime.config import SessionConfig
from agentmesh.runtime.multistream import Responder
from agentmesh.runtime.naming import wait_name
from agentmesh.runtime.nursery import open_background
from agentmesh.runtime.pulse import Pulse
from agentmesh.runtime.session import MuxSession
from agentmesh.runtime.stream import MuxStream
from agentmesh.runtime.tls import Side, TlsContext
from agentmesh.runtime.upgrade import Upgraded, upgrade_inbound, upgrade_outbound
from agentmesh.testing.links import Conditions
from agentmesh.testing.network import MemoryNetwork
from agentmesh.transports.pipes import BUFFER_BYTES
from agentmesh.types import Address, PeerId, ProtocolId
from tests.runtime.wires import duplex

ANY = ProtocolId("/test/any")
ALICE, BOB = Identity.generate(), Identity.generate()
ALICES, BOBS = TlsContext(ALICE), TlsContext(BOB)
PLACE = Address.parse("/memory/1")
MB = 1_000_000
SLOW = Conditions(latency=0.02, bandwidth=1 * MB)

Serve = Callable[[MuxStream], Awaitable[None]]


class Doorman:
    """Accepts every inbound stream, whatever protocol it names, and hands it over to the test."""

    def __init__(self) -> None:
        self._arrived, self._arrivals = trio.open_memory_channel[MuxStream](10_000)

    async def __call__(self, stream: MuxStream) -> None:
        try:
            await wait_name(stream, Responder(bool))
        except trio.BrokenResourceError:
            stream.reset()
        else:
            self._arrived.send_nowait(stream)

    async def next(self) -> MuxStream:
        return await self._arrivals.receive()


@attrs.frozen
class Sessions:
    """Alice's session to Bob, and Bob's to her."""

    alice: MuxSession
    bob: MuxSession
    network: MemoryNetwork
    doormen: tuple[Doorman, Doorman]  # Alice's and Bob's

    async def opened(self) -> tuple[MuxStream, MuxStream]:
        """A stream that Alice opened, as she and Bob see it."""
        ours = await self.alice.open_stream(ANY)
        await ours.send_all(b"")
        return ours, await self.doormen[1].next()

    @property
    def sizes(self) -> tuple[int, ...]:
        """How much every map of both sessions holds."""
        return tuple(
            count
            for session in (self.alice, self.bob)
            for count in (
                session.statistics().streams,
                session.mux.statistics().inbound_streams,
                session.mux.statistics().outbound_streams,
                session.mux.statistics().lingering_streams,
            )
        )


@asynccontextmanager
async def open_sessions(
    *,
    conditions: Conditions | None = None,
    alices: SessionConfig | None = None,
    bobs: SessionConfig | None = None,
    serve: Serve | None = None,
) -> AsyncGenerator[Sessions]:
    """Alice dials Bob; both sessions run for as long as the block lasts.

    Args:
        conditions: of the network between them.
        alices: her settings.
        bobs: his.
        serve: what Bob does with streams; by default his doorman keeps them.
    """
    network, pulse = MemoryNetwork(conditions=conditions), Pulse()
    doormen = Doorman(), Doorman()
    bob: list[MuxSession] = []
    ready = trio.Event()

    async def accept(stream: trio.abc.Stream, source: Address | None) -> None:
        upgraded = await upgrade_inbound(stream, BOBS)
        bob.append(MuxSession(upgraded, Direction.INBOUND, serve or doormen[1], bobs or SessionConfig(), source))
        ready.set()
        await bob[0].run(pulse)

    async with network.transport("bob").listen(PLACE) as listener, open_background() as nursery:
        nursery.start_soon(listener.serve, accept)
        nursery.start_soon(pulse.run)
        async with network.transport("alice").dial(PLACE) as stream, open_background() as inner:
            upgraded = await upgrade_outbound(stream, ALICES, BOB.peer)
            alice = MuxSession(upgraded, Direction.OUTBOUND, doormen[0], alices or SessionConfig(), PLACE)
            inner.start_soon(alice.run, pulse)
            await ready.wait()
            yield Sessions(alice, bob[0], network, doormen)


@asynccontextmanager
async def open_against_link(
    config: SessionConfig | None = None, *, early: bytes = b"", max_bytes: int = BUFFER_BYTES
) -> AsyncGenerator[tuple[MuxSession, Link]]:
    """Alice's session, and the bare link that Bob has instead of one.

    Args:
        config: her settings.
        early: what came with the end of the negotiation.
        max_bytes: that either direction of the connection holds.
    """
    dialer, listener = duplex(max_bytes)
    bobs: list[Link] = []

    async def accept() -> None:
        bobs.append((await upgrade_inbound(listener, BOBS)).link)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(accept)
        upgraded = await upgrade_outbound(dialer, ALICES, BOB.peer)
    async with open_background() as nursery:
        upgraded = Upgraded(upgraded.link, early)
        alice, pulse = MuxSession(upgraded, Direction.OUTBOUND, Doorman(), config or SessionConfig()), Pulse()
        nursery.start_soon(pulse.run)
        nursery.start_soon(alice.run, pulse)
        yield alice, bobs[0]


async def receive_exactly(stream: trio.abc.ReceiveStream, size: int) -> bytes:
    """The next `size` bytes of a stream that has as many."""
    received = bytearray()
    while len(received) < size:
        data = await stream.receive_some(size - len(received))
        assert data, f"the stream ended after {len(received)} of {size} bytes"
        received += data
    return bytes(received)


async def receive_everything(stream: trio.abc.ReceiveStream) -> bytes:
    """The bytes of a stream, to its end."""
    received = bytearray()
    while data := cast(bytes, await stream.receive_some()):
        received += data
    return bytes(received)


async def echo(stream: MuxStream) -> None:
    """Say everything back, and close."""
    await wait_name(stream, Responder(bool))
    while data := await stream.receive_some():
        await stream.send_all(data)
    await stream.aclose()


async def push(stream: MuxStream) -> None:
    """Send without end, until the session ends."""
    try:
        while True:
            await stream.send_all(bytes(64 * 1024))
    except trio.BrokenResourceError:
        return


async def upgrade_both(
    dialer: trio.abc.Stream,
    listener: trio.abc.Stream,
    contexts: tuple[TlsContext, TlsContext] = (ALICES, BOBS),
    expected: PeerId | None = BOB.peer,
    tls_name: str | None = None,
) -> tuple[Upgraded, Upgraded]:
    """Alice dials Bob."""
    upgraded: dict[Side, Upgraded] = {}

    async def listen() -> None:
        upgraded[Side.LISTENER] = await upgrade_inbound(listener, contexts[1])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(listen)
        upgraded[Side.DIALER] = await upgrade_outbound(dialer, contexts[0], expected, tls_name)
    return upgraded[Side.DIALER], upgraded[Side.LISTENER]


async def what_it_hears(upgraded: Upgraded | Exception) -> bytes | Exception:
    """The first thing that comes over a link: bytes, b"" for its end, or an error."""
    assert isinstance(upgraded, Upgraded)
    try:
        return bytes(await upgraded.link.receive_some())
    except RemoteProtocolError as exc:
        return exc
