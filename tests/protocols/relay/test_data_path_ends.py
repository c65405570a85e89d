"""Circuits on connections of their own: what their ends, the way and strangers may do to them."""

from contextlib import AsyncExitStack, suppress

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from agentmesh.abc import ByteStream, Stream
from agentmesh.errors import ErrorCode, RemoteProtocolError, StreamResetError
from agentmesh.protocols.relay import (
    HOP_ID,
    CircuitLimits,
    DataPathConfig,
    RelayConfig,
    Status,
)
from agentmesh.protocols.relay.book import CircuitEntry
from agentmesh.protocols.relay.circuit import Circuit
from agentmesh.protocols.relay.control import WORD_TIMEOUT
from agentmesh.protocols.relay.data_circuit import DECISION_TIMEOUT
from agentmesh.protocols.relay.events import Offer
from agentmesh.protocols.relay.meeting import Meeting
from agentmesh.protocols.relay.tickets import Side
from agentmesh.protocols.relay.wire import (
    DOOR_BYTE,
    PREAMBLE_BYTES,
    WELCOME,
    encode_carried_by_streams,
    encode_hop_status,
)
from agentmesh.runtime.config import ConnectionLimits
from agentmesh.runtime.doors import Door
from agentmesh.runtime.host import Host
from agentmesh.runtime.messages import read_message
from agentmesh.runtime.registry import Protocol
from agentmesh.testing import cancel_at_every_await
from agentmesh.transports.pipes import MemoryPipe, PipeStream
from agentmesh.types import Address, PeerId
from agentmesh.wire.framing import FrameReader, encode_frame
from tests.protocols.relay import net as nets
from tests.protocols.relay.by_hand import Hand, Silence, come, connection, join_by_hand, near_by_hand
from tests.protocols.relay.connections import MemorySplicer
from tests.protocols.relay.net import Net, assert_nothing_left, assert_refused, open_net, read_all, send_and_finish

ALICE, BOB = (PeerId.from_ed25519(name * 32) for name in (b"a", b"b"))
CROWD = 10_000  # connections
WORD = encode_frame(encode_carried_by_streams(False))


@pytest.fixture(autouse=True)
def on_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nets, "CARRIER", nets.CONNECTIONS)


async def hello_and_wait(stream: ByteStream) -> None:
    """Say hello, and hear how it ends."""
    await stream.send_all(b"hello")
    with pytest.raises(trio.BrokenResourceError):
        await read_all(stream)


async def hear_reset(stream: trio.abc.ReceiveStream) -> int:
    """The code with which a stream or circuit is reset, whatever came before."""
    with pytest.raises(StreamResetError) as cut:
        while await stream.receive_some():
            pass
        await trio.sleep_forever()
    return cut.value.code


# ── on the way to a decision ──


@pytest.mark.parametrize("how", ["ends", "speaks", "speaks at once"])
async def test_a_connection_that_does_not_wait_for_its_welcome_is_none(how: str, autojump_clock: MockClock) -> None:
    """One side's is closed, and the circuit goes over streams, with the other side none the wiser."""

    async def act(hand: Hand) -> None:
        async with hand.connection() as stream:
            await wait_all_tasks_blocked()
            if how != "ends":
                await stream.send_all(b"!")
                assert await stream.receive_some() == b""
        assert await read_message(hand.stream, hand.reader) == encode_carried_by_streams(True)
        await hand.stream.send_all(WORD + b"hello")
        await hand.stream.send_eof()

    async with open_net() as net:
        # The near end comes late, so that the far one has time to misbehave.
        near, far = await net.join(dialer=Silence()), await join_by_hand(net, act)
        async with await net.clients[near.peer].open_circuit(net.router.peer, far.peer) as circuit:
            assert not circuit.is_spliced
            assert await read_all(circuit) == b"hello"
        assert net.relay.statistics().data_paths.fallbacks["left"] == 1
        await assert_nothing_left(net, near, far)


async def test_more_than_a_preamble_is_turned_away(autojump_clock: MockClock) -> None:
    async with open_net() as net:
        near, far = await net.join(), await net.join_reachable()
        async with near_by_hand(net, near, far.peer) as hand, connection(net) as stream:
            await stream.send_all(hand.preamble + b"!")
            assert await stream.receive_some() == b""
        assert net.router.statistics().handshakes_failed["too_long"] == 1
        await assert_nothing_left(net, near, far)


async def test_half_a_preamble_lasts_as_long_as_a_pairing(autojump_clock: MockClock) -> None:
    async with open_net() as net:
        near, far = await net.join(), await net.join_reachable()
        async with near_by_hand(net, near, far.peer) as hand, connection(net) as stream:
            start = trio.current_time()
            await stream.send_all(hand.preamble[:-1])
            assert await stream.receive_some() == b""
            assert trio.current_time() - start == pytest.approx(DataPathConfig().pairing_timeout)
        assert net.router.statistics().handshakes_failed["timeout"] == 1
        await assert_nothing_left(net, near, far)


async def test_thousands_that_say_nothing_take_no_more_places_than_there_are(autojump_clock: MockClock) -> None:
    async with open_net() as net:
        near, far = await net.join(), await net.join_reachable()

        async def loiter(number: int) -> None:
            async with connection(net) as stream:
                with suppress(trio.BrokenResourceError):
                    await stream.send_all((b"\xda" + bytes(31))[: number % 33])
                    await stream.receive_some()

        async with trio.open_nursery() as nursery:
            for number in range(CROWD):
                nursery.start_soon(loiter, number)
                if number % 100 == 99:
                    await wait_all_tasks_blocked()
            most = ConnectionLimits().max_handshakes_per_source
            found = net.router.connections.statistics()
            assert (found.handshakes, found.refused["handshake_limit"]) == (most, CROWD - most)
        assert net.router.connections.statistics().handshakes == 0
        async with await net.circuit(near, far) as circuit:
            await send_and_finish(circuit, b"x")
            assert await read_all(circuit) == b"x"


@pytest.mark.parametrize("garbage", [b"\x02\x10\x01", b"\x00", b"\x13/multistream/1.0.0\n"])
async def test_garbage_before_the_decision_ends_the_circuit(garbage: bytes, autojump_clock: MockClock) -> None:
    async def wait(hand: Hand) -> None:
        assert await hear_reset(hand.stream) == ErrorCode.PROTOCOL_VIOLATION

    async with open_net() as net:
        near, far = await net.join(), await join_by_hand(net, wait)
        async with near_by_hand(net, near, far.peer) as hand:
            await hand.stream.send_all(garbage)
            assert await hear_reset(hand.stream) == ErrorCode.PROTOCOL_VIOLATION
        await assert_nothing_left(net, near, far)


@pytest.mark.parametrize("code", [ErrorCode.NO_ERROR, ErrorCode.SUPPLANTED])
async def test_a_reset_before_the_decision_reaches_the_other_end(code: int, autojump_clock: MockClock) -> None:
    async def wait(hand: Hand) -> None:
        assert await hear_reset(hand.stream) == code

    async with open_net() as net:
        near, far = await net.join(), await join_by_hand(net, wait)
        async with near_by_hand(net, near, far.peer) as hand:
            hand.stream.reset(code)
        await assert_nothing_left(net, near, far)


async def test_an_end_that_does_not_agree_to_streams_is_cut(autojump_clock: MockClock) -> None:
    async def say_nothing(hand: Hand) -> None:
        await hear_reset(hand.stream)

    async with open_net() as net:
        near, far = await net.join(), await join_by_hand(net, say_nothing)
        start = trio.current_time()
        async with await net.clients[near.peer].open_circuit(net.router.peer, far.peer) as circuit:
            assert not circuit.is_spliced
            await hear_reset(circuit)
        assert trio.current_time() - start <= 15
        await assert_nothing_left(net, near, far)


async def test_opening_is_cancelled_while_the_ends_are_on_their_way(autojump_clock: MockClock) -> None:
    async with open_net() as net:
        near, far = await net.join(dialer=Silence()), await net.join_reachable(hello_and_wait)

        async def operation() -> None:
            with trio.move_on_after(3):
                await net.clients[near.peer].open_circuit(net.router.peer, far.peer)

        async def check() -> None:
            await assert_nothing_left(net, near, far)

        await cancel_at_every_await(operation, check=check)


# ── once it is spliced ──


async def test_bytes_beside_the_connection_cut_the_circuit(autojump_clock: MockClock) -> None:
    async with open_net() as net:
        near, far = await net.join(), await net.join_reachable(hello_and_wait)
        for said in (WORD, b"!"):
            async with near_by_hand(net, near, far.peer) as hand, hand.connection() as stream:
                assert await stream.receive_some(1) == WELCOME
                await hand.stream.send_all(said)
                assert await hear_reset(hand.stream) == ErrorCode.PROTOCOL_VIOLATION
        await assert_nothing_left(net, near, far)


async def test_a_connection_that_is_cut_off_is_no_end(autojump_clock: MockClock) -> None:
    """A middle box that closes it cannot say that the circuit has ended; only the stream can."""
    broken: list[Exception] = []

    async def hear(stream: ByteStream) -> None:
        with pytest.raises(StreamResetError) as cut:
            await read_all(stream)
        broken.append(cut.value)

    async with open_net() as net:
        near, far = await net.join(), await net.join_reachable(hear)
        async with near_by_hand(net, near, far.peer) as hand:
            async with hand.connection() as stream:
                assert await stream.receive_some(1) == WELCOME
                await stream.send_all(b"something")
                start = trio.current_time()
            assert await hear_reset(hand.stream) == ErrorCode.NO_ERROR
            assert trio.current_time() - start == pytest.approx(WORD_TIMEOUT)
        await wait_all_tasks_blocked()
        assert len(broken) == 1
        assert net.relay.statistics().relayed_bytes == len(b"something")
        await assert_nothing_left(net, near, far)


async def test_an_end_that_only_the_stream_has_waits_for_the_bytes(autojump_clock: MockClock) -> None:
    async with open_net() as net:
        near, far = await net.join(), await net.join_reachable()
        async with near_by_hand(net, near, far.peer) as hand, hand.connection() as stream:
            assert await stream.receive_some(1) == WELCOME
            await hand.stream.send_eof()
            await trio.sleep(1)
            await stream.send_all(b"late")
            assert await stream.receive_some() == b"late"
            assert isinstance(stream, trio.abc.HalfCloseableStream)
            await stream.send_eof()
            assert await stream.receive_some() == b""
            assert await hand.stream.receive_some() == b""
        await assert_nothing_left(net, near, far)


async def test_the_relay_stops_listening(autojump_clock: MockClock) -> None:
    """A connection goes with the listener that it came by, and a circuit with its connection."""
    elsewhere = Address.parse("/memory/5")
    async with open_net() as net, AsyncExitStack() as stack:
        near, far = await net.join(), await net.join_reachable(hello_and_wait)
        listening = net.router.listening(elsewhere)
        await stack.enter_async_context(listening)
        async with (
            near_by_hand(net, near, far.peer) as hand,
            net.network.transport("stranger").dial(elsewhere) as stream,
        ):
            await stream.send_all(hand.preamble)
            assert await stream.receive_some() == WELCOME
            assert await stream.receive_some() == b"hello"
            await stack.aclose()
            assert await stream.receive_some() == b""
            assert await hear_reset(hand.stream) == ErrorCode.NO_ERROR
        await assert_nothing_left(net, near, far)


async def test_a_relay_that_closes_takes_its_circuits_along(autojump_clock: MockClock) -> None:
    async with open_net() as net:
        near, far = await net.join(), await net.join_reachable(hello_and_wait)
        circuit = await net.circuit(near, far)
        assert await circuit.receive_some() == b"hello"
        await net.router.stop()
        with pytest.raises(trio.BrokenResourceError):
            await circuit.receive_some()
        with pytest.raises(trio.BrokenResourceError):
            await circuit.send_all(b"x")
        await wait_all_tasks_blocked()
        found = net.relay.statistics()
        assert (found.circuits, found.data_paths.circuits, net.router.statistics().streams.serving) == (0, 0, 0)
        assert found.relayed_bytes == len(b"hello")


async def test_a_relay_that_drains_lets_its_circuits_go_on(autojump_clock: MockClock) -> None:
    async with open_net() as net:
        near, far = await net.join(), await net.join_reachable()
        async with await net.circuit(near, far) as circuit:
            for session in net.router.connections:
                session.drain()
            await send_and_finish(circuit, b"still here")
            assert await read_all(circuit) == b"still here"
        await wait_all_tasks_blocked()
        assert net.relay.statistics().circuits == 0


async def test_whatever_else_it_is_used_for_a_broken_circuit_says_why(autojump_clock: MockClock) -> None:
    async with open_net() as net:
        near, far = await net.join(), await net.join_reachable(hello_and_wait)
        for name in ("send_eof", "wait_send_all_might_not_block", "receive_some"):
            async with await net.circuit(near, far) as circuit:
                await circuit.wait_send_all_might_not_block()
                net.relay.drop(near.peer)
                await wait_all_tasks_blocked()
                with pytest.raises(StreamResetError) as cut:
                    for _ in range(2):
                        await getattr(circuit, name)()
                assert cut.value.code == ErrorCode.GATED
        await assert_nothing_left(net, near, far)


async def test_a_circuit_that_is_closed_before_it_is_decided_is_reset(autojump_clock: MockClock) -> None:
    async def close(stream: ByteStream) -> None:
        await stream.aclose()

    async with open_net() as net:
        near, far = await net.join(dialer=Silence()), await net.join_reachable(close)
        with pytest.raises(trio.BrokenResourceError):
            async with await net.clients[near.peer].open_circuit(net.router.peer, far.peer) as circuit:
                await circuit.receive_some()
                await circuit.receive_some()
        await assert_nothing_left(net, near, far)


async def test_what_the_ends_say_after_the_decision_breaks_the_circuit(autojump_clock: MockClock) -> None:
    circuit = Circuit(CircuitEntry(1, ALICE, BOB), CircuitLimits())
    meeting = Meeting(circuit, lambda side: Offer(bytes(32)), MemorySplicer(), 5.0, lambda meeting: None)
    async with trio.open_nursery() as nursery:
        for side in Side:
            nursery.start_soon(meeting.attend, side, PipeStream(MemoryPipe(), MemoryPipe()))
        await wait_all_tasks_blocked()
        meeting.give_up()
        assert circuit.reset_code == ErrorCode.PROTOCOL_VIOLATION
        meeting.close()


# ── relays and peers that do not keep to it ──


async def lying_relay(net: Net, *answers: bytes) -> Host:
    """A relay that gives any circuit, with these words, and welcomes any connection."""

    async def serve(stream: Stream) -> None:
        await read_message(stream, FrameReader(4096))
        for answer in answers:
            await stream.send_all(answer)
        await trio.sleep_forever()

    async def welcome(stream: ByteStream, preamble: bytes) -> None:
        if WELCOMED in answers:
            await stream.send_all(WELCOME)
        await trio.sleep_forever()

    door = Door(DOOR_BYTE, PREAMBLE_BYTES, 5.0, welcome)
    return await net.join_raw(Protocol(HOP_ID, serve, doors=(door,)), listen="/memory/8")


WELCOMED = b""  # beside it
OPEN = encode_frame(encode_hop_status(Status.OK, CircuitLimits(), offer=Offer(bytes(32))))


async def test_a_relay_that_never_decides_is_given_up(autojump_clock: MockClock) -> None:
    async with open_net() as net:
        near, relay = await net.join(), await lying_relay(net, OPEN)
        await near.connect(relay.peer, relay.addresses)
        start = trio.current_time()
        with pytest.raises(trio.TooSlowError):
            await net.clients[near.peer].open_circuit(relay.peer, net.router.peer)
        assert trio.current_time() - start <= DECISION_TIMEOUT + 1


@pytest.mark.parametrize("words", [(OPEN, b"\x00"), (OPEN + b"\x02\x08",), (OPEN + b"\x02", WELCOMED)])
async def test_a_relay_that_talks_nonsense_is_a_fault_of_its_own(
    words: tuple[bytes, ...], autojump_clock: MockClock
) -> None:
    async with open_net() as net:
        near, relay = await net.join(), await lying_relay(net, *words, *([] if WELCOMED in words else [b"\xff" * 9]))
        await near.connect(relay.peer, relay.addresses)
        with pytest.raises(RemoteProtocolError):
            await net.clients[near.peer].open_circuit(relay.peer, net.router.peer)


async def test_an_offer_that_nobody_asked_for_is_a_fault(autojump_clock: MockClock) -> None:
    async with open_net() as net:
        relay, splicer = await lying_relay(net, OPEN), net.splicer
        net.splicer = None
        near = await net.join()
        net.splicer = splicer
        await near.connect(relay.peer, relay.addresses)
        with pytest.raises(RemoteProtocolError):
            await net.clients[near.peer].open_circuit(relay.peer, net.router.peer)


async def test_a_far_end_that_takes_what_it_was_not_offered_has_failed(autojump_clock: MockClock) -> None:
    async with open_net(RelayConfig(data_path=DataPathConfig(enabled=False))) as net:
        near, far = await net.join(), await join_by_hand(net, come)
        await assert_refused(near, net, far.peer, Status.CONNECTION_FAILED)
