"""The machine with bytes put in, and its answers as a strict client reads them."""

import itertools
from collections.abc import Iterable

import h11

from agentmesh.protocols.http.events import Event
from agentmesh.protocols.http.machine import ServerExchange
from agentmesh.protocols.http.wire import DEFAULT_LIMITS, HttpLimits

GET = b"GET /a?b HTTP/1.1\r\nHost: h\r\n\r\n"
POST = b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\n"
CHUNKED = b"POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
OK = [(b"content-length", b"2")]


def exchange(*received: bytes, limits: HttpLimits = DEFAULT_LIMITS) -> ServerExchange:
    machine = ServerExchange(0.0, limits)
    for data in received:
        machine.receive_data(data, 0.0)
    return machine


def events(machine: ServerExchange) -> list[Event]:
    return list(iter(machine.next_event, None))


def answer(data: bytes, method: str = "GET") -> tuple[int, dict[bytes, bytes], bytes]:
    """Status, headers and body of an answer, as a strict client reads it. Raises when it is cut short."""
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method=method, target="/", headers=[("Host", "h")]))
    client.send(h11.EndOfMessage())
    client.receive_data(data)
    client.receive_data(b"")
    status, headers, body = 0, dict[bytes, bytes](), b""
    while not isinstance(event := client.next_event(), h11.EndOfMessage):
        match event:
            case h11.Response():
                status, headers = event.status_code, dict(event.headers)
            case h11.Data():
                body += event.data
            case _:
                pass
    return status, headers, body


def cut(wire: bytes, places: Iterable[int]) -> list[bytes]:
    edges = [0, *sorted(places), len(wire)]
    return [wire[start:end] for start, end in itertools.pairwise(edges) if start < end]


def answering(sent: bytes = GET) -> ServerExchange:
    machine = exchange(sent)
    events(machine)
    return machine
