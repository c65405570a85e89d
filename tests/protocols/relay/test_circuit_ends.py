"""Circuits, between hosts: every way that one ends."""

from contextlib import suppress

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from agentmesh.abc import ByteStream
from agentmesh.errors import ErrorCode, StreamResetError
from agentmesh.protocols.relay import (
    CircuitStream,
    reserve,
)
from agentmesh.runtime.config import SessionConfig
from tests.protocols.relay.net import (
    EPOCH,
    MIB,
    assert_nothing_left,
    open_net,
    read_all,
    send_all,
    send_and_finish,
)

pytestmark = pytest.mark.usefixtures("carriers")


async def test_each_direction_ends_by_itself(autojump_clock: MockClock) -> None:
    heard: list[bytes] = []

    async def answer_after_the_end(stream: ByteStream) -> None:
        heard.append(await read_all(stream))
        await trio.sleep(100)
        await stream.send_all(b"late answer")

    async with open_net() as net:
        near, far = await net.join(), await net.join_reachable(answer_after_the_end)
        async with await net.circuit(near, far) as circuit:
            await send_and_finish(circuit, b"question")
            assert await read_all(circuit) == b"late answer"
        assert heard == [b"question"]
        await assert_nothing_left(net, near, far)


async def test_the_far_end_may_end_first(autojump_clock: MockClock) -> None:
    heard: list[bytes] = []

    async def end_first(stream: ByteStream) -> None:
        assert isinstance(stream, CircuitStream)
        await stream.send_eof()
        heard.append(await read_all(stream))

    async with open_net() as net:
        near, far = await net.join(), await net.join_reachable(end_first)
        async with await net.circuit(near, far) as circuit:
            assert await circuit.receive_some() == b""
            await send_and_finish(circuit, b"still here")
            await wait_all_tasks_blocked()
        assert heard == [b"still here"]
        await assert_nothing_left(net, near, far)


@pytest.mark.parametrize("code", [ErrorCode.NO_ERROR, ErrorCode.SUPPLANTED, 0xABCDEF])
async def test_a_reset_travels_to_the_other_end(code: int, autojump_clock: MockClock) -> None:
    seen: list[int] = []

    async def wait_reset(stream: ByteStream) -> None:
        await stream.send_all(b"hello")
        with pytest.raises(StreamResetError) as cut:
            await stream.receive_some()
        seen.append(cut.value.code)

    async with open_net() as net:
        near, far = await net.join(), await net.join_reachable(wait_reset)
        circuit = await net.circuit(near, far)
        assert await circuit.receive_some() == b"hello"
        circuit.reset(code)
        await assert_nothing_left(net, near, far)
        assert seen == [code]
        with pytest.raises(trio.ClosedResourceError):
            await circuit.receive_some()


async def test_a_reset_travels_back(autojump_clock: MockClock) -> None:
    async def reset(stream: ByteStream) -> None:
        assert isinstance(stream, CircuitStream)
        assert await stream.receive_some() == b"hello"
        stream.reset(ErrorCode.SUPPLANTED)

    async with open_net() as net:
        near, far = await net.join(), await net.join_reachable(reset)
        async with await net.circuit(near, far) as circuit:
            await circuit.send_all(b"hello")
            with pytest.raises(StreamResetError) as cut:
                await circuit.receive_some()
            assert cut.value.code == ErrorCode.SUPPLANTED
        await assert_nothing_left(net, near, far)


async def test_sending_to_an_end_that_closed_breaks(autojump_clock: MockClock) -> None:
    async def leave(stream: ByteStream) -> None:
        await stream.receive_some()

    async with open_net() as net:
        near, far = await net.join(), await net.join_reachable(leave)
        async with await net.circuit(near, far) as circuit:
            await circuit.send_all(b"first")
            await wait_all_tasks_blocked()
            with pytest.raises(trio.BrokenResourceError):
                for _ in range(100):
                    await circuit.send_all(b"to nobody")
                    await trio.sleep(0.1)
        await assert_nothing_left(net, near, far)


async def stall(stream: ByteStream) -> None:
    await trio.sleep_forever()


async def test_a_reset_reaches_an_end_that_takes_no_bytes(autojump_clock: MockClock) -> None:
    async with open_net() as net:
        near, far = await net.join(), await net.join_reachable(stall)
        circuit = await net.circuit(near, far)
        with trio.move_on_after(100):
            await send_all(circuit, bytes(64 * MIB))
        circuit.reset(ErrorCode.SUPPLANTED)
        await wait_all_tasks_blocked()
        assert net.relay.statistics().circuits == 0


async def test_a_reset_travels_back_to_an_end_that_takes_no_bytes(autojump_clock: MockClock) -> None:
    async def flood_and_reset(stream: ByteStream) -> None:
        assert isinstance(stream, CircuitStream)
        with trio.move_on_after(100):
            await send_all(stream, bytes(64 * MIB))
        stream.reset(ErrorCode.SUPPLANTED)

    async with open_net() as net:
        near, far = await net.join(), await net.join_reachable(flood_and_reset)
        async with await net.circuit(near, far) as circuit:
            await trio.sleep(100)
            await wait_all_tasks_blocked()
            assert net.relay.statistics().circuits == 0
            with pytest.raises(trio.BrokenResourceError):
                await circuit.send_all(b"x")


async def test_a_circuit_that_stands_still_is_not_cut_for_that(autojump_clock: MockClock) -> None:
    taken: list[int] = []

    async def take_late(stream: ByteStream) -> None:
        assert isinstance(stream, CircuitStream)
        await stream.send_eof()
        await trio.sleep(50)
        taken.append(len(await read_all(stream)))

    async with open_net() as net:
        near, far = await net.join(), await net.join_reachable(take_late)
        async with await net.circuit(near, far) as circuit:
            await send_and_finish(circuit, bytes(40 * MIB))
        await assert_nothing_left(net, near, far)
        assert taken == [40 * MIB]


async def test_what_an_end_finished_is_handed_on_though_it_is_cut(autojump_clock: MockClock) -> None:
    """An end that finished, and then refuses what comes back, is cut. What it sent is under way to a slow reader."""
    taken: list[int] = []

    async def answer_then_read_late(stream: ByteStream) -> None:
        assert isinstance(stream, CircuitStream)
        await stream.send_all(b"an answer that nobody wants")
        await trio.sleep(50)
        taken.append(len(await read_all(stream)))

    async with open_net() as net:
        near, far = await net.join(), await net.join_reachable(answer_then_read_late)
        circuit = await net.circuit(near, far)
        await send_and_finish(circuit, bytes(MIB // 2))
        await circuit.aclose()  # the relay still has bytes for it: it will be told that nobody reads them
        await trio.sleep(60)
        await assert_nothing_left(net, near, far)
        assert taken == [MIB // 2]


@pytest.mark.parametrize("leaver", ["near", "far"])
async def test_an_end_whose_session_ends_takes_the_circuit_with_it(leaver: str, autojump_clock: MockClock) -> None:
    broken = trio.Event()

    async def wait_broken(stream: ByteStream) -> None:
        await stream.send_all(b"hello")
        try:
            await stream.receive_some()
        except trio.BrokenResourceError:
            broken.set()

    async with open_net() as net:
        near, far = await net.join(), await net.join_reachable(wait_broken)
        async with await net.circuit(near, far) as circuit:
            await circuit.receive_some()
            session = {"near": near, "far": far}[leaver].session(net.router.peer)
            assert session is not None
            await session.aclose()
            with pytest.raises(trio.BrokenResourceError):
                await circuit.receive_some()
            if leaver == "near":  # the far end's own task ends with the session that it runs in
                with trio.fail_after(10):
                    await broken.wait()
        await assert_nothing_left(net, near, far)


@pytest.mark.parametrize("frozen", ["near", "far"])
async def test_an_end_that_vanished_is_taken_down_by_the_ping_deadline(frozen: str, autojump_clock: MockClock) -> None:
    async def hello(stream: ByteStream) -> None:
        await stream.send_all(b"hello")
        with suppress(trio.BrokenResourceError):
            await stream.receive_some()

    async with open_net() as net:
        stopped, other = await net.join(hello), await net.join(hello)
        near, far = (stopped, other) if frozen == "near" else (other, stopped)
        await reserve(far, net.router.peer)
        circuit = await net.circuit(near, far)
        assert await circuit.receive_some() == b"hello"
        net.freeze(stopped)
        start, limit = trio.current_time(), 3 * SessionConfig().ping_interval + 1
        if frozen == "far":
            with pytest.raises(StreamResetError):
                await circuit.receive_some()
        else:
            await trio.sleep(limit)
        assert trio.current_time() - start <= limit
        await wait_all_tasks_blocked()
        assert net.relay.statistics().circuits == 0
        assert net.router.session(stopped.peer) is None
        assert other.statistics().streams.serving == 0


@pytest.mark.parametrize("lapsing", ["near", "far"])
async def test_a_circuit_ends_when_the_admission_of_either_end_does(lapsing: str, autojump_clock: MockClock) -> None:
    async with open_net() as net:
        near, far = await net.join(), await net.join_reachable()
        net.admit({"near": near, "far": far}[lapsing], EPOCH + trio.current_time() + 50)
        async with await net.circuit(near, far) as circuit:
            await circuit.send_all(b"x")
            assert await circuit.receive_some() == b"x"
            start = trio.current_time()
            with pytest.raises(StreamResetError) as cut:
                await circuit.receive_some()
            assert cut.value.code == ErrorCode.GATED
            assert trio.current_time() - start == pytest.approx(50)
        await assert_nothing_left(net, near, far)
        assert net.relay.statistics().reservations == (0 if lapsing == "far" else 1)


async def test_a_renewed_admission_keeps_the_circuit(autojump_clock: MockClock) -> None:
    async with open_net() as net:
        near, far = await net.join(), await net.join_reachable()
        net.admit(near, EPOCH + trio.current_time() + 50)
        async with await net.circuit(near, far) as circuit:
            await trio.sleep(40)
            net.admit(near, EPOCH + trio.current_time() + 1000)
            await trio.sleep(500)
            await circuit.send_all(b"x")
            assert await circuit.receive_some() == b"x"
