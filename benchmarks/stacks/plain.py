"""Members over plain TCP, or TLS 1.3 over TCP, direct or through a relay of bytes: a worker.

Each stream is a connection. TLS is `trio.SSLStream`, as a Trio program has it.
"""

import ssl
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import trio

from benchmarks.commands import Answer, Serve, run_worker
from benchmarks.crowd import attach_many
from benchmarks.traffic import ECHO, caller_commands, receive_exactly, serve

HOST = "127.0.0.1"
CERTIFIED = "server"  # the name in the certificate
READ_BYTES = 256 * 1024  # as much as a stream of the mesh gives at once
BACKLOG = 4096


class Connection(trio.abc.Stream):
    """TCP that reads in pieces as large as a mesh stream's, so that the comparison is of paths."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        return await self._stream.receive_some(max_bytes or READ_BYTES)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        await self._stream.aclose()


def _over_tls(stream: trio.abc.Stream, context: ssl.SSLContext, **options: Any) -> trio.abc.Stream:
    return trio.SSLStream(stream, context, https_compatible=True, **options)


async def run_server(settings: Answer, ready: Serve) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    if settings["tls"]:
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as chain:
            chain.write(settings["certificate"])
            chain.flush()
            context.load_cert_chain(chain.name)

    async def handle(stream: trio.SocketStream) -> None:
        secured = _over_tls(stream, context, server_side=True) if settings["tls"] else Connection(stream)
        with suppress(trio.BrokenResourceError):  # callers leave as they like
            async with secured:
                await serve(secured)

    async with trio.open_nursery() as nursery:
        listeners: list[trio.SocketListener] = await nursery.start(
            partial(trio.serve_tcp, handle, 0, host=HOST, backlog=BACKLOG)
        )
        await ready({"port": listeners[0].socket.getsockname()[1]})


class Dialer:
    """Opens connections to the server, through the relay if there is one."""

    def __init__(self, settings: Answer) -> None:
        self._port: int = settings["R" if "R" in settings else "B"]["port"]
        self._context = _client_context(settings["certificate"]) if settings["tls"] else None

    async def open(self) -> trio.abc.Stream:
        stream = await trio.open_tcp_stream(HOST, self._port)
        if self._context is None:
            return Connection(stream)
        return _over_tls(stream, self._context, server_hostname=CERTIFIED)

    @asynccontextmanager
    async def fresh(self) -> AsyncGenerator[trio.abc.Stream]:
        async with await self.open() as stream:
            yield stream


def _client_context(certificate: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(cadata=certificate.partition("-----BEGIN PRIVATE KEY-----")[0])
    return context


async def run_caller(settings: Answer, ready: Serve) -> None:
    dialer = Dialer(settings)
    await ready({}, caller_commands(dialer.open, dialer.fresh))


async def run_crowd(settings: Answer, ready: Serve) -> None:
    """Members here are connections that stay: the relay knows no members."""
    dialer, held = Dialer(settings), list[trio.abc.Stream]()

    async def attach() -> None:
        stream = await dialer.open()
        held.append(stream)
        await stream.send_all(ECHO + b"?")  # the server has it when this comes back
        await receive_exactly(stream, 1)

    await ready({}, {"attach": partial(attach_many, attach)})


if __name__ == "__main__":
    run_worker({"B": run_server, "A": run_caller, "M": run_crowd})
