"""Checks of a transport's streams: the bytes, their bounds, their end."""

import random
from typing import cast

import trio
from trio.testing import check_half_closeable_stream, check_two_way_stream, wait_all_tasks_blocked

from agentmesh.testing.expect import expect, expect_error
from agentmesh.testing.transport_setup import (
    MIB,
    TransportSetup,
    echo,
    expect_end,
    expect_no_more,
    pattern,
    read_exactly,
    receive_pattern,
    send_pattern,
)

STALL = 0.05  # real seconds without anything happening, after which a writer is held to wait
CHUNK_BYTES = 64 * 1024


async def check_echo(setup: TransportSetup) -> None:
    async with setup.serving(echo) as (dialer, address), dialer.dial(address) as stream:
        for text in (b"h", b"ello", pattern(0, 1000)):
            await stream.send_all(text)
            expect(await read_exactly(stream, len(text)) == text, "what came back is not what was sent")


async def check_trio_contract(setup: TransportSetup) -> None:
    """Trio's own suite, either end in either role."""
    async with setup.pairs() as make:
        one, other = await make()
        halves = isinstance(one, trio.abc.HalfCloseableStream)
        expect(halves == isinstance(other, trio.abc.HalfCloseableStream), "only one end can close by halves")
        if halves:

            async def make_halves() -> tuple[trio.abc.HalfCloseableStream, trio.abc.HalfCloseableStream]:
                return cast("tuple[trio.abc.HalfCloseableStream, trio.abc.HalfCloseableStream]", await make())

            await check_half_closeable_stream(make_halves, None)
        else:
            await check_two_way_stream(make, None)


async def check_transfer_both_ways(setup: TransportSetup) -> None:
    async with setup.pair() as (one, other), trio.open_nursery() as nursery:
        for seed, (sender, receiver) in enumerate(((one, other), (other, one))):
            nursery.start_soon(send_pattern, sender, setup.transfer_bytes, random.Random(seed))
            nursery.start_soon(receive_pattern, receiver, setup.transfer_bytes, random.Random(-seed))


async def check_max_bytes(setup: TransportSetup) -> None:
    async with setup.pair() as (one, other):
        for sender, receiver in ((one, other), (other, one)):
            await sender.send_all(pattern(0, 10_000))
            received = 0
            for asked in (1, 2, 7, 1000, 1, 8989):
                data = await receiver.receive_some(asked)
                expect(1 <= len(data) <= asked, f"receive_some({asked}) gave {len(data)} bytes")
                expect(data == pattern(received, len(data)), "bytes were lost between two receives")
                received += len(data)
            await receive_rest(receiver, received, 10_000)


async def receive_rest(stream: trio.abc.ReceiveStream, received: int, total: int) -> None:
    data = await read_exactly(stream, total - received)
    expect(data == pattern(received, total - received), "bytes were lost between two receives")


async def check_back_pressure(setup: TransportSetup) -> None:
    """A writer waits for a reader that does not read, and goes on when it does."""
    async with setup.pair() as (one, other):
        for writer, reader in ((one, other), (other, one)):
            await _check_stall(setup, writer, reader)


async def _check_stall(setup: TransportSetup, writer: trio.abc.SendStream, reader: trio.abc.ReceiveStream) -> None:
    total = setup.max_buffered_bytes + MIB
    sent = 0

    async def write() -> None:
        nonlocal sent
        while sent < total:
            await writer.send_all(pattern(sent, min(CHUNK_BYTES, total - sent)))
            sent += CHUNK_BYTES

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write)
        await wait_all_tasks_blocked(STALL)
        expect(sent < total, f"nobody reads, and {sent} bytes were taken: more than {setup.max_buffered_bytes}")
        await receive_pattern(reader, total, random.Random(0))


async def check_end(setup: TransportSetup) -> None:
    """What was sent before closing arrives, and then the end."""
    async with setup.pairs() as make:
        for closer in (0, 1):
            pair = await make()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_send_and_close, pair[closer], setup.transfer_bytes)
                await receive_pattern(pair[1 - closer], setup.transfer_bytes, random.Random(1))
                await expect_end(pair[1 - closer])


async def _send_and_close(stream: trio.abc.Stream, total: int) -> None:
    await send_pattern(stream, total, random.Random(0))
    await stream.aclose()


async def check_break(setup: TransportSetup) -> None:
    """A peer that is gone ends what is read and breaks what is written."""
    async with setup.pairs() as make:
        for closer in (0, 1):
            pair = await make()
            stays = pair[1 - closer]
            await trio.aclose_forcefully(pair[closer])
            await expect_no_more(stays)
            with expect_error(trio.BrokenResourceError, when="although the peer is gone"):
                while True:
                    await stays.send_all(bytes(CHUNK_BYTES))


async def check_own_close(setup: TransportSetup) -> None:
    """A closed stream says so to whoever uses it, and to whoever was waiting on it."""
    async with setup.pairs() as make:
        for closer in (0, 1):
            stream = (await make())[closer]
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_receive_until_closed, stream)
                await wait_all_tasks_blocked()
                await stream.aclose()
            with expect_error(trio.ClosedResourceError, when="on receiving after closing"):
                await stream.receive_some()
            with expect_error(trio.ClosedResourceError, when="on sending after closing"):
                await stream.send_all(b"x")
            await stream.aclose()


async def _receive_until_closed(stream: trio.abc.ReceiveStream) -> None:
    with expect_error(trio.ClosedResourceError, when="for a receive that waited while its stream was closed"):
        await stream.receive_some()


async def check_concurrent_use(setup: TransportSetup) -> None:
    """Two tasks that do the same at once are a mistake, and are told."""
    async with setup.pairs() as make:
        for end in (0, 1):
            stream = (await make())[end]
            with expect_error(trio.BusyResourceError, when="for two receives at once"):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(stream.receive_some)
                    nursery.start_soon(stream.receive_some)
            with expect_error(trio.BusyResourceError, when="for two sends at once"):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(stream.send_all, bytes(setup.max_buffered_bytes + MIB))
                    nursery.start_soon(stream.send_all, b"x")


async def check_half_close(setup: TransportSetup) -> None:
    """Each direction of a stream that closes by halves ends on its own."""
    async with setup.pairs() as make:
        for first in (0, 1):
            pair = await make()
            ends = [end for end in pair if isinstance(end, trio.abc.HalfCloseableStream)]
            if len(ends) < 2:
                return
            early, late = ends[first], ends[1 - first]
            await early.send_all(pattern(0, 1000))
            await early.send_eof()
            await receive_pattern(late, 1000, random.Random(2))
            await expect_end(late)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(send_pattern, late, setup.transfer_bytes, random.Random(3))
                await receive_pattern(early, setup.transfer_bytes, random.Random(4))
            await late.send_eof()
            await expect_end(early)


async def check_many_connections(setup: TransportSetup) -> None:
    size = max(1, setup.transfer_bytes // setup.connections)

    async def exchange() -> None:
        async with dialer.dial(address) as stream, trio.open_nursery() as nursery:
            nursery.start_soon(send_pattern, stream, size, random.Random(5))
            await receive_pattern(stream, size, random.Random(6))

    async with setup.serving(echo) as (dialer, address), trio.open_nursery() as nursery:
        for _ in range(setup.connections):
            nursery.start_soon(exchange)


CHECKS = (
    check_echo,
    check_transfer_both_ways,
    check_max_bytes,
    check_back_pressure,
    check_end,
    check_break,
    check_own_close,
    check_concurrent_use,
    check_half_close,
    check_trio_contract,
    check_many_connections,
)
