"""Cancelled at every await in turn, nothing of an operation is left: no task, no descriptor, no entry of a map."""

from collections.abc import Awaitable, Callable

import attrs
import pytest
import trio
from trio.testing import MockClock

from agentmesh.abc import Direction, Stream
from agentmesh.errors import DialError, RejectedError
from agentmesh.runtime.config import SessionConfig
from agentmesh.runtime.host import Host
from agentmesh.runtime.nursery import open_background
from agentmesh.runtime.pulse import Pulse
from agentmesh.runtime.registry import Protocol
from agentmesh.runtime.session import MuxSession
from agentmesh.runtime.upgrade import upgrade_inbound, upgrade_outbound
from agentmesh.testing.cancellation import cancel_at_every_await, footprint, wait_footprint
from agentmesh.testing.links import Conditions
from agentmesh.testing.network import MemoryNetwork
from agentmesh.testing.streams import hang_at
from agentmesh.types import ProtocolId
from tests.runtime.hosts import ECHO, echo, open_named, open_two
from tests.runtime.pairs import ALICES, BOB, BOBS, Doorman
from tests.runtime.wires import duplex

GATED = ProtocolId("/test/gated")
PATH = Conditions(latency=0.05)


@attrs.frozen
class Sizes:
    """How much every map of a host holds."""

    connections: int
    sources: int
    handshakes: int
    dialing: int
    streams: int
    serving: int
    in_muxes: int
    admitted: int

    @classmethod
    def of(cls, host: Host) -> "Sizes":
        figures = host.statistics()
        muxes = [session.mux.statistics() for session in host.connections]
        return cls(
            connections=len(host.connections),
            sources=figures.connections.peers,
            handshakes=figures.connections.handshakes,
            dialing=figures.dialing,
            streams=sum(len(session.streams) for session in host.connections),
            serving=figures.streams.serving,
            in_muxes=sum(mux.inbound_streams + mux.outbound_streams + mux.lingering_streams for mux in muxes),
            admitted=figures.admitted,
        )


def unchanged(*hosts: Host) -> Callable[[], Awaitable[None]]:
    """A check that these hosts, and the run they are in, hold what they hold now and no more."""
    before, sizes = footprint(), [Sizes.of(host) for host in hosts]

    async def check() -> None:
        await trio.sleep(2)  # for what is under way
        assert [Sizes.of(host) for host in hosts] == sizes
        await wait_footprint(before)

    return check


async def test_dialling(autojump_clock: MockClock) -> None:
    """Connecting, the handshake, and the end of the session: on either side."""
    network = MemoryNetwork(conditions=PATH)
    async with open_named(network, "bob") as bob, open_named(network, "alice") as alice:

        async def dial_and_hang_up() -> None:
            session = await alice.connect(bob.peer, bob.addresses)
            await session.aclose()

        async def check() -> None:
            if (session := alice.session(bob.peer)) is not None:  # it was made before the cancellation came
                await session.aclose()
            await unchanged_check()

        unchanged_check = unchanged(alice, bob)
        assert await cancel_at_every_await(dial_and_hang_up, check=check) > 3
        await alice.connect(bob.peer, bob.addresses)
        assert await echo(alice, bob.peer) == b"hello"


async def test_dialling_several_addresses(autojump_clock: MockClock) -> None:
    network = MemoryNetwork(conditions=PATH)
    async with open_named(network, "bob") as bob, open_named(network, "alice") as alice:
        addresses = [*bob.addresses, bob.addresses[0].without_peer()]
        unchanged_check = unchanged(alice, bob)

        async def dial_the_wrong_one() -> None:
            with pytest.raises(DialError):
                await alice.connect(BOB.peer, [address.without_peer() for address in addresses])

        await cancel_at_every_await(dial_the_wrong_one, check=unchanged_check)


@pytest.mark.parametrize("side", list(Direction))
async def test_the_handshake(autojump_clock: MockClock, side: Direction) -> None:
    """By itself, over a stream: whoever made the stream can close it, and nothing else is there."""

    async def shake_hands() -> None:
        dialer, listener = duplex()

        async def outbound() -> None:
            await upgrade_outbound(dialer, ALICES, BOB.peer)

        async def inbound() -> None:
            await upgrade_inbound(listener, BOBS)

        ours, theirs = (outbound, inbound) if side is Direction.OUTBOUND else (inbound, outbound)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_forgiving, theirs)
            try:
                await ours()
            finally:
                dialer.close()
                listener.close()

    assert await cancel_at_every_await(shake_hands) > 5


async def _forgiving(act: Callable[[], Awaitable[None]]) -> None:
    try:
        await act()
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        return


@pytest.mark.parametrize("n", range(1, 6))
async def test_a_handshake_that_hangs_at_any_operation_can_be_cancelled(autojump_clock: MockClock, n: int) -> None:
    dialer, listener = duplex()
    before = footprint()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_forgiving, lambda: _take(listener))
        with trio.move_on_after(5):
            await upgrade_outbound(hang_at(dialer, n), ALICES, BOB.peer)
        await dialer.aclose()
    await wait_footprint(before)


async def _take(stream: trio.abc.Stream) -> None:
    await upgrade_inbound(stream, BOBS)


async def test_a_session(autojump_clock: MockClock) -> None:
    """Run and closed, cancelled at any moment: it ends, and says so."""
    ended: list[MuxSession] = []

    async def run_and_close() -> None:
        dialer, listener = duplex()
        sessions = ended[:] = await _sessions_over(dialer, listener)
        async with open_background() as nursery:
            pulse = Pulse()
            nursery.start_soon(pulse.run)
            for session in sessions:
                nursery.start_soon(session.run, pulse)
            stream = await sessions[0].open_stream(ECHO)
            await stream.send_all(b"hello")
            await sessions[0].aclose()

    async def check() -> None:
        for session in ended:
            assert session.ended.is_set()
            assert not session.streams
            assert not session.is_open

    before = footprint()
    assert await cancel_at_every_await(run_and_close, check=check) > 10
    await wait_footprint(before)


async def _sessions_over(dialer: trio.abc.Stream, listener: trio.abc.Stream) -> list[MuxSession]:
    sessions: list[MuxSession] = []

    async def listen() -> None:
        upgraded = await upgrade_inbound(listener, BOBS)
        sessions.append(MuxSession(upgraded, Direction.INBOUND, Doorman(), SessionConfig()))

    with trio.CancelScope(shield=True):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(listen)
            upgraded = await upgrade_outbound(dialer, ALICES, BOB.peer)
            sessions.insert(0, MuxSession(upgraded, Direction.OUTBOUND, Doorman(), SessionConfig()))
    return sessions


async def _stream_operations(alice: Host, bob: Host, protocol: ProtocolId) -> None:
    """All there is to a stream: open, send, receive, end, close."""
    stream = await alice.open_stream(bob.peer, protocol)
    async with stream:
        await stream.send_all(b"hello")
        assert await stream.receive_some() == b"hello"
        await stream.wait_send_all_might_not_block()
        await stream.send_eof()
        assert await stream.receive_some() == b""


async def test_a_stream(autojump_clock: MockClock) -> None:
    async with open_two(network=MemoryNetwork(conditions=PATH)) as (alice, bob):
        await trio.sleep(1)
        operations = cancel_at_every_await(lambda: _stream_operations(alice, bob, ECHO), check=unchanged(alice, bob))
        assert await operations >= 6
        assert await echo(alice, bob.peer) == b"hello"


async def test_a_stream_that_is_sent_more_than_it_takes(autojump_clock: MockClock) -> None:
    async def read_slowly(stream: Stream) -> None:
        async for _ in stream:
            await trio.sleep(0.01)

    async with open_two([Protocol(ECHO, read_slowly)]) as (alice, bob):
        await trio.sleep(1)

        async def send() -> None:
            stream = await alice.open_stream(bob.peer, ECHO)
            async with stream:
                await stream.send_all(bytes(1 << 20))

        await cancel_at_every_await(send, check=unchanged(alice, bob))


async def test_a_stream_that_is_refused(autojump_clock: MockClock) -> None:
    async with open_two(network=MemoryNetwork(conditions=PATH)) as (alice, bob):
        await trio.sleep(1)

        async def ask() -> None:
            stream = await alice.open_stream(bob.peer, GATED)
            async with stream:
                with pytest.raises(RejectedError):
                    await stream.receive_some()

        await cancel_at_every_await(ask, check=unchanged(alice, bob))


async def test_a_whole_host(autojump_clock: MockClock) -> None:
    """Opened, used and left again, beside a peer that stays."""
    network = MemoryNetwork(conditions=PATH)
    async with open_named(network, "bob") as bob:
        check = unchanged(bob)

        async def open_and_leave() -> None:
            async with open_named(network, "alice") as alice:
                await alice.connect(bob.peer, bob.addresses)
                await _stream_operations(alice, bob, ECHO)

        assert await cancel_at_every_await(open_and_leave, check=check, max_awaits=5000) > 20
