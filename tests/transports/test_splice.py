"""Bytes from socket to socket, by the kernel and by copying: whole, counted, fair, and without a descriptor left."""

import itertools
import os
import random
import resource
import socket
import struct
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from functools import partial

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from agentmesh.abc import Moved
from agentmesh.transports import pipe_pool
from agentmesh.transports.pipe_pool import PipePool
from agentmesh.transports.pipes import MemoryPipe, PipeStream
from agentmesh.transports.splice import CopyingSplicer, KernelSplicer, SocketSplicer, can_splice, open_splicer
from tests.transports.socket_pairs import connected, descriptors

MIB = 1024 * 1024
METHODS = ("splice", "copy")


@contextmanager
def open_method(method: str, chunk_bytes: int = 64 * 1024) -> Generator[SocketSplicer]:
    if method == "copy":
        yield CopyingSplicer(chunk_bytes)
        return
    with PipePool() as pipes:
        yield KernelSplicer(pipes, chunk_bytes)
        assert pipes.taken == 0


@pytest.fixture(params=METHODS)
def splicer(request: pytest.FixtureRequest) -> Generator[SocketSplicer]:
    """Each test here holds for both, and leaves as many descriptors as there were."""
    before = descriptors()
    with open_method(request.param) as splicer:
        assert splicer.method == request.param
        yield splicer
    assert descriptors() == before


@attrs.define
class Path:
    """writer → source ═ splicer ═ sink → reader"""

    writer: trio.SocketStream
    source: trio.SocketStream
    sink: trio.SocketStream
    reader: trio.SocketStream
    counted: list[int] = attrs.Factory(list[int])

    async def move(self, splicer: SocketSplicer, max_bytes: int | None = None) -> Moved:
        return await splicer.move(self.source, self.sink, max_bytes, self.counted.append)

    @property
    def total(self) -> int:
        return sum(self.counted)


@asynccontextmanager
async def open_path() -> AsyncGenerator[Path]:
    async with connected() as (writer, source), connected() as (sink, reader):
        yield Path(writer, source, sink, reader)


async def read_all(stream: trio.SocketStream) -> bytes:
    return b"".join([bytes(data) async for data in stream])


async def moved(splicer: SocketSplicer, path: Path, data: bytes, max_bytes: int | None = None) -> tuple[Moved, bytes]:
    """Send data and an end, move it all, and say what came out."""
    outcome: list[Moved] = []
    received: list[bytes] = []

    async def send() -> None:
        try:
            await path.writer.send_all(data)
            await path.writer.send_eof()
        except trio.BrokenResourceError:
            return

    async def move() -> None:
        outcome.append(await path.move(splicer, max_bytes))
        await path.sink.send_eof()
        await path.source.aclose()

    async def receive() -> None:
        received.append(await read_all(path.reader))

    async with trio.open_nursery() as nursery:
        for task in (send, move, receive):
            nursery.start_soon(task)
    return outcome[0], received[0]


@pytest.mark.parametrize("size", [0, 1, 64 * 1024, 5 * MIB + 7])
async def test_all_that_is_sent_arrives_and_is_counted(splicer: SocketSplicer, size: int) -> None:
    data = random.Random(size).randbytes(size)
    async with open_path() as path:
        assert await moved(splicer, path, data) == (Moved.ENDED, data)
        assert path.total == size


@pytest.mark.parametrize(
    ("size", "limit", "outcome"),
    [
        (999, 1000, Moved.ENDED),
        (1000, 1000, Moved.ENDED),
        (1001, 1000, Moved.LIMIT),
        (MIB, 300_001, Moved.LIMIT),
        (MIB, 1, Moved.LIMIT),
        (0, 1000, Moved.ENDED),
    ],
)
async def test_not_a_byte_more_than_the_limit(splicer: SocketSplicer, size: int, limit: int, outcome: Moved) -> None:
    data = random.Random(size).randbytes(size)
    async with open_path() as path:
        assert await moved(splicer, path, data, limit) == (outcome, data[:limit])
        assert path.total == min(size, limit)


async def test_small_pieces_are_handed_on_at_once(splicer: SocketSplicer) -> None:
    async with open_path() as path, trio.open_nursery() as nursery:
        nursery.start_soon(path.move, splicer)
        for number in range(100):
            await path.writer.send_all(b"%03d" % number)
            assert await path.reader.receive_some() == b"%03d" % number
        assert path.total == 300
        nursery.cancel_scope.cancel()


async def fill(path: Path) -> None:
    """Send until nobody takes any more."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(path.writer.send_all, bytes(64 * MIB))
        before = -1
        while before != path.total:
            before = path.total
            await wait_all_tasks_blocked(0.05)
        nursery.cancel_scope.cancel()


async def test_a_sink_that_does_not_read_holds_the_source_back(splicer: SocketSplicer) -> None:
    async with open_path() as path, trio.open_nursery() as nursery:
        nursery.start_soon(path.move, splicer)
        await fill(path)
        assert 0 < path.total < 32 * MIB
        nursery.cancel_scope.cancel()


def reset(stream: trio.SocketStream) -> None:
    """Close with a reset, as the kernel does for a process that dies with bytes unread."""
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stream.socket.close()


@pytest.mark.parametrize(("who", "outcome"), [("writer", Moved.SOURCE_BROKE), ("reader", Moved.SINK_BROKE)])
async def test_a_reset_is_told_with_its_side(splicer: SocketSplicer, who: str, outcome: Moved) -> None:
    found: list[Moved] = []

    async def move(path: Path) -> None:
        found.append(await path.move(splicer))

    async with open_path() as path:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(move, path)
            await path.writer.send_all(b"something")
            await path.reader.receive_some()
            reset(path.writer if who == "writer" else path.reader)
            while not found:
                await path.writer.send_all(b"more") if who == "reader" else await wait_all_tasks_blocked()
        assert found == [outcome]


@pytest.mark.parametrize("who", ["source", "sink"])
async def test_a_socket_closed_here_is_broken_too(splicer: SocketSplicer, who: str) -> None:
    """Whoever holds a socket may close it under us; its number may be another's the next moment."""
    async with open_path() as path, trio.open_nursery() as nursery:
        found: list[Moved] = []

        async def move() -> None:
            found.append(await path.move(splicer))

        nursery.start_soon(move)
        if who == "sink":
            await fill(path)
        await wait_all_tasks_blocked(0.05)
        (path.source if who == "source" else path.sink).socket.close()
        await wait_all_tasks_blocked()
        assert found == [Moved.SOURCE_BROKE if who == "source" else Moved.SINK_BROKE]


async def test_already_closed_sockets_are_broken(splicer: SocketSplicer) -> None:
    async with open_path() as path:
        path.source.socket.close()
        assert await path.move(splicer) is Moved.SOURCE_BROKE
    async with open_path() as path:
        path.sink.socket.close()
        await path.writer.send_all(b"x")
        assert await path.move(splicer) is Moved.SINK_BROKE
    async with open_path() as path:
        path.source.socket.close()
        assert await path.move(splicer, 0) is Moved.SOURCE_BROKE


async def test_two_paths_take_turns(splicer: SocketSplicer) -> None:
    """Chunk by chunk, although either could go on for ever: nobody is served twice while another waits."""
    with open_method(splicer.method, 1024) as small:
        turns: list[str] = []

        def note(name: str, size: int) -> None:
            turns.append(name)

        async with open_path() as one, open_path() as other:
            for path in (one, other):
                await path.writer.send_all(bytes(50 * 1024))
                await path.writer.send_eof()
            async with trio.open_nursery() as nursery:
                for name, path in (("one", one), ("other", other)):
                    nursery.start_soon(small.move, path.source, path.sink, None, partial(note, name))
        assert len(turns) == 100
        assert max(len(list(group)) for _, group in itertools.groupby(turns)) <= 2


async def test_cancelled_at_random_points_nothing_is_left_and_the_count_is_what_arrived(
    splicer: SocketSplicer,
) -> None:
    rng = random.Random(4)
    for _ in range(40):
        before = descriptors()
        async with open_path() as path:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(path.move, splicer)
                nursery.start_soon(path.writer.send_all, bytes(8 * MIB))
                for _ in range(rng.randrange(30)):
                    await trio.lowlevel.checkpoint()
                nursery.cancel_scope.cancel()
            await path.sink.send_eof()
            assert len(await read_all(path.reader)) == path.total
        assert descriptors() == before


async def test_only_sockets_are_taken_and_only_while_descriptors_are_not_short(splicer: SocketSplicer) -> None:
    assert splicer.take(PipeStream(MemoryPipe(), MemoryPipe())) is None
    async with connected() as (one, _):
        assert splicer.take(one) is one
        assert one.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (one.socket.fileno() + 1, hard))
        try:
            assert splicer.take(one) is None
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        one.socket.close()
        assert splicer.take(one) is one  # whoever moves from it will see


# ── pipes ──


async def test_an_idle_path_holds_no_pipe_and_a_stuck_one_does() -> None:
    with PipePool() as pipes:
        splicer = KernelSplicer(pipes)
        async with open_path() as path, trio.open_nursery() as nursery:
            nursery.start_soon(path.move, splicer)
            await path.writer.send_all(b"x")
            assert await path.reader.receive_some() == b"x"
            await wait_all_tasks_blocked()
            assert (pipes.taken, pipes.idle) == (0, 1)
            await fill(path)
            assert pipes.taken == 1
            nursery.cancel_scope.cancel()
        assert (pipes.taken, pipes.idle) == (0, 0), "a pipe with bytes in it is closed"


async def test_when_stuck_paths_have_all_the_pipes_the_others_copy() -> None:
    with PipePool(max_pipes=1) as pipes:
        splicer = KernelSplicer(pipes)
        async with open_path() as stuck, open_path() as path, trio.open_nursery() as nursery:
            nursery.start_soon(stuck.move, splicer)
            await fill(stuck)
            assert (pipes.taken, pipes.take()) == (1, None)
            data = random.Random(1).randbytes(3 * MIB)
            assert await moved(splicer, path, data) == (Moved.ENDED, data)
            nursery.cancel_scope.cancel()


def test_pipes_are_kept_up_to_a_number_and_are_as_large_as_may_be() -> None:
    before = descriptors()
    with PipePool(max_pipes=3, max_idle=2) as pipes:
        taken = [pipe for pipe in (pipes.take(), pipes.take(), pipes.take()) if pipe]
        assert len(taken) == pipes.taken == 3
        assert pipes.take() is None
        assert descriptors() == before + 6
        for pipe in taken:
            pipes.give(pipe)
        assert (pipes.taken, pipes.idle) == (0, 2)
        late = pipes.take()
        assert late is taken[1]
    assert late is not None
    pipes.give(late)
    assert descriptors() == before


def test_without_descriptors_there_is_no_pipe() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with PipePool() as pipes:
        lowest = os.dup(0)
        os.close(lowest)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
        try:
            assert pipes.take() is None
            assert pipes.taken == 0
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_pipe_that_may_not_be_large_is_as_large_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipe_pool, "PIPE_BYTES", 2**31)  # more than pipe-max-size allows anybody
    with PipePool() as pipes:
        pipe = pipes.take()
        assert pipe is not None
        pipes.give(pipe)


# ── the choice ──


def test_this_kernel_splices() -> None:
    assert sys.platform == "linux"
    with open_splicer() as splicer:
        assert splicer.method == "splice"


@pytest.mark.parametrize("without", ["the call", "the permission", "descriptors"])
def test_where_splice_is_missing_bytes_are_copied(monkeypatch: pytest.MonkeyPatch, without: str) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise PermissionError

    def no_pipe(pool: PipePool) -> None:
        return None

    before = descriptors()
    if without == "the call":
        monkeypatch.delattr(os, "splice")
    elif without == "the permission":
        monkeypatch.setattr(os, "splice", refuse)
    else:
        monkeypatch.setattr(PipePool, "take", no_pipe)
    assert not can_splice()
    with open_splicer() as splicer:
        assert splicer.method == "copy"
    assert descriptors() == before
