"""Standard input and output, here pipes, as a stream."""

import os
from collections.abc import Generator

import attrs
import pytest
import trio
from trio.testing import lockstep_stream_pair

from agentmesh.forward.carrying import carry
from agentmesh.forward.stdio import StdioStream
from agentmesh.pool.copying import Copied
from tests.forward.worlds import read_all, read_exactly


@attrs.define
class Pipes:
    """The other ends: what the program reads comes from `into`, what it writes goes to `out`."""

    stream: StdioStream
    into: trio.lowlevel.FdStream
    out: trio.lowlevel.FdStream
    source: int


@pytest.fixture
def pipes() -> Generator[Pipes]:
    source, into = os.pipe()
    out, sink = os.pipe()
    yield Pipes(StdioStream(source, sink), trio.lowlevel.FdStream(into), trio.lowlevel.FdStream(out), source)
    os.close(source)


async def answer(target: trio.abc.HalfCloseableStream) -> None:
    await target.send_all(b"answer" * 50_000)
    await target.send_eof()


async def test_bytes_go_both_ways_and_each_way_ends_by_itself(pipes: Pipes) -> None:
    near, target = lockstep_stream_pair()
    copied = list[Copied]()

    async def run() -> None:
        copied.append(await carry(pipes.stream, near))

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            await pipes.into.send_all(b"question")
            assert await read_exactly(target, 8) == b"question"
            await pipes.into.aclose()
            assert await target.receive_some() == b""
            nursery.start_soon(answer, target)
            assert await read_all(pipes.out) == b"answer" * 50_000
        assert copied == [Copied(8, 300_000, True)]
        with pytest.raises(trio.ClosedResourceError):
            await pipes.stream.receive_some()
        await pipes.stream.aclose()
        await pipes.out.aclose()


async def test_output_that_nobody_takes_is_broken(pipes: Pipes) -> None:
    await pipes.out.aclose()
    with pytest.raises(trio.BrokenResourceError, match="standard output: Broken pipe"):
        await pipes.stream.send_all(b"hello")
    await pipes.stream.aclose()
    await pipes.into.aclose()


async def test_a_tunnel_that_breaks_ends_the_output(pipes: Pipes) -> None:
    near, target = lockstep_stream_pair()
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(carry, pipes.stream, near)
            await trio.aclose_forcefully(target)
            await pipes.into.send_all(b"to nobody")
            assert await pipes.out.receive_some() == b""
    await pipes.into.aclose()
    await pipes.out.aclose()


async def test_a_read_that_is_cancelled_does_not_wait(pipes: Pipes) -> None:
    with trio.move_on_after(0.01) as scope:
        await pipes.stream.receive_some()
    assert scope.cancelled_caught
    await pipes.into.aclose()
    await pipes.stream.aclose()
    with pytest.raises(trio.ClosedResourceError):
        await pipes.stream.send_all(b"late")
    await pipes.out.aclose()
