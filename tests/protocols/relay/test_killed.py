"""Processes that are killed in the middle of a spliced circuit, by a signal that nobody can handle."""

import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio

from agentmesh.abc import ByteStream
from agentmesh.errors import ErrorCode, SessionClosedError, StreamResetError
from agentmesh.protocols.relay import CircuitStream, reserve
from agentmesh.types import Address, PeerId
from tests.protocols.relay.child import member
from tests.protocols.relay.loopback import open_loopback, wait_until

ROOT = Path(__file__).resolve().parents[3]


@attrs.define
class Child:
    """A process that talks in lines."""

    process: trio.Process
    said: bytes = b""

    async def line(self) -> str:
        assert self.process.stdout is not None
        while b"\n" not in self.said:
            self.said += await self.process.stdout.receive_some() or b"it ended\n"
        line, _, self.said = self.said.partition(b"\n")
        return line.decode()


@asynccontextmanager
async def child(*arguments: object) -> AsyncGenerator[Child]:
    command = [sys.executable, "-m", "tests.protocols.relay.child", *map(str, arguments)]
    process = await trio.lowlevel.open_process(command, cwd=ROOT, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        async with process.stdout:
            yield Child(process)
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()


async def hear_the_end(stream: trio.abc.ReceiveStream) -> tuple[int, trio.BrokenResourceError]:
    """How many bytes come, and how that ends."""
    received = 0
    with pytest.raises(trio.BrokenResourceError) as broken:
        while data := await stream.receive_some():
            received += len(data)
    return received, broken.value


@pytest.mark.parametrize("method", ["splice", "copy"])
async def test_a_far_end_that_is_killed_is_a_reset_and_no_end(method: str) -> None:
    async with open_loopback(method) as mesh, mesh.member() as near, child("far", mesh.router.addresses[0]) as far:
        peer = PeerId.parse(await far.line())
        async with await mesh.clients[near.peer].open_circuit(mesh.router.peer, peer) as circuit:
            assert circuit.is_spliced
            assert await circuit.receive_some(5) == b"hello"
            far.process.kill()
            received, error = await hear_the_end(circuit)
            assert isinstance(error, StreamResetError)
            assert error.code == ErrorCode.NO_ERROR
        await mesh.settle(near)
        assert 0 < received + 5 <= mesh.relay.statistics().relayed_bytes


@pytest.mark.parametrize("method", ["splice", "copy"])
async def test_a_near_end_that_is_killed_is_a_reset_and_no_end(method: str) -> None:
    heard: list[tuple[int, trio.BrokenResourceError]] = []

    async def serve(stream: ByteStream) -> None:
        assert isinstance(stream, CircuitStream)
        heard.append(await hear_the_end(stream))

    async with open_loopback(method) as mesh, mesh.member(serve) as far:
        async with child("near", mesh.router.addresses[0], far.peer) as near:
            await near.line()
            assert await near.line() == "spliced"
        await wait_until(lambda: bool(heard))
        received, error = heard[0]
        assert isinstance(error, StreamResetError)
        assert error.code == ErrorCode.NO_ERROR
        await mesh.settle(far)
        assert 0 < received <= mesh.relay.statistics().relayed_bytes


async def test_a_relay_that_is_killed_ends_the_sessions_and_their_circuits() -> None:
    async with child("relay") as relay:
        at = Address.parse(await relay.line())
        assert at.peer is not None
        async with member(at) as (far, _), member(at) as (near, client):
            await reserve(far, at.peer)
            async with await client.open_circuit(at.peer, far.peer) as circuit:
                assert circuit.is_spliced
                assert await circuit.receive_some(5) == b"hello"
                relay.process.kill()
                _, error = await hear_the_end(circuit)
                assert isinstance(error, SessionClosedError)
            await wait_until(lambda: not far.statistics().streams.serving)
            assert [stream for session in near.connections for stream in session.streams] == []
