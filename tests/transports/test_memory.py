from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import check_half_closeable_stream

from agentmesh.abc import ByteStream, Transport
from agentmesh.errors import AddressError, DialError
from agentmesh.runtime.nursery import open_background
from agentmesh.testing.conformance import check_transport
from agentmesh.testing.transport_setup import echo
from agentmesh.transports.memory import MAX_BACKLOG, MemoryHub, MemoryTransport
from agentmesh.transports.pipes import BUFFER_BYTES, MemoryPipe, PipeStream
from agentmesh.types import Address

ANY = Address.parse("/memory/0")


def pair(max_bytes: int = BUFFER_BYTES) -> tuple[PipeStream, PipeStream]:
    there, back = MemoryPipe(max_bytes), MemoryPipe(max_bytes)
    return PipeStream(back, there), PipeStream(there, back)


async def test_conforms(autojump_clock: trio.testing.MockClock) -> None:
    @asynccontextmanager
    async def make() -> AsyncGenerator[tuple[Transport, Transport]]:
        transport = MemoryTransport(MemoryHub())
        yield transport, transport
        assert transport.hub.numbers == ()

    await check_transport(make, ANY, max_buffered_bytes=BUFFER_BYTES)
    assert trio.current_time() == pytest.approx(0, abs=1)  # streams in memory take no time


