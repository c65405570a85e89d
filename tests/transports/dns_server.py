"""A DNS server of the loopback interface, which knows texts."""

import struct
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import attrs
import trio

from agentmesh.runtime.nursery import open_background
from agentmesh.transports.dns import INTERNET, NO_SUCH_NAME, TXT

HEADER_BYTES = 12


def name_in(question: bytes) -> str:
    labels, at = list[str](), HEADER_BYTES
    while size := question[at]:
        labels.append(question[at + 1 : at + 1 + size].decode())
        at += 1 + size
    return ".".join(labels)


def record(text: str, kind: int = TXT) -> bytes:
    """A record whose name is a pointer to that of the question."""
    data = text.encode()
    pieces = b"".join(bytes([len(data[at : at + 255])]) + data[at : at + 255] for at in range(0, len(data), 255))
    return struct.pack(">HHHIH", 0xC00C, kind, INTERNET, 60, len(pieces)) + pieces


def answer(question: bytes, texts: Sequence[str], *, flags: int = 0x8180) -> bytes:
    number = question[:2]
    return (
        number + struct.pack(">5H", flags, 1, len(texts), 0, 0) + question[HEADER_BYTES:] + b"".join(map(record, texts))
    )


@attrs.define
class DnsServer:
    """Answers over UDP and TCP.

    Attributes:
        texts: by name.
        asked: every name that it was asked for, in order.
        truncates: over UDP it says only that there is more.
        forges: before each answer comes one to another question.
        code: what goes wrong with all of them.
    """

    host: str
    port: int
    texts: dict[str, list[str]] = attrs.Factory(dict[str, list[str]])
    asked: list[str] = attrs.Factory(list[str])
    truncates: bool = False
    forges: bool = False
    code: int = 0

    @property
    def server(self) -> tuple[str, int]:
        return self.host, self.port

    def answer(self, question: bytes) -> bytes:
        name = name_in(question)
        self.asked.append(name)
        code = self.code or (0 if name in self.texts else NO_SUCH_NAME)
        return answer(question, self.texts.get(name, ()), flags=0x8180 | code)

    async def serve_datagrams(self, socket: trio.socket.SocketType) -> None:
        while True:
            question, sender = await socket.recvfrom(4096)
            if self.forges:
                await socket.sendto(answer(bytes([question[0] ^ 1]) + question[1:], ["dnsaddr=/memory/666"]), sender)
            short = answer(question, (), flags=0x8380)
            await socket.sendto(short if self.truncates else self.answer(question), sender)

    async def serve_stream(self, stream: trio.SocketStream) -> None:
        async with stream:
            question = bytes(await stream.receive_some())[2:]
            said = self.answer(question)
            await stream.send_all(len(said).to_bytes(2, "big") + said)


@asynccontextmanager
async def open_dns_server() -> AsyncGenerator[DnsServer]:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    host, port = listener.socket.getsockname()[:2]
    with trio.socket.socket(trio.socket.AF_INET, trio.socket.SOCK_DGRAM) as socket:
        await socket.bind((host, port))
        server = DnsServer(host, port)
        async with open_background() as nursery:
            nursery.start_soon(server.serve_datagrams, socket)
            nursery.start_soon(trio.serve_listeners, server.serve_stream, [listener])
            yield server
