"""Each fault of the shim is what its name says."""

import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from agentmesh.runtime.nursery import open_background
from tests.soak.shim import GARBLED_BYTES, Passage, Shim, open_shim

STALL = 0.05  # real seconds without anything happening, after which nothing is held to come


@attrs.frozen
class Through:
    """A connection through a shim: the dialled end, the accepted one, and what lies between."""

    near: trio.SocketStream
    far: trio.SocketStream
    passage: Passage
    shim: Shim


@asynccontextmanager
async def open_through() -> AsyncGenerator[Through]:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    shim = await open_shim(random.Random(1))
    shim.target = listener.socket.getsockname()[1]
    async with listener, open_background() as nursery:
        nursery.start_soon(shim.serve)
        async with await trio.open_tcp_stream("127.0.0.1", shim.port) as near, await listener.accept() as far:
            await wait_all_tasks_blocked(STALL)
            (passage,) = shim.passages
            yield Through(near, far, passage, shim)


async def hears(stream: trio.SocketStream) -> bytes | None:
    """What has come, None when nothing has."""
    with trio.move_on_after(STALL):
        return bytes(await stream.receive_some())
    return None


async def test_without_faults_everything_goes_through_and_the_ends_too() -> None:
    async with open_through() as through:
        await through.near.send_all(b"there")
        assert await hears(through.far) == b"there"
        await through.near.send_eof()
        assert await hears(through.far) == b""
        await through.far.send_all(b"and back")
        assert await hears(through.near) == b"and back"
        await through.far.aclose()
        assert await hears(through.near) == b""
        await wait_all_tasks_blocked(STALL)
        assert not through.shim.passages


async def test_a_reset_breaks_both_ends() -> None:
    async with open_through() as through:
        through.passage.reset()
        for end in (through.near, through.far):
            with pytest.raises(trio.BrokenResourceError):
                await end.receive_some()


async def test_frozen_bytes_arrive_when_they_are_thawed() -> None:
    async with open_through() as through:
        pump = through.passage.inwards
        pump.freeze()
        await through.near.send_all(b"late")
        assert await hears(through.far) is None
        await through.far.send_all(b"the other way goes on")
        assert await hears(through.near) == b"the other way goes on"
        pump.thaw()
        assert await hears(through.far) == b"late"


async def test_a_half_close_tells_the_reader_only() -> None:
    async with open_through() as through:
        through.passage.inwards.end()
        assert await hears(through.far) == b""
        await through.near.send_all(b"vanishes")
        await through.far.send_all(b"goes on")
        assert await hears(through.near) == b"goes on"


async def test_a_slow_path_is_half_closed_while_bytes_wait() -> None:
    async with open_through() as through:
        through.passage.inwards.bytes_per_second = 1_000.0
        await through.near.send_all(bytes(10_000))
        assert await hears(through.far)
        through.passage.inwards.end()
        through.passage.inwards.bytes_per_second = 1e9
        while await through.far.receive_some():
            pass
        await through.far.send_all(b"goes on")
        assert await hears(through.near) == b"goes on"


async def test_a_forgotten_connection_is_silent_and_ends_with_its_ends() -> None:
    async with open_through() as through:
        through.passage.forget()
        await through.near.send_all(b"x")
        assert await hears(through.far) is None
        await through.near.aclose()
        assert await hears(through.far) is None
        await through.far.aclose()
        await wait_all_tasks_blocked(STALL)
        assert not through.shim.passages


async def test_garbage_comes_once() -> None:
    async with open_through() as through:
        through.passage.inwards.garble()
        for damaged in (True, False):
            await through.near.send_all(bytes(100))
            heard = await hears(through.far)
            assert heard is not None
            assert 1 <= sum(byte != 0 for byte in heard) <= GARBLED_BYTES if damaged else heard == bytes(100)


async def test_a_slow_path_takes_its_time() -> None:
    async with open_through() as through:
        through.passage.inwards.bytes_per_second = 50_000.0
        began = trio.current_time()
        await through.near.send_all(bytes(10_000))
        received = 0
        while received < 10_000:
            received += len(await through.far.receive_some())
        assert trio.current_time() - began >= 0.15
