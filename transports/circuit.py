"""Circuits as a transport: `<router address>/p2p/<router>/p2p-circuit[/p2p/<peer>]`.

It knows nothing of how a circuit is asked for or offered: two callables come from outside, and offered circuits are
brought to `incoming`. What runs over it (TLS, a mux, sessions) cannot tell a circuit from a socket.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Self

import attrs
import trio

from agentmesh.abc import ByteStream, Listener, StreamHandler, Transport
from agentmesh.errors import AddressError, DialError, ErrorCode, MeshError, RejectedError
from agentmesh.transports.serving import run_handler
from agentmesh.types import Address, PeerId

MAX_PENDING = 64  # incoming circuits that wait for their handler to begin
MAX_INCOMING = 1024  # incoming circuits at once, those waiting among them

ConnectRouter = Callable[[PeerId, Sequence[Address]], Awaitable[None]]
OpenCircuit = Callable[[PeerId, PeerId], Awaitable[ByteStream]]

DIAL_ERRORS = (MeshError, trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError)


@attrs.frozen
class Route:
    """What a circuit address says."""

    relay: PeerId
    relay_address: Address  # without the relay's /p2p part; no parts at all where only its ID is known
    peer: PeerId | None  # whom to reach through it; None to be reachable

    @classmethod
    def of(cls, address: Address) -> "Route | None":
        """None when that is no circuit address, or one through a relay without an ID, or over two relays."""
        if address.circuit is None or address.names.count("p2p-circuit") != 1:
            return None
        before, peer = address.circuit
        behind = address.parts[len(before.parts) + 1 :]
        if before.peer is None or (behind and (peer is None or len(behind) != 1)):
            return None
        return cls(before.peer, before.without_peer(), peer)


class CircuitTransport(Transport):
    """Dials and listens through routers.

    Args:
        connect: `await connect(router, addresses)` has a session to the router when it returns, admitted if it must be.
        open_circuit: `await open_circuit(router, peer)` gives a circuit's bytes.
        max_pending: incoming circuits that may wait for their handler to begin.
        max_incoming: incoming circuits at once.
    Whatever MeshError the two callables raise, BrokenResourceError and TooSlowError become the cause of a DialError.
    """

    def __init__(
        self,
        connect: ConnectRouter,
        open_circuit: OpenCircuit,
        *,
        max_pending: int = MAX_PENDING,
        max_incoming: int = MAX_INCOMING,
    ) -> None:
        self._connect = connect
        self._open_circuit = open_circuit
        self._max_pending = max_pending
        self._max_incoming = max_incoming
        self._listeners: dict[PeerId, list[CircuitListener]] = {}
        self._places: set[CircuitPlace] = set()

    def can_dial(self, address: Address) -> bool:
        route = Route.of(address)
        return route is not None and route.peer is not None

    def can_listen(self, address: Address) -> bool:
        route = Route.of(address)
        return route is not None and route.peer is None

    @asynccontextmanager
    async def dial(self, address: Address) -> AsyncGenerator[ByteStream]:
        route = Route.of(address)
        if route is None or route.peer is None:
            raise AddressError(f"not a circuit to a peer: {address}")
        try:
            await self._connect(route.relay, [route.relay_address] if route.relay_address.parts else [])
            stream = await self._open_circuit(route.relay, route.peer)
        except DIAL_ERRORS as exc:
            raise DialError(f"no circuit to {route.peer} through {route.relay}: {exc}") from exc
        async with stream:
            yield stream

    @asynccontextmanager
    async def listen(self, address: Address) -> AsyncGenerator[Listener]:
        """Take the circuits that a router offers. The reservation that makes it offer them is made elsewhere."""
        route = Route.of(address)
        if route is None or route.peer is not None:
            raise AddressError(f"not a circuit to listen on: {address}")
        await trio.lowlevel.checkpoint()
        listener = CircuitListener(address, self._max_pending)
        listeners = self._listeners.setdefault(route.relay, [])
        listeners.append(listener)
        try:
            yield listener
        finally:
            listeners.remove(listener)
            if not listeners:
                del self._listeners[route.relay]
            listener.close()

    # ── incoming ──

    def incoming(self, source: PeerId, relay: PeerId) -> "CircuitPlace":
        """Take a place for a circuit that `relay` offers from `source`, before it is accepted.

            with transport.incoming(source, relay) as place:
                ...  # accept it
                await place.deliver(stream)

        Raises:
            RejectedError: max_pending or max_incoming are there (RESOURCE_LIMIT_EXCEEDED), or nobody listens on
                circuits through `relay` (GATED).
        """
        if relay not in self._listeners:
            raise RejectedError(f"nobody listens on circuits through {relay}", ErrorCode.GATED)
        if self.pending >= self._max_pending or len(self._places) >= self._max_incoming:
            raise RejectedError("max_pending or max_incoming circuits are there", ErrorCode.RESOURCE_LIMIT_EXCEEDED)
        place = CircuitPlace(self._listeners[relay][-1], source, self._places)
        self._places.add(place)
        return place

    @property
    def pending(self) -> int:
        """Incoming circuits whose handler has not begun."""
        return sum(not place.begun for place in self._places)

    @property
    def incoming_count(self) -> int:
        """Incoming circuits at this moment."""
        return len(self._places)


class CircuitPlace:
    """Room for one incoming circuit. Leaving the block gives it back."""

    def __init__(self, listener: "CircuitListener", source: PeerId, places: "set[CircuitPlace]") -> None:
        self.source = source
        self.begun = False
        self._listener = listener
        self._places = places
        self._ended = trio.Event()
        self._stream: ByteStream

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._places.discard(self)

    async def deliver(self, stream: ByteStream) -> None:
        """Hand the circuit to the listener; returns when its handler has finished, or the listener closed.

        The stream is the handler's, which runs in the listener's task and closes it. Cancellation: the handler goes on;
        whoever cancels this is about to break the stream under it.
        """
        self._stream = stream
        self._listener.offer(self)
        await self._ended.wait()

    async def run(self, handler: StreamHandler) -> None:
        """For the listener: the handler's life."""
        self.begun = True
        try:
            await run_handler(handler, self._stream, self._listener.address_of(self.source))
        finally:
            self._ended.set()

    def drop(self) -> None:
        """For the listener: it closes, and nobody will ever handle this one."""
        self._ended.set()


class CircuitListener(Listener):
    """Circuits through one router. They wait here until `serve` runs."""

    def __init__(self, address: Address, max_pending: int) -> None:
        self._address = address
        self._offers, self._arrivals = trio.open_memory_channel[CircuitPlace](max_pending)

    @property
    def addresses(self) -> Sequence[Address]:
        return (self._address,)

    def address_of(self, source: PeerId) -> Address:
        """Where a circuit from `source` comes from."""
        return Address((*self._address.parts, ("p2p", str(source))))

    def offer(self, place: CircuitPlace) -> None:
        try:
            self._offers.send_nowait(place)  # there is room: no more than max_pending places are pending
        except trio.ClosedResourceError:
            place.drop()

    async def serve(self, handler: StreamHandler) -> None:
        async with trio.open_nursery() as nursery:
            async for place in self._arrivals:
                nursery.start_soon(place.run, handler)
                del place  # else the last circuit would be kept until the next one comes

    def close(self) -> None:
        """Nobody listens any more: the circuits that still wait end."""
        self._offers.close()
        with suppress(trio.EndOfChannel):
            while True:
                self._arrivals.receive_nowait().drop()
        self._arrivals.close()
