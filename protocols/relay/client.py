"""The members' side: reserve a place at a relay, open circuits through it, take those that it offers."""

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from typing import NoReturn
from typing import Protocol as Interface

import attrs
import trio

from agentmesh.abc import ByteStream, DataDialer, Direction, Stream, StreamLimits
from agentmesh.errors import ErrorCode, RejectedError, RemoteProtocolError
from agentmesh.protocols.relay.binding import Binding
from agentmesh.protocols.relay.circuit_stream import CircuitStream
from agentmesh.protocols.relay.data_circuit import PAIR_ERRORS, DataCircuit
from agentmesh.protocols.relay.data_paths import DataPaths
from agentmesh.protocols.relay.events import (
    CircuitOpened,
    CircuitRequested,
    Refused,
    ReservationGranted,
    Status,
)
from agentmesh.protocols.relay.hop import HopDialer
from agentmesh.protocols.relay.stop import StopListener
from agentmesh.protocols.relay.voucher import open_voucher
from agentmesh.protocols.relay.wire import HOP_ID, STOP_ID, rejection
from agentmesh.runtime.host import Host
from agentmesh.runtime.messages import flush, wait_event
from agentmesh.runtime.registry import Protocol
from agentmesh.types import Address, PeerId

CONNECT_TIMEOUT = 30.0  # seconds for a relay to open a circuit; the far end has a part of them
RENEWAL_LEAD = 120.0  # seconds before a reservation ends at which it is renewed
MIN_RENEWAL_DELAY = 1.0  # seconds between two renewals, however short the reservations are
MAX_STOP_STREAMS = 2048  # of one relay: more than there may be circuits, so that it is `incoming` that refuses one
UNSPECIFIED = ("0.0.0.0", "::")  # what a relay listens on, but nobody can dial


class Place(AbstractContextManager["Place"], Interface):
    """Room for one incoming circuit. Leaving the block gives it back."""

    async def deliver(self, stream: ByteStream) -> None:
        """Hand the circuit over; returns when whoever took it is done with it."""
        ...


class IncomingCircuits(Interface):
    """Where circuits offered to us go (`CircuitTransport.incoming`)."""

    def __call__(self, source: PeerId, relay: PeerId) -> Place:
        """Raises RejectedError when there is no room, or nobody expects circuits from that relay."""
        ...


async def reserve(host: Host, relay: PeerId) -> ReservationGranted:
    """Ask a relay, on the standing session to it, to make us reachable; or renew what it granted.

    Returns:
        The reservation; its addresses are where others can dial us: /…/p2p/<relay>/p2p-circuit.
    Raises:
        RejectedError: it refuses; `code` is a Status.
        RemoteProtocolError: it broke the protocol, or its voucher is not one.
        DialError: no session to it.
        TooSlowError: no answer in time.
        BrokenResourceError: the stream broke.
    Cancellation: safe; whether the relay has granted the reservation is then unknown.
    """
    stream = await host.open_stream(relay, HOP_ID)
    async with stream:
        hop = HopDialer()
        hop.send_reserve(trio.current_time())
        match await wait_event(hop, stream):
            case ReservationGranted() as granted:
                if granted.voucher:
                    open_voucher(granted.voucher, relay, host.peer)
                return attrs.evolve(granted, addresses=_circuit_addresses(granted.addresses, stream))
            case Refused(status):
                raise rejection(status)
            case _:
                raise trio.TooSlowError(f"relay {relay} did not answer in time")


async def keep_reservation(
    host: Host,
    relay: PeerId,
    on_granted: Callable[[ReservationGranted], None],
    wall_clock: Callable[[], float] = time.time,
) -> NoReturn:
    """Reserve, and renew RENEWAL_LEAD seconds before the end, until cancelled or refused.

    Args:
        host: the host that is to be reachable.
        relay: a peer that it has a session to.
        on_granted: called, synchronously, with each reservation.
        wall_clock: seconds since 1970.
    Raises:
        As `reserve`: the reservation held until then, if there was one, ends at its time.
    """
    while True:
        granted = await reserve(host, relay)
        on_granted(granted)
        await trio.sleep(_renewal_delay(granted.expires_at - wall_clock()))


async def open_circuit(host: Host, relay: PeerId, peer: PeerId) -> CircuitStream:
    """Ask a relay, on the standing session to it, for a circuit to `peer`.

    Returns:
        The circuit, open in both directions; the caller's to close. Nothing proves yet who is at its other end.
    Raises:
        RejectedError: the relay refuses, or could not reach the peer; `code` is a Status.
        RemoteProtocolError: it broke the protocol.
        DialError: no session to it.
        TooSlowError: no answer within CONNECT_TIMEOUT.
        BrokenResourceError: the stream broke.
    Cancellation: safe. No circuit is left half-open; the relay is told.
    """
    stream = await host.open_stream(relay, HOP_ID)
    opened, early = await _ask(stream, peer)
    return CircuitStream(stream, early, peer, opened.limits)


async def _ask(stream: Stream, peer: PeerId, *, data_path: bool = False) -> tuple[CircuitOpened, bytes]:
    """The relay's answer, and what came behind it. Unless it gives a circuit the stream is reset."""
    hop = HopDialer(CONNECT_TIMEOUT)
    opened = False
    try:
        hop.send_connect(peer, trio.current_time(), data_path=data_path)
        match await wait_event(hop, stream):
            case CircuitOpened(offer=offer) as answer:
                if offer is not None and not data_path:
                    raise RemoteProtocolError("an offer that nobody asked for")
                opened = True
                return answer, hop.trailing()
            case Refused(status):
                raise rejection(status)
            case _:
                raise trio.TooSlowError(f"relay {stream.peer} did not answer within {CONNECT_TIMEOUT} s")
    finally:
        if not opened:
            stream.reset()


class RelayClient:
    """The members' side for a host that is still to be built: what the circuit transport and the registry need.

    client = RelayClient(tcp)
    circuits = CircuitTransport(client.connect, client.open_circuit)
    open_host(transports=[tcp, circuits], protocols=[client.protocol(circuits.incoming)], ...)

    Args:
        dialer: what gives circuits connections of their own, where the relay and the other end have them too; without
            it all circuits go over streams.
    """

    def __init__(self, dialer: DataDialer | None = None) -> None:
        self._binding = Binding()
        self._data_paths = DataPaths(dialer)
        self._nursery: trio.Nursery  # of the circuits that were opened here and are spliced

    def protocol(self, incoming: IncomingCircuits) -> Protocol:
        """The stop protocol.

        Args:
            incoming: where circuits that relays offer go.
        """
        limits = StreamLimits(MAX_STOP_STREAMS)
        return Protocol(STOP_ID, _StopServer(incoming, self._data_paths).serve, limits=limits, run=self.run)

    async def run(self, host: Host) -> None:
        async with trio.open_nursery() as self._nursery:
            self._binding.bind(host)
            if self._data_paths.enabled:
                await trio.sleep_forever()

    async def connect(self, relay: PeerId, addresses: Sequence[Address]) -> None:
        """Have a session to a relay. Raises DialError."""
        host = await self._binding.wait_host()
        await host.connect(relay, addresses)

    async def open_circuit(self, relay: PeerId, peer: PeerId) -> CircuitStream:
        """As the function of that name; on a connection of its own if that can be, and no caller notices which."""
        host = await self._binding.wait_host()
        stream = await host.open_stream(relay, HOP_ID)
        opened, early = await _ask(stream, peer, data_path=self._data_paths.may_have(stream.session))
        if opened.offer is None:
            return CircuitStream(stream, early, peer, opened.limits)
        circuit = self._data_paths.circuit(stream, early, peer, opened.limits, opened.offer)
        try:
            await self._nursery.start(self._own, circuit)
        except BaseException:
            circuit.reset()
            raise
        return circuit

    async def _own(self, circuit: DataCircuit, task_status: trio.TaskStatus[None]) -> None:
        await self._data_paths.pair(circuit)
        task_status.started()
        await circuit.hold()


@attrs.frozen
class _StopServer:
    incoming: IncomingCircuits
    data_paths: DataPaths

    async def serve(self, stream: Stream) -> None:
        """Take one circuit, and stay until it has ended."""
        stop = StopListener(trio.current_time())
        match await wait_event(stop, stream):
            case CircuitRequested() as request:
                await self._take(stop, stream, request)
            case _:
                return  # it has been told what was wrong, or has left

    async def _take(self, stop: StopListener, stream: Stream, request: CircuitRequested) -> None:
        try:
            place = self.incoming(request.peer, stream.peer)
        except RejectedError as exc:
            full = exc.code == ErrorCode.RESOURCE_LIMIT_EXCEEDED
            stop.send_refusal(Status.RESOURCE_LIMIT_EXCEEDED if full else Status.PERMISSION_DENIED)
            await flush(stop, stream)
            return
        offer = request.offer if self.data_paths.may_have(stream.session) else None
        with place:
            stop.send_circuit(data_path=offer is not None)
            await flush(stop, stream)
            if offer is None:
                await place.deliver(CircuitStream(stream, stop.trailing(), request.peer, request.limits))
                return
            circuit = self.data_paths.circuit(stream, stop.trailing(), request.peer, request.limits, offer)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._own, circuit)
                await place.deliver(circuit)
                await circuit.aclose()

    async def _own(self, circuit: DataCircuit) -> None:
        """Whoever has the circuit hears what is wrong with it."""
        with suppress(*PAIR_ERRORS):
            await self.data_paths.pair(circuit)
            await circuit.hold()


def _circuit_addresses(addresses: Sequence[Address], stream: Stream) -> tuple[Address, ...]:
    """A relay's addresses as ours; the one that we dialled where it tells none, as go-libp2p does with private ones."""
    relay, session = stream.peer, stream.session
    usable = [address for address in addresses if address.peer in (None, relay) and not _is_unspecified(address)]
    if not usable and session.address is not None and session.direction is Direction.OUTBOUND:
        usable = [session.address]
    return tuple(dict.fromkeys(address.with_peer(relay) / "p2p-circuit" for address in usable))


def _is_unspecified(address: Address) -> bool:
    return (address.value("ip4") or address.value("ip6")) in UNSPECIFIED


def _renewal_delay(left: float) -> float:
    """Seconds to wait with `left` seconds to the end."""
    return max(MIN_RENEWAL_DELAY, left - RENEWAL_LEAD if left > 2 * RENEWAL_LEAD else left / 2)
