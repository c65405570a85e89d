"""A host, an honest peer of it, and a dialer that proves who it is and then does as it likes."""

import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress

import attrs
import trio
from trio.testing import wait_all_tasks_blocked

from agentmesh.abc import ByteStream, Link
from agentmesh.errors import RemoteProtocolError
from agentmesh.identity import Identity
from agentmesh.runtime.config import ConnectionLimits, HostConfig, SessionConfig
from agentmesh.runtime.host import Host
from agentmesh.runtime.multistream import GREETING, encode_message
from agentmesh.runtime.nursery import open_background
from agentmesh.runtime.registry import Protocol
from agentmesh.runtime.session import MuxSession
from agentmesh.runtime.tls import TlsContext
from agentmesh.runtime.upgrade import upgrade_outbound
from agentmesh.runtime.yamux import MuxLimits
from agentmesh.runtime.yamux.cutter import FrameCutter
from agentmesh.runtime.yamux.frames import ACK, SYN, FrameType, Header, encode_header
from agentmesh.testing.network import MemoryNetwork
from tests.runtime.hosts import ECHO, echo, far, open_named, serve_echo

NAME_ECHO = GREETING + encode_message(ECHO)
LINK_BYTES = 64 * 1024  # written at once by an attacker


def opening(stream_id: int, data: bytes = b"", flags: int = 0) -> bytes:
    """The frame that opens a stream, with its first bytes."""
    return encode_header(FrameType.DATA, SYN | flags, stream_id, len(data)) + data


@attrs.frozen
class Siege:
    """Bob, who is attacked; Alice, who is honest; and the network between them all."""

    bob: Host
    alice: Host
    network: MemoryNetwork

    async def echo_time(self) -> float:
        """Seconds on the virtual clock that Alice waits for an answer of Bob's."""
        start = trio.current_time()
        assert await echo(self.alice, self.bob.peer, b"honest") == b"honest"
        return trio.current_time() - start

    @asynccontextmanager
    async def connection(self) -> AsyncGenerator[ByteStream]:
        """A connection of Mallory's, on which nothing has been said yet."""
        (address,) = self.bob.addresses
        async with self.network.transport("mallory").dial(address.without_peer()) as stream:
            yield stream

    @asynccontextmanager
    async def intruder(self) -> AsyncGenerator["Intruder"]:
        """Mallory with a secure link to Bob, and Bob's session of it."""
        identity = Identity.generate()
        async with self.connection() as stream, open_background() as nursery:
            link = (await upgrade_outbound(stream, TlsContext(identity), self.bob.peer)).link
            await link.send_all(encode_header(FrameType.PING, SYN, 0, 0))
            first = bytes(await link.receive_some())
            session = self.bob.session(identity.peer)
            assert session is not None
            intruder = Intruder(link, session, first)
            nursery.start_soon(intruder.hear)
            yield intruder

    async def undisturbed_by(self, attack: Callable[[], Awaitable[None]]) -> None:
        """Run an attack, and see that Alice waits no longer for her answers while it goes on, nor after it."""
        quiet = await self.echo_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(attack)
            assert math.isclose(await self.echo_time(), quiet)
        assert math.isclose(await self.echo_time(), quiet)
        assert self.bob.session(self.alice.peer) is not None

    @property
    def abused(self) -> dict[str, int]:
        """The sessions of Bob's that ended for what their peers did; kinds that were not seen left out."""
        return {kind: count for kind, count in self.bob.statistics().connections.abused.items() if count}

    @property
    def failed(self) -> dict[str, int]:
        """The handshakes of Bob's that failed, likewise."""
        return {kind: count for kind, count in self.bob.statistics().handshakes_failed.items() if count}


@attrs.define
class Intruder:
    """A link driven by hand."""

    link: Link
    session: MuxSession
    first: bytes
    heard: bytearray = attrs.Factory(bytearray)
    over: trio.Event = attrs.Factory(trio.Event)
    writing: trio.Lock = attrs.Factory(trio.Lock)

    async def hear(self) -> None:
        """Read whatever comes, to the end, and answer pings: a peer that is silent is lost."""
        headers: list[Header] = []
        cutter, data = FrameCutter(headers.append, lambda _: None), self.first
        with suppress(trio.BrokenResourceError, RemoteProtocolError):
            while data:
                self.heard += data
                cutter.receive_data(data)
                for frame_type, flags, _, value in headers:
                    if (frame_type, flags) == (FrameType.PING, SYN):
                        await self.send(encode_header(FrameType.PING, ACK, 0, value))
                headers.clear()
                data = bytes(await self.link.receive_some())
        self.over.set()

    async def send(self, data: bytes) -> None:
        """Send, for as long as anybody listens."""
        with suppress(trio.BrokenResourceError):
            for start in range(0, len(data), LINK_BYTES):
                async with self.writing:
                    await self.link.send_all(data[start : start + LINK_BYTES])

    async def attack(self, data: bytes) -> None:
        """Send, and wait for the end of the link that it costs."""
        await self.send(data)
        await self.over.wait()
        await self.session.ended.wait()

    @property
    def held(self) -> tuple[int, int, int]:
        """What Bob holds for this session: streams, bytes received and not taken, bytes to be sent."""
        channels = [stream.channel for stream in self.session.streams]
        return (
            self.session.mux.statistics().inbound_streams,
            sum(channel.readable for channel in channels if channel),
            sum(channel.queued for channel in channels if channel),
        )


@asynccontextmanager
async def open_siege(
    limits: MuxLimits | None = None,
    *,
    protocols: Sequence[Protocol] = (Protocol(ECHO, serve_echo),),
    connections: ConnectionLimits | None = None,
) -> AsyncGenerator[Siege]:
    """Bob and Alice, with a session, on a network on which everything takes its time.

    Args:
        limits: Bob's, for each mux.
        protocols: what he speaks.
        connections: his limits on them.
    """
    network = far(latency=0.05)
    session = SessionConfig(mux=limits or MuxLimits())
    config = HostConfig(session=session, connections=connections or ConnectionLimits())
    async with open_named(network, "bob", protocols, config=config) as bob, open_named(network, "alice") as alice:
        await alice.connect(bob.peer, bob.addresses)
        await wait_all_tasks_blocked()
        yield Siege(bob, alice, network)
