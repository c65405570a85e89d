"""Circuits, between hosts: their bytes, and what is left behind."""

import pytest
import trio
from trio.testing import MockClock, assert_checkpoints, wait_all_tasks_blocked

from agentmesh.abc import ByteStream, Stream
from agentmesh.protocols.relay import (
    HOP_ID,
    STOP_ID,
    CircuitLimits,
    RelayConfig,
    Status,
    reserve,
)
from agentmesh.protocols.relay.wire import (
    ConnectMessage,
    StatusMessage,
    decode_hop,
    decode_stop,
    encode_hop_connect,
    encode_stop_status,
)
from agentmesh.runtime.messages import read_message, write_message
from agentmesh.runtime.registry import Protocol
from agentmesh.testing.cancellation import cancel_at_every_await
from agentmesh.wire.framing import FrameReader, encode_frame
from tests.protocols.relay.net import (
    MIB,
    assert_nothing_left,
    assert_refused,
    echo,
    open_net,
    read_all,
    send_and_finish,
)

pytestmark = pytest.mark.usefixtures("carriers")


async def test_bytes_travel_both_ways_and_are_counted(autojump_clock: MockClock) -> None:
    async with open_net() as net:
        near, far = await net.join(), await net.join_reachable()
        data = bytes(range(256)) * (4 * MIB // 256)
        async with await net.circuit(near, far) as circuit, trio.open_nursery() as nursery:
            assert (circuit.peer, circuit.relay) == (far.peer, net.router.peer)
            assert circuit.limits == net.relay.config.circuit
            assert net.relay.statistics().circuits == 1
            nursery.start_soon(send_and_finish, circuit, data)
            assert await read_all(circuit) == data
        await assert_nothing_left(net, near, far)
        assert net.relay.statistics().relayed_bytes == 2 * len(data)
        assert net.relay.statistics().opened == 1


async def test_the_far_end_may_speak_first(autojump_clock: MockClock) -> None:
    async def greet(stream: ByteStream) -> None:
        await stream.send_all(b"welcome")
        await echo(stream)

    async with open_net() as net:
        near, far = await net.join(), await net.join_reachable(greet)
        async with await net.circuit(near, far) as circuit:
            assert await circuit.receive_some(3) == b"wel"
            assert await circuit.receive_some() == b"come"


async def test_bytes_behind_a_message_are_the_circuits(autojump_clock: MockClock) -> None:
    """Both ends may send their first bytes in one segment with their last message of the protocol."""
    got: list[bytes] = []

    async def serve(stream: Stream) -> None:
        await read_message(stream, FrameReader(4096))
        await stream.send_all(encode_frame(encode_stop_status(Status.OK)) + b"far early")
        got.append(await read_all(stream))

    async with open_net() as net:
        near, far = await net.join(), await net.join_raw(Protocol(STOP_ID, serve))
        await reserve(far, net.router.peer)
        async with await near.open_stream(net.router.peer, HOP_ID) as stream:
            await stream.send_all(encode_frame(encode_hop_connect(far.peer)) + b"near early")
            reader = FrameReader(4096)
            message = decode_hop(await read_message(stream, reader))
            assert isinstance(message, StatusMessage)
            assert message.status == Status.OK
            await stream.send_eof()
            assert reader.trailing() + await read_all(stream) == b"far early"
        assert got == [b"near early"]
        await assert_nothing_left(net, near, far)


async def test_the_destination_learns_who_calls_and_within_what(autojump_clock: MockClock) -> None:
    offers: list[object] = []

    async def serve(stream: Stream) -> None:
        offers.append(decode_stop(await read_message(stream, FrameReader(4096))))
        await write_message(stream, encode_stop_status(Status.PERMISSION_DENIED))

    limits = CircuitLimits(60.0, 12345)
    async with open_net(RelayConfig(circuit=limits)) as net:
        near, far = await net.join(), await net.join_raw(Protocol(STOP_ID, serve))
        await reserve(far, net.router.peer)
        await assert_refused(near, net, far.peer, Status.CONNECTION_FAILED)
        assert offers == [ConnectMessage(near.peer, limits)]
        await assert_nothing_left(net, near, far)


async def test_a_circuit_keeps_trios_contract(autojump_clock: MockClock) -> None:
    async with open_net() as net:
        near, far = await net.join(), await net.join_reachable()
        circuit = await net.circuit(near, far)
        with assert_checkpoints():
            await circuit.wait_send_all_might_not_block()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(circuit.receive_some)
            await wait_all_tasks_blocked()
            with pytest.raises(trio.BusyResourceError):
                await circuit.receive_some()
            with assert_checkpoints():
                await circuit.send_all(b"x")
        with assert_checkpoints():
            await circuit.aclose()
        with assert_checkpoints():
            await circuit.aclose()
        for use in (circuit.receive_some, circuit.send_eof, circuit.wait_send_all_might_not_block):
            with pytest.raises(trio.ClosedResourceError):
                await use()
        with pytest.raises(trio.ClosedResourceError):
            await circuit.send_all(b"x")


async def test_a_stalled_receiver_holds_its_own_circuit_only(autojump_clock: MockClock) -> None:
    async def stall(stream: ByteStream) -> None:
        await trio.sleep_forever()

    async with open_net() as net:
        near, stalled, far = await net.join(), await net.join_reachable(stall), await net.join_reachable()
        async with (
            await net.circuit(near, stalled) as stuck,
            await net.circuit(near, far) as circuit,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(stuck.send_all, bytes(64 * MIB))
            await trio.sleep(1)
            relayed = net.relay.statistics().relayed_bytes
            assert 0 < relayed < 20 * MIB, "the relay takes no more than windows hold"
            nursery.start_soon(send_and_finish, circuit, bytes(MIB))
            assert len(await read_all(circuit)) == MIB
            nursery.cancel_scope.cancel()


# ── cancellation ──


async def test_opening_and_using_a_circuit_cancelled_anywhere_leaves_nothing(autojump_clock: MockClock) -> None:
    async with open_net() as net:
        near, far = await net.join(), await net.join_reachable()

        async def operation() -> None:
            async with await net.circuit(near, far) as circuit:
                await send_and_finish(circuit, b"hello")
                assert await read_all(circuit) == b"hello"

        async def check() -> None:
            await assert_nothing_left(net, near, far)

        assert await cancel_at_every_await(operation, check=check) >= 5


async def test_many_circuits_leave_every_map_at_its_starting_size(autojump_clock: MockClock) -> None:
    async with open_net() as net:
        near, far = await net.join(), await net.join_reachable()
        for _ in range(300):
            async with await net.circuit(near, far) as circuit:
                await send_and_finish(circuit, b"x")
                assert await read_all(circuit) == b"x"
        await assert_nothing_left(net, near, far)
        found = net.relay.statistics()
        assert (found.opened, found.relayed_bytes, found.reservations) == (300, 600, 1)
