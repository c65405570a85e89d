"""A TCP port that is listened on: what the transports over TCP have in common as listeners."""

import abc
from collections.abc import Sequence

import trio

from agentmesh.abc import Listener, StreamHandler
from agentmesh.transports.sockets import Parts, accept_forever, bound_addresses
from agentmesh.types import Address


class PortListener(Listener):
    """Gives every connection a task of its own.

    Args:
        listener: the port.
        suffix: what stands behind it in an address.
    """

    def __init__(self, listener: trio.SocketListener, suffix: Parts = ()) -> None:
        self._listener = listener
        self._suffix = suffix

    @property
    def addresses(self) -> Sequence[Address]:
        return bound_addresses(self._listener, self._suffix)

    async def serve(self, handler: StreamHandler) -> None:
        async with trio.open_nursery() as nursery:

            def start(tcp: trio.SocketStream) -> None:
                nursery.start_soon(self.serve_one, handler, tcp)

            await accept_forever(self._listener, start)

    @abc.abstractmethod
    async def serve_one(self, handler: StreamHandler, tcp: trio.SocketStream) -> None:
        """From an accepted connection, which this closes, to what the handler is given. Raises nothing."""
