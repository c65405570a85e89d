"""What a listener over HTTP/2 does with those who come to it: clients, load balancers, scanners."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import h2.connection
import h2.events
import pytest
import trio
import trio.testing
from h2.errors import ErrorCodes

from agentmesh.abc import ByteStream
from agentmesh.runtime.nursery import open_background
from agentmesh.testing import leaves_nothing
from agentmesh.testing.transport_setup import echo
from agentmesh.transports.floods import FLOOD_BURST
from agentmesh.transports.h2 import H2Config, H2Transport
from agentmesh.transports.h2_machine import GREETING, METHOD, PATH
from agentmesh.types import Address

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


class Client:
    """The h2 package's client on a socket; it does as it is told."""

    def __init__(self, tcp: trio.SocketStream) -> None:
        self.tcp = tcp
        self.h2 = h2.connection.H2Connection()
        self.h2.initiate_connection()
        self.events: list[h2.events.Event] = []

    async def ask(self, path: bytes = PATH, method: bytes = METHOD) -> int:
        stream_id = self.h2.get_next_available_stream_id()
        head = [(b":method", method), (b":scheme", b"http"), (b":authority", b"a"), (b":path", path)]
        self.h2.send_headers(stream_id, head)
        await self.flush()
        return stream_id

    async def flush(self) -> None:
        await self.tcp.send_all(self.h2.data_to_send())

    async def wait(self, kind: type[h2.events.Event]) -> h2.events.Event:
        """The first event of its kind that has not been waited for."""
        while True:
            for event in self.events:
                if isinstance(event, kind):
                    self.events.remove(event)
                    return event
            data = await self.tcp.receive_some()
            assert data, "the server hung up"
            self.events += [e for e in self.h2.receive_data(data) if not is_greeting(e)]

    async def wait_hung_up(self) -> None:
        with suppress(trio.BrokenResourceError):
            while await self.tcp.receive_some():
                pass


def is_greeting(event: h2.events.Event) -> bool:
    return isinstance(event, h2.events.DataReceived) and event.data == GREETING


@asynccontextmanager
async def port(config: H2Config | None = None, handled: list[ByteStream] | None = None) -> AsyncGenerator[int]:
    async def handle(stream: ByteStream, source: Address | None) -> None:
        if handled is not None:
            handled.append(stream)
        await echo(stream, source)

    where = Address.parse("/ip4/127.0.0.1/tcp/0/http")
    async with H2Transport(config=config).listen(where) as listener, open_background() as nursery:
        nursery.start_soon(listener.serve, handle)
        yield int(listener.addresses[0].value("tcp") or 0)


@asynccontextmanager
async def client(number: int) -> AsyncGenerator[Client]:
    async with await trio.open_tcp_stream("127.0.0.1", number) as tcp:
        yield Client(tcp)


async def test_streams_of_one_connection_are_streams_of_their_own() -> None:
    """As a load balancer brings them: several sessions over one connection."""
    handled: list[ByteStream] = []
    async with port(handled=handled) as number, client(number) as on:
        ids = [await on.ask() for _ in range(3)]
        for stream_id in ids:
            on.h2.send_data(stream_id, f"to {stream_id}".encode())
        await on.flush()
        echoes: dict[int | None, bytes] = {}
        while len(echoes) < 3:
            event = await on.wait(h2.events.DataReceived)
            assert isinstance(event, h2.events.DataReceived)
            echoes[event.stream_id] = event.data
        assert echoes == {stream_id: f"to {stream_id}".encode() for stream_id in ids}
        on.h2.reset_stream(ids[0])  # the others do not mind
        on.h2.send_data(ids[1], b"still there")
        await on.flush()
        event = await on.wait(h2.events.DataReceived)
        assert isinstance(event, h2.events.DataReceived)
        assert event.data == b"still there"
    assert len(handled) == 3


@pytest.mark.parametrize("max_streams", [1, 2])
async def test_streams_of_one_connection_are_bounded(max_streams: int) -> None:
    async with port(H2Config(max_streams=max_streams)) as number, client(number) as on:
        for _ in range(max_streams + 1):
            await on.ask()
        event = await on.wait(h2.events.StreamReset)
        assert isinstance(event, h2.events.StreamReset)
        assert (event.stream_id, event.error_code) == (1 + 2 * max_streams, ErrorCodes.REFUSED_STREAM)


async def test_requests_for_anything_else_are_answered_and_the_connection_goes_on() -> None:
    handled: list[ByteStream] = []
    async with port(handled=handled) as number, client(number) as on:
        for path, method, status in ((b"/", b"GET", b"404"), (PATH, b"GET", b"405"), (PATH, METHOD, b"200")):
            await on.ask(path, method)
            event = await on.wait(h2.events.ResponseReceived)
            assert isinstance(event, h2.events.ResponseReceived)
            assert (b":status", status) in event.headers
        on.h2.send_data(5, b"hello")
        await on.flush()
        await on.wait(h2.events.DataReceived)
        assert len(handled) == 1


async def test_a_ping_is_answered_while_nobody_reads() -> None:
    async with port() as number, client(number) as on:
        await on.ask()
        on.h2.ping(b"there...")
        await on.flush()
        await on.wait(h2.events.PingAckReceived)


async def test_a_flood_costs_the_connection_and_no_other() -> None:
    async with port() as number, client(number) as good, client(number) as bad:
        stream_id = await good.ask()
        await bad.ask()
        with suppress(trio.BrokenResourceError):
            for _ in range(2 * FLOOD_BURST):
                bad.h2.ping(b"there...")
            await bad.flush()
            await bad.wait(h2.events.ConnectionTerminated)
        await bad.wait_hung_up()
        good.h2.send_data(stream_id, b"hello")
        await good.flush()
        await good.wait(h2.events.DataReceived)


@pytest.mark.parametrize(
    "sent", [b"", PREFACE[:9], PREFACE + b"\0\0\0\4\0\0\0\0\0", PREFACE + b"\0\0\0\4\0\0\0\0\0\0\0"]
)
async def test_a_slow_client_is_hung_up_on(sent: bytes, patient_clock: trio.testing.MockClock) -> None:
    async with port(H2Config(handshake_timeout=7.0)) as number, client(number) as on:
        began = trio.current_time()
        await on.tcp.send_all(sent)
        await on.wait_hung_up()
        assert trio.current_time() - began == pytest.approx(7.0)


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"\x16\x03\x01" * 20])
async def test_whoever_speaks_something_else_is_hung_up_on(sent: bytes) -> None:
    async with port() as number, leaves_nothing(), client(number) as on:
        await on.tcp.send_all(sent)
        await on.wait_hung_up()


async def test_handshakes_at_once_are_bounded() -> None:
    """The one that takes longest gives way, so that silent clients keep nobody out."""
    config = H2Config(max_handshakes=1, handshake_timeout=1e6)
    async with port(config) as number, client(number) as first, client(number) as second:
        await first.wait_hung_up()
        await second.ask()
        await second.wait(h2.events.ResponseReceived)


async def test_a_connection_without_streams_is_given_up(patient_clock: trio.testing.MockClock) -> None:
    async with port(H2Config(idle_timeout=20.0)) as number, client(number) as on:
        stream_id = await on.ask()
        await on.wait(h2.events.ResponseReceived)
        await trio.sleep(60.0)  # with a stream it stays
        on.h2.end_stream(stream_id)
        await on.flush()
        await on.wait(h2.events.StreamEnded)
        began = trio.current_time()
        await on.wait(h2.events.ConnectionTerminated)
        assert trio.current_time() - began == pytest.approx(20.0)


async def test_connections_without_streams_are_bounded() -> None:
    """As those are that have not had one yet: the one that waits longest gives way. Those that have one stay."""
    async with port(H2Config(max_handshakes=1, idle_timeout=1e6)) as number, client(number) as busy:
        stream_id = await busy.ask()
        await busy.wait(h2.events.ResponseReceived)
        async with client(number) as first:
            await ask_and_end(first)
            async with client(number) as second:
                await ask_and_end(second)
                await first.wait_hung_up()
                await ask_and_end(second)
        busy.h2.send_data(stream_id, b"still there")
        await busy.flush()
        await busy.wait(h2.events.DataReceived)


async def ask_and_end(on: Client) -> None:
    on.h2.end_stream(await on.ask())
    await on.flush()
    await on.wait(h2.events.StreamEnded)
