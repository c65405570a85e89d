"""What members do over streams, whatever the streams are of: the server's side, and the caller's measurements.

Needs Trio and nothing else, so that it runs in environments of other implementations too. Times are seconds.

On each stream the first byte says what the rest is: `ECHO`, everything comes back; or `BULK`, pieces of PIECE_BYTES, of
which each but the last begins with a 1, and at the end the server says how many bytes came.
"""

import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial

import trio

from benchmarks.commands import Answer, Command
from benchmarks.summary import percentile

PIECE_BYTES = 256 * 1024
MESSAGE = bytes(64)
ECHO, BULK = b"e", b"b"
MORE, LAST = b"\1" + bytes(PIECE_BYTES - 1), bytes(PIECE_BYTES)
COUNT_BYTES = 8
WARM_UP = 20  # round trips that do not count
CLOSE_TIMEOUT = 5.0
MAX_FAILED = 0.1  # of the circuits that are set up

Open = Callable[[], Awaitable[trio.abc.Stream]]
Fresh = Callable[[], AbstractAsyncContextManager[trio.abc.Stream]]


class StreamEndedError(Exception):
    """The other side ended a stream in the middle."""


# ── the server ──


async def serve(stream: trio.abc.Stream) -> None:
    """Do what the first byte asks for, until the caller ends the stream."""
    first = bytes(await stream.receive_some())
    if first[:1] == BULK:
        await _take_bulk(stream, first[1:])
    elif first[:1] == ECHO:
        await _echo(stream, first[1:])


async def _echo(stream: trio.abc.Stream, data: bytes | bytearray) -> None:
    if data:
        await stream.send_all(data)
    while data := await stream.receive_some():
        await stream.send_all(data)


async def _take_bulk(stream: trio.abc.Stream, data: bytes | bytearray) -> None:
    received, end = 0, None
    while end is None or received < end:
        for start in range(-received % PIECE_BYTES, len(data), PIECE_BYTES):
            if not data[start]:
                end = received + start + PIECE_BYTES
        received += len(data)
        if end is None or received < end:
            data = await stream.receive_some()
            if not data:
                raise StreamEndedError(f"the bulk ended after {received} bytes")
    await stream.send_all(received.to_bytes(COUNT_BYTES, "big"))
    while await stream.receive_some():  # the caller closes first
        pass


# ── the caller ──


async def receive_exactly(stream: trio.abc.Stream, size: int) -> bytes | bytearray:
    data: bytes | bytearray = b""
    while len(data) < size:
        more = await stream.receive_some()
        if not more:
            raise StreamEndedError(f"a stream ended after {len(data)} of {size} bytes")
        data = data + more if data else more
    return data


async def bulk(open_stream: Open, streams: int, seconds: float) -> Answer:
    """Send on some streams at once for a while; the time ends when the server has confirmed every byte."""
    opened = [await open_stream() for _ in range(streams)]
    sent: list[int] = []
    began = time.perf_counter()
    async with trio.open_nursery() as nursery:
        for stream in opened:
            nursery.start_soon(_send_bulk, stream, began + seconds, sent)
    took = time.perf_counter() - began
    await _close_all(opened)
    return {"bytes": sum(sent), "seconds": took, "bytes_per_second": sum(sent) / took}


async def _send_bulk(stream: trio.abc.Stream, until: float, all_sent: list[int]) -> None:
    await stream.send_all(BULK)
    sent = 0
    while time.perf_counter() < until:
        await stream.send_all(MORE)
        sent += PIECE_BYTES
    await stream.send_all(LAST)
    sent += PIECE_BYTES
    confirmed = int.from_bytes(await receive_exactly(stream, COUNT_BYTES), "big")
    if confirmed != sent:
        raise StreamEndedError(f"{confirmed} bytes of {sent} arrived")
    all_sent.append(sent)


async def round_trips(open_stream: Open, seconds: float) -> Answer:
    """One small message after another on one stream."""
    stream = await open_stream()
    await stream.send_all(ECHO)
    for _ in range(WARM_UP):
        await _round_trip(stream)
    times: list[float] = []
    until = time.perf_counter() + seconds
    while (began := time.perf_counter()) < until:
        await _round_trip(stream)
        times.append(time.perf_counter() - began)
    await stream.aclose()
    return _latencies(times)


async def _round_trip(stream: trio.abc.Stream, prefix: bytes = b"") -> None:
    await stream.send_all(prefix + MESSAGE)
    await receive_exactly(stream, len(MESSAGE))


async def requests(open_stream: Open, callers: int, seconds: float, standing: bool) -> Answer:
    """Small requests of many callers at once, each caller's on its standing stream or each on a new one."""
    if not standing:
        return await _many([partial(_request, open_stream)] * callers, seconds)
    opened = [await open_stream() for _ in range(callers)]
    for stream in opened:
        await _round_trip(stream, ECHO)
    answer = await _many([partial(_round_trip, stream) for stream in opened], seconds)
    await _close_all(opened)
    return answer


async def requests_held(held: list[trio.abc.Stream], seconds: float) -> Answer:
    """Small requests on each of the streams that are held, at once."""
    return await _many([partial(_round_trip, stream) for stream in held], seconds)


async def _many(callers: Sequence[Callable[[], Awaitable[None]]], seconds: float) -> Answer:
    times: list[float] = []
    began = time.perf_counter()
    async with trio.open_nursery() as nursery:
        for request in callers:
            nursery.start_soon(_repeat, request, began + seconds, times)
    took = time.perf_counter() - began
    return {**_latencies(times), "per_second": len(times) / took, "seconds": took}


async def _request(open_stream: Open) -> None:
    stream = await open_stream()
    await _round_trip(stream, ECHO)
    await stream.aclose()


async def _repeat(request: Callable[[], Awaitable[None]], until: float, times: list[float]) -> None:
    while (began := time.perf_counter()) < until:
        await request()
        times.append(time.perf_counter() - began)


async def set_ups(fresh: Fresh, count: int, seconds: float) -> Answer:
    """From the wish for a circuit to its first byte, one circuit after another; the first does not count.

    A circuit that ends before its first byte is counted, and not among the times.
    """
    times: list[float] = []
    failed = 0
    until = time.perf_counter() + seconds
    while len(times) <= count and (len(times) < 2 or time.perf_counter() < until):
        began = time.perf_counter()
        async with fresh() as stream:
            if await _first_byte(stream):
                times.append(time.perf_counter() - began)
            elif (failed := failed + 1) > MAX_FAILED * count:
                raise StreamEndedError(f"{failed} circuits ended before their first byte, {len(times)} did not")
            await stream.aclose()
    return {**_latencies(times[1:]), "failed": failed}


async def _first_byte(stream: trio.abc.Stream) -> bool:
    await stream.send_all(ECHO + b"?")
    return len(await stream.receive_some()) > 0


async def hold(open_stream: Open, held: list[trio.abc.Stream], streams: int) -> Answer:
    """Have so many more streams stand idle, each used once."""
    opened = [await open_stream() for _ in range(streams)]
    for stream in opened:
        await _round_trip(stream, ECHO)
    held += opened
    return {"streams": len(held)}


def _latencies(times: list[float]) -> Answer:
    return {"count": len(times), "p50": statistics.median(times), "p99": percentile(times, 99)}


async def _close_all(streams: list[trio.abc.Stream]) -> None:
    with trio.move_on_after(CLOSE_TIMEOUT):
        for stream in streams:
            await stream.aclose()


def caller_commands(open_stream: Open, fresh: Fresh) -> dict[str, Command]:
    """What a caller can be asked to do."""
    held: list[trio.abc.Stream] = []
    return {
        "bulk": partial(bulk, open_stream),
        "round_trips": partial(round_trips, open_stream),
        "requests": partial(requests, open_stream),
        "set_ups": partial(set_ups, fresh),
        "hold": partial(hold, open_stream, held),
        "requests_held": partial(requests_held, held),
    }
