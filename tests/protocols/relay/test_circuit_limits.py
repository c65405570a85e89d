"""Circuits, between hosts: what each may use, and how many there may be."""

from contextlib import suppress

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from agentmesh.abc import ByteStream
from agentmesh.errors import ErrorCode, StreamResetError
from agentmesh.protocols.relay import (
    BookLimits,
    CircuitLimits,
    RelayConfig,
    Status,
    reserve,
)
from agentmesh.protocols.relay.driver import SPARE_STREAMS
from tests.protocols.relay.net import MIB, assert_nothing_left, assert_refused, open_net, read_all, send_and_finish

pytestmark = pytest.mark.usefixtures("carriers")


@pytest.mark.parametrize("size", [999, 1000, 1001, 300_000])
async def test_exactly_the_allowed_bytes_pass(size: int, autojump_clock: MockClock) -> None:
    heard = bytearray()

    async def listen(stream: ByteStream) -> None:
        try:
            async for data in stream:
                heard.extend(data)
        except trio.BrokenResourceError:
            heard.extend(b"!")

    async with open_net(RelayConfig(circuit=CircuitLimits(0.0, 1000))) as net:
        near, far = await net.join(), await net.join_reachable(listen)
        async with await net.circuit(near, far) as circuit:
            assert circuit.limits == CircuitLimits(0.0, 1000)
            with suppress(StreamResetError):  # it may be cut before it has taken them all
                await circuit.send_all(bytes(size))
            if size > 1000:
                with pytest.raises(StreamResetError) as cut:
                    await circuit.receive_some()
                assert cut.value.code == ErrorCode.RESOURCE_LIMIT_EXCEEDED
            else:
                await circuit.send_eof()
                await wait_all_tasks_blocked()
        await assert_nothing_left(net, near, far)
        assert net.relay.statistics().relayed_bytes == min(size, 1000)
        assert heard.rstrip(b"!") in (bytes(min(size, 1000)), b""), (
            "what a reset overtakes may be lost, nothing is added"
        )


async def test_the_byte_limit_is_for_each_direction(autojump_clock: MockClock) -> None:
    async with open_net(RelayConfig(circuit=CircuitLimits(0.0, 1000))) as net:
        near, far = await net.join(), await net.join_reachable()
        async with await net.circuit(near, far) as circuit:
            await send_and_finish(circuit, bytes(1000))
            assert len(await read_all(circuit)) == 1000


async def test_a_circuit_ends_when_its_time_is_up(autojump_clock: MockClock) -> None:
    async with open_net(RelayConfig(circuit=CircuitLimits(max_duration=30.0))) as net:
        near, far = await net.join(), await net.join_reachable()
        start = trio.current_time()
        async with await net.circuit(near, far) as circuit:
            with pytest.raises(StreamResetError) as cut:
                await circuit.receive_some()
            assert cut.value.code == ErrorCode.RESOURCE_LIMIT_EXCEEDED
            assert trio.current_time() - start == pytest.approx(30)
        await assert_nothing_left(net, near, far)


async def test_both_limits_can_be_off(autojump_clock: MockClock) -> None:
    async with open_net(RelayConfig(circuit=CircuitLimits())) as net:
        near, far = await net.join(), await net.join_reachable()
        async with await net.circuit(near, far) as circuit, trio.open_nursery() as nursery:
            assert circuit.limits == CircuitLimits()
            await trio.sleep(8_000)
            nursery.start_soon(send_and_finish, circuit, bytes(2 * MIB))
            assert len(await read_all(circuit)) == 2 * MIB


async def test_the_circuit_after_the_last_is_refused(autojump_clock: MockClock) -> None:
    async with open_net(RelayConfig(book=BookLimits(max_circuits_per_peer=3))) as net:
        near, far = await net.join(), await net.join_reachable()
        circuits = [await net.circuit(near, far) for _ in range(3)]
        await assert_refused(near, net, far.peer, Status.RESOURCE_LIMIT_EXCEEDED)
        await circuits[0].aclose()
        await wait_all_tasks_blocked()
        circuits.append(await net.circuit(near, far))
        assert net.relay.statistics().circuits == 3
        for _ in range(2 * SPARE_STREAMS):  # there are streams to spare, to be refused on and to reserve
            await assert_refused(near, net, far.peer, Status.RESOURCE_LIMIT_EXCEEDED)
        await reserve(near, net.router.peer)
        for circuit in circuits:
            circuit.reset()
        await assert_nothing_left(net, near, far)
