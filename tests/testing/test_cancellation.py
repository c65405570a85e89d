import math
import socket

import pytest
import trio
from trio.testing import memory_stream_pair

from agentmesh.testing.cancellation import cancel_at_every_await, footprint, leaves_nothing, wait_footprint
from agentmesh.testing.streams import HangingHalfCloseableStream, hang_at


async def test_every_await_is_struck_once() -> None:
    struck: list[int] = []

    async def operation() -> None:
        for at in range(5):
            try:
                await trio.lowlevel.checkpoint()
            except trio.Cancelled:
                struck.append(at)
                raise

    assert await cancel_at_every_await(operation) >= 5
    assert struck == [0, 1, 2, 3, 4]


async def test_awaits_of_children_count() -> None:
    async def child() -> None:
        for _ in range(10):
            await trio.lowlevel.checkpoint()

    async def operation() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(child)

    assert await cancel_at_every_await(operation) > 10


async def test_what_others_do_does_not_count() -> None:
    async def busy() -> None:
        while True:
            await trio.lowlevel.checkpoint()

    async def check() -> None:
        await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(busy)
        assert await cancel_at_every_await(trio.lowlevel.checkpoint, check=check) == 1
        nursery.cancel_scope.cancel()


async def test_a_wait_is_cancelled_while_it_waits(autojump_clock: trio.testing.MockClock) -> None:
    began = trio.current_time()

    async def operation() -> None:
        await trio.sleep(1.0)

    await cancel_at_every_await(operation)
    assert trio.current_time() - began == pytest.approx(1.0)  # the one run that completed


async def test_a_socket_left_behind_is_found(autojump_clock: trio.testing.MockClock) -> None:
    left: list[socket.socket] = []

    async def operation() -> None:
        left.append(socket.socket())
        await trio.lowlevel.checkpoint()
        left.pop().close()

    with pytest.raises(AssertionError, match="left behind") as caught:
        await cancel_at_every_await(operation)
    assert caught.value.__notes__ == ["cancelled at await 1"]
    left.pop().close()


async def test_a_task_left_behind_is_found(autojump_clock: trio.testing.MockClock) -> None:
    async with trio.open_nursery() as elsewhere:

        async def operation() -> None:
            elsewhere.start_soon(trio.sleep_forever)
            await trio.lowlevel.checkpoint()

        with pytest.raises(AssertionError, match="left behind"):
            await cancel_at_every_await(operation)
        elsewhere.cancel_scope.cancel()


async def test_what_the_operation_raises_tells_where(autojump_clock: trio.testing.MockClock) -> None:
    async def operation() -> None:
        await trio.lowlevel.checkpoint()
        try:
            await trio.sleep(1)
        except trio.Cancelled:
            raise ValueError("spoilt") from None

    with pytest.raises(ValueError, match="spoilt") as caught:
        await cancel_at_every_await(operation)
    assert caught.value.__notes__ == ["cancelled at await 2"]


async def test_the_check_is_asked_after_every_run() -> None:
    asked = 0

    async def check() -> None:
        nonlocal asked
        asked += 1
        await trio.lowlevel.checkpoint()

    awaits = await cancel_at_every_await(trio.lowlevel.checkpoint, check=check)
    assert asked == awaits + 1


async def test_a_deaf_operation_is_given_up(autojump_clock: trio.testing.MockClock) -> None:
    async def operation() -> None:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 100):
            await trio.sleep_forever()

    with pytest.raises(AssertionError, match=r"did not end within 30\.0 s"):
        await cancel_at_every_await(operation)


async def test_an_endless_operation_is_given_up() -> None:
    calls = 0

    async def operation() -> None:
        nonlocal calls
        calls += 1
        for _ in range(calls):
            await trio.lowlevel.checkpoint()

    async def check() -> None:
        await trio.lowlevel.checkpoint()

    with pytest.raises(AssertionError, match="no run completed within 7 awaits"):
        await cancel_at_every_await(operation, check=check, max_awaits=7)


async def test_a_block_leaves_nothing() -> None:
    async with leaves_nothing():
        with socket.socket():
            await trio.lowlevel.checkpoint()


async def test_a_block_that_leaves_something(autojump_clock: trio.testing.MockClock) -> None:
    held: list[socket.socket] = []
    with pytest.raises(AssertionError, match="left behind"):
        async with leaves_nothing():
            held.append(socket.socket())
    held.pop().close()


async def test_a_footprint_may_take_its_time(autojump_clock: trio.testing.MockClock) -> None:
    before = footprint()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep, 5)
        await wait_footprint(before)
    assert trio.current_time() >= 5


async def test_the_nth_operation_hangs(autojump_clock: trio.testing.MockClock) -> None:
    one, other = memory_stream_pair()
    stream = hang_at(one, 2)
    await stream.send_all(b"first")
    with trio.move_on_after(10) as scope:
        await stream.receive_some()
    assert scope.cancelled_caught
    assert stream.hanging.is_set()
    await stream.wait_send_all_might_not_block()
    await stream.send_all(b" third")
    await other.send_all(b"answer")
    assert await stream.receive_some() == b"answer"
    await stream.send_eof()
    assert stream.calls == 6
    assert await other.receive_some() == b"first third"
    assert await other.receive_some() == b""
    await stream.aclose()
    assert await other.receive_some() == b""


async def test_sending_the_end_is_an_operation(autojump_clock: trio.testing.MockClock) -> None:
    one, _ = memory_stream_pair()
    stream = hang_at(one, 1)
    assert isinstance(stream, HangingHalfCloseableStream)
    with trio.move_on_after(math.pi) as scope:
        await stream.send_eof()
    assert scope.cancelled_caught


async def test_a_stream_without_half_close_gets_none() -> None:
    class Plain(trio.abc.Stream):
        async def send_all(self, data: bytes | bytearray | memoryview) -> None: ...
        async def wait_send_all_might_not_block(self) -> None: ...
        async def receive_some(self, max_bytes: int | None = None) -> bytes:
            return b""

        async def aclose(self) -> None: ...

    assert not isinstance(hang_at(Plain(), 1), trio.abc.HalfCloseableStream)
