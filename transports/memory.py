"""Connections inside one process: `/memory/<number>`.

Hosts that share a `MemoryHub` reach each other by number. Streams are bounded, so a sender feels a slow reader as it
would over a socket, and they take no time: under a virtual clock only what sleeps moves it.
"""

import errno
import itertools
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress

import trio

from agentmesh.abc import ByteStream, Listener, StreamHandler, Transport
from agentmesh.errors import AddressError, DialError
from agentmesh.transports.pipes import MemoryPipe, PipeStream
from agentmesh.transports.serving import run_handler
from agentmesh.types import Address

MAX_BACKLOG = 128  # connections that wait to be accepted; the next one is refused


class MemoryHub:
    """Who listens on which number: what a network is to sockets.

    A hub belongs to one Trio run at a time. A program that has one mesh needs none of its own: `MemoryTransport()` uses
    the hub of the process. Tests make their own, so that they cannot meet.
    """

    def __init__(self) -> None:
        self._listeners: dict[int, MemoryListener] = {}
        self._fresh = itertools.count(1)  # never the number that was just freed: whoever dials that shall find nobody

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers that are listened on."""
        return tuple(self._listeners)

    def bind(self, number: int) -> "MemoryListener":
        """Listen on `number`, or on a free one if it is 0.

        Raises:
            OSError: the number is taken.
        """
        number = number or next(fresh for fresh in self._fresh if fresh not in self._listeners)
        if number in self._listeners:
            raise OSError(errno.EADDRINUSE, f"/memory/{number} is taken")
        listener = self._listeners[number] = MemoryListener(self, number)
        return listener

    def release(self, listener: "MemoryListener") -> None:
        """Free the listener's number."""
        del self._listeners[listener.number]

    def listener(self, number: int) -> "MemoryListener | None":
        """Who listens on `number`."""
        return self._listeners.get(number)

    def connect(self, number: int) -> PipeStream:
        """A new connection to whoever listens on `number`.

        Raises:
            DialError: nobody does, or too many connections wait there already.
        """
        listener = self._listeners.get(number)
        if listener is None:
            raise DialError(f"nobody listens on /memory/{number}")
        there, back = MemoryPipe(), MemoryPipe()
        listener.offer(PipeStream(there, back))
        return PipeStream(back, there)


DEFAULT_HUB = MemoryHub()


class MemoryListener(Listener):
    """A number of a hub that is listened on."""

    def __init__(self, hub: MemoryHub, number: int) -> None:
        self.number = number
        self._hub = hub
        self._offers, self._arrivals = trio.open_memory_channel[tuple[PipeStream, Address | None]](MAX_BACKLOG)

    @property
    def addresses(self) -> Sequence[Address]:
        return (Address.parse(f"/memory/{self.number}"),)

    def offer(self, stream: PipeStream, source: Address | None = None) -> None:
        """Have one end of a connection accepted, now or when `serve` is called.

        Raises:
            DialError: too many connections wait already.
        """
        try:
            self._offers.send_nowait((stream, source))
        except trio.WouldBlock:
            raise DialError(f"/memory/{self.number} has {MAX_BACKLOG} connections waiting") from None

    async def serve(self, handler: StreamHandler) -> None:
        async with trio.open_nursery() as nursery:
            async for stream, source in self._arrivals:
                nursery.start_soon(run_handler, handler, stream, source)
                del stream, source  # else the last connection would be kept until the next one comes

    def close(self) -> None:
        """Free the number; connections that nobody accepted end."""
        self._hub.release(self)
        self._offers.close()
        with suppress(trio.EndOfChannel):
            while True:
                stream, _ = self._arrivals.receive_nowait()
                stream.close()
        self._arrivals.close()


class MemoryTransport(Transport):
    """Dial and listen on `/memory/<number>`; number 0 listens on a free one.

    Args:
        hub: whose numbers these are; the process's own if it is None.
    """

    def __init__(self, hub: MemoryHub | None = None) -> None:
        self.hub = hub or DEFAULT_HUB

    def can_dial(self, address: Address) -> bool:
        return bool(memory_number(address))

    def can_listen(self, address: Address) -> bool:
        return memory_number(address) is not None

    @asynccontextmanager
    async def dial(self, address: Address) -> AsyncGenerator[ByteStream]:
        number = memory_number(address)
        if not number:
            raise AddressError(f"not an address to dial in memory: {address}")
        await trio.lowlevel.checkpoint()
        async with self.hub.connect(number) as stream:
            yield stream

    @asynccontextmanager
    async def listen(self, address: Address) -> AsyncGenerator[Listener]:
        number = memory_number(address)
        if number is None:
            raise AddressError(f"not an address to listen on in memory: {address}")
        await trio.lowlevel.checkpoint()
        listener = self.hub.bind(number)
        try:
            yield listener
        finally:
            listener.close()


def memory_number(address: Address) -> int | None:
    """The number of `/memory/<number>[/p2p/<peer>]`, None of any other address."""
    match address.without_peer().parts:
        case (("memory", str(number)),):
            return int(number)
        case _:
            return None
