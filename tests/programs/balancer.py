"""A load balancer: one port before several, each connection to the next of them. Its connections can be cut."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import partial

import attrs
import trio

from agentmesh.runtime.nursery import open_background

READ_BYTES = 256 * 1024


@attrs.define(eq=False)
class Carried:
    """One connection through it.

    Attributes:
        port: where it went.
        size: bytes of both ways so far.
    """

    port: int
    size: int = 0
    scope: trio.CancelScope = attrs.Factory(trio.CancelScope)

    def cut(self) -> None:
        """End it as a network does: at once, for both sides."""
        self.scope.cancel()


@attrs.define
class Balancer:
    """Made by `open_balancer`.

    Attributes:
        ports: where new connections go, in turn.
        carried: the connections that there are.
    """

    ports: Sequence[int]
    port: int = 0
    carried: list[Carried] = attrs.Factory(list[Carried])
    turn: int = 0

    async def serve(self, client: trio.SocketStream) -> None:
        """Carry one connection. A port where nobody is gets the next client, too: this one is sent away."""
        self.turn += 1
        carried = Carried(self.ports[self.turn % len(self.ports)])
        try:
            server = await trio.open_tcp_stream("127.0.0.1", carried.port)
        except OSError:
            return
        self.carried.append(carried)
        async with server:
            with carried.scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._copy, carried, client, server)
                    nursery.start_soon(self._copy, carried, server, client)
        self.carried.remove(carried)

    async def _copy(self, carried: Carried, source: trio.SocketStream, sink: trio.SocketStream) -> None:
        try:
            while data := await source.receive_some(READ_BYTES):
                carried.size += len(data)
                await sink.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        carried.cut()


@asynccontextmanager
async def open_balancer(*ports: int) -> AsyncGenerator[Balancer]:
    async with open_background() as nursery:
        balancer = Balancer(ports)
        (listener,) = await nursery.start(partial(trio.serve_tcp, balancer.serve, 0, host="127.0.0.1"))
        balancer.port = listener.socket.getsockname()[1]
        yield balancer
