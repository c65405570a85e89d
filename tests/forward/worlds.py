"""Clients and targets with a forwarder between them: over streams in memory, in virtual time, or over TCP."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import attrs
import trio
from trio.testing import lockstep_stream_pair

from agentmesh.errors import DialError
from agentmesh.forward import BindAddress, Forward, ForwardConfig, Forwarder, Forwards, serve_forwards
from agentmesh.membership import Enrollment
from agentmesh.node import NodeConfig, TunnelError, TunnelTarget
from agentmesh.protocols.pool import Code, OpenResult, Stage

TARGET = TunnelTarget("db.internal", 5432)
NODE = NodeConfig(enrollment=Enrollment(control_plane="http://127.0.0.1:8080"))
ANY_PORT = BindAddress("127.0.0.1", 0)

HalfCloseable = trio.abc.HalfCloseableStream
Serve = Callable[[trio.SocketStream], Awaitable[None]]


def refusal(code: Code, stage: Stage = Stage.CONNECT, retry_after_ms: int = 0) -> TunnelError:
    return TunnelError("devbox", TARGET, OpenResult(stage, code, retry_after_ms=retry_after_ms), "trace-1")


@attrs.define
class Tunnels:
    """Opens tunnels of two ends each that hold no bytes of their own; the far ends are the test's."""

    asked: list[TunnelTarget] = attrs.Factory(list[TunnelTarget])
    far: list[HalfCloseable] = attrs.Factory(list[HalfCloseable])
    error: DialError | None = None
    opening: trio.Event | None = None  # waited for, if there is one

    async def open(self, target: TunnelTarget) -> HalfCloseable:
        self.asked.append(target)
        await trio.lowlevel.checkpoint()
        if self.opening is not None:
            await self.opening.wait()
        if self.error is not None:
            raise self.error
        near, far = lockstep_stream_pair()
        self.far.append(far)
        return near


@attrs.define
class ChannelListener(trio.abc.Listener[HalfCloseable]):
    """Accepts what `connect` makes."""

    _incoming: trio.MemoryReceiveChannel[HalfCloseable]
    _dialer: trio.MemorySendChannel[HalfCloseable]

    @classmethod
    def make(cls) -> "ChannelListener":
        dialer, incoming = trio.open_memory_channel[HalfCloseable](16)
        return cls(incoming, dialer)

    async def accept(self) -> HalfCloseable:
        return await self._incoming.receive()

    async def aclose(self) -> None:
        await self._incoming.aclose()

    async def connect(self) -> HalfCloseable:
        """Raises BrokenResourceError when nobody accepts any more."""
        client, accepted = lockstep_stream_pair()
        await self._dialer.send(accepted)
        return client


async def read_all(stream: trio.abc.ReceiveStream) -> bytes:
    data = bytearray()
    while piece := await stream.receive_some():
        data += piece
    return bytes(data)


async def read_exactly(stream: trio.abc.ReceiveStream, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = await stream.receive_some(size - len(data))
        assert piece, f"ended behind {bytes(data)!r}"
        data += piece
    return bytes(data)


@attrs.frozen
class Loopback:
    """A forwarder that listens on this machine, and a target that it leads to whatever is asked for."""

    forwards: Forwards
    asked: list[TunnelTarget]

    @property
    def forwarder(self) -> Forwarder:
        return self.forwards.forwarder

    async def connect(self, number: int = 0) -> trio.SocketStream:
        listen = self.forwards.listening[number].listen
        return await trio.open_tcp_stream(listen.host, listen.port)


@asynccontextmanager
async def open_loopback(serve: Serve, **settings: Any) -> AsyncGenerator[Loopback]:
    """A plain port unless the settings say otherwise; the target is served by `serve`."""
    asked = list[TunnelTarget]()
    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        port: int = listener.socket.getsockname()[1]

        async def open_tunnel(target: TunnelTarget) -> HalfCloseable:
            asked.append(target)
            return await trio.open_tcp_stream("127.0.0.1", port)

        chosen = settings or {"forwards": (Forward(ANY_PORT, TARGET),)}
        config = ForwardConfig(node=NODE, agent="devbox", **chosen)
        async with serve_forwards(open_tunnel, config) as forwards:
            yield Loopback(forwards, asked)
        nursery.cancel_scope.cancel()
