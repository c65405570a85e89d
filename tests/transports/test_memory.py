from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import check_half_closeable_stream, wait_all_tasks_blocked

from agentmesh.abc import Transport
from agentmesh.errors import AddressError, DialError
from agentmesh.runtime.nursery import open_background
from agentmesh.testing import check_transport
from agentmesh.testing.transport_setup import echo
from agentmesh.transports.memory import DEFAULT_HUB, MAX_BACKLOG, MemoryHub, MemoryTransport
from agentmesh.transports.pipes import BUFFER_BYTES, READ_BYTES, MemoryPipe, PipeStream
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


async def test_streams_keep_trios_contract_when_full() -> None:
    async def maker() -> tuple[PipeStream, PipeStream]:
        await trio.lowlevel.checkpoint()
        return pair()

    async def clogged_maker() -> tuple[PipeStream, PipeStream]:
        one, other = pair(1024)
        for stream in (one, other):
            await stream.send_all(bytes(1024))
        return one, other

    await check_half_closeable_stream(maker, clogged_maker)


async def test_small_pieces_are_joined_for_a_reader() -> None:
    one, other = pair()
    for piece in (b"ab", b"cd", b"ef"):
        await one.send_all(piece)
    assert await other.receive_some(3) == b"ab"  # what would have to be cut is left for the next time
    assert await other.receive_some() == b"cdef"


async def test_a_whole_piece_is_passed_on_without_a_copy() -> None:
    one, other = pair()
    piece = bytes(READ_BYTES)
    await one.send_all(piece)
    assert await other.receive_some() is piece


async def test_a_mutable_buffer_may_be_reused_at_once() -> None:
    one, other = pair()
    buffer = bytearray(b"first")
    await one.send_all(buffer)
    buffer[:] = b"again"
    assert await other.receive_some() == b"first"


async def test_taking_time_is_not_in_it(autojump_clock: trio.testing.MockClock) -> None:
    one, other = pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.send_all, bytes(50 * BUFFER_BYTES))
        left = 50 * BUFFER_BYTES
        while left:
            left -= len(await other.receive_some())
    assert trio.current_time() == 0


async def test_a_cancelled_receive_loses_nothing(autojump_clock: trio.testing.MockClock) -> None:
    one, other = pair()
    with trio.move_on_after(1):
        await other.receive_some()
    await one.send_all(b"kept")
    with trio.CancelScope() as scope:
        scope.cancel()
        await other.receive_some()
    assert await other.receive_some() == b"kept"


async def test_a_closed_stream_has_no_end_to_send() -> None:
    one, _ = pair()
    await one.aclose()
    with pytest.raises(trio.ClosedResourceError):
        await one.send_eof()


async def test_a_cut_breaks_both_ends() -> None:
    one, other = pair()
    await one.send_all(b"lost")
    other.incoming.cut()
    with pytest.raises(trio.BrokenResourceError):
        await other.receive_some()
    with pytest.raises(trio.BrokenResourceError):
        await one.send_all(b"x")
    await one.aclose()
    with pytest.raises(trio.ClosedResourceError):
        await one.send_all(b"x")


async def test_a_hub_of_ones_own_is_alone() -> None:
    async with MemoryTransport(MemoryHub()).listen(Address.parse("/memory/5")):
        with pytest.raises(DialError, match="nobody listens on /memory/5"):
            async with MemoryTransport(MemoryHub()).dial(Address.parse("/memory/5")):
                pass


async def test_the_process_has_a_hub() -> None:
    async with MemoryTransport().listen(ANY) as listener, open_background() as nursery:
        assert MemoryTransport().hub is DEFAULT_HUB
        nursery.start_soon(listener.serve, echo)
        async with MemoryTransport().dial(listener.addresses[0]) as stream:
            await stream.send_all(b"here")
            assert await stream.receive_some() == b"here"
    assert DEFAULT_HUB.numbers == ()


async def test_free_numbers_are_not_given_twice() -> None:
    transport = MemoryTransport(MemoryHub())
    async with transport.listen(Address.parse("/memory/2")):
        given: list[str] = []
        for _ in range(3):
            async with transport.listen(ANY) as listener:
                given += map(str, listener.addresses)
    assert given == ["/memory/1", "/memory/3", "/memory/4"]


async def test_the_backlog_is_bounded_and_ends_with_its_listener(autojump_clock: trio.testing.MockClock) -> None:
    transport = MemoryTransport(MemoryHub())
    ended = 0

    async def wait_end(address: Address) -> None:
        nonlocal ended
        async with transport.dial(address) as stream:
            assert await stream.receive_some() == b""
            ended += 1

    async with trio.open_nursery() as nursery, transport.listen(ANY) as listener:
        for _ in range(MAX_BACKLOG):
            nursery.start_soon(wait_end, listener.addresses[0])
        await wait_all_tasks_blocked()
        with pytest.raises(DialError, match=f"{MAX_BACKLOG} connections waiting"):
            async with transport.dial(listener.addresses[0]):
                pass
    assert ended == MAX_BACKLOG


async def test_serving_a_closed_listener_says_so() -> None:
    async with MemoryTransport(MemoryHub()).listen(ANY) as listener:
        pass
    with pytest.raises(ExceptionGroup) as caught:
        await listener.serve(echo)
    assert caught.group_contains(trio.ClosedResourceError)


@pytest.mark.parametrize("text", ["/memory/0", "/ip4/127.0.0.1/tcp/1", "/memory/1/p2p-circuit"])
async def test_what_cannot_be_dialled(text: str) -> None:
    address = Address.parse(text)
    assert not MemoryTransport().can_dial(address)
    with pytest.raises(AddressError):
        async with MemoryTransport().dial(address):
            pass


def test_a_peer_behind_the_number_is_not_our_business() -> None:
    address = Address.parse("/memory/7/p2p/12D3KooWGRUtNTMsDx8rWzGpxCqCZYk2mMnHzAFdPzDcyiGLbVRo")
    assert MemoryTransport().can_dial(address)
    assert MemoryTransport().can_listen(address)
