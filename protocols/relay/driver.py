"""The relay's side: reservations, and circuits from a hop stream to a stop stream or on connections beside them."""

import math
import time
from collections.abc import Callable, Sequence

import attrs
import trio

from agentmesh.abc import Admission, Splicer, Stream, StreamLimits
from agentmesh.errors import DialError, ErrorCode, RemoteProtocolError
from agentmesh.protocols.relay.binding import Binding
from agentmesh.protocols.relay.book import BookLimits, CircuitEntry, RelayBook, Reservation, source_of
from agentmesh.protocols.relay.circuit import Circuit
from agentmesh.protocols.relay.events import (
    CircuitLimits,
    CircuitOpened,
    CircuitRequested,
    Offer,
    Refused,
    RequestBroken,
    ReservationGranted,
    ReservationRequested,
    Status,
)
from agentmesh.protocols.relay.hop import HopListener
from agentmesh.protocols.relay.meeting import Meeting
from agentmesh.protocols.relay.meetings import DataPathConfig, DataPathStatistics, Meetings
from agentmesh.protocols.relay.stop import StopDialer
from agentmesh.protocols.relay.tickets import Side
from agentmesh.protocols.relay.voucher import seal_voucher
from agentmesh.protocols.relay.wire import HOP_ID, REFUSALS, STOP_ID
from agentmesh.runtime.host import Host
from agentmesh.runtime.messages import flush, wait_event
from agentmesh.runtime.registry import Protocol
from agentmesh.types import Address, PeerId

SPARE_STREAMS = 16  # of a peer beside those of its circuits: to reserve, and to be refused


@attrs.frozen
class RelayConfig:
    """Settings of a relay.

    Attributes:
        book: how many reservations and circuits.
        circuit: what each circuit may use; 0 switches a limit off.
        connect_timeout: seconds that the far end has to accept a circuit.
        data_path: circuits on connections of their own.
    """

    book: BookLimits = BookLimits()
    circuit: CircuitLimits = CircuitLimits(max_duration=3600.0)
    connect_timeout: float = 15.0
    data_path: DataPathConfig = DataPathConfig()


@attrs.frozen
class RelayStatistics:
    """A snapshot of a relay. The first two are sizes, the others count up."""

    reservations: int
    circuits: int
    granted: int  # reservations, renewals among them
    renewed: int
    opened: int  # circuits
    closed: int  # of these
    relayed_bytes: int  # of all circuits, both directions
    refusals: dict[Status, int]  # by answer; every one of them is there from the start
    reservation_refusals: dict[Status, int]  # those of them that were not for circuits
    data_paths: DataPathStatistics


class Relay:
    """A relay. List `protocol()` where the host is built.

    Args:
        config: the bounds.
        is_admitted: who may reserve, and be either end of a circuit; when it is None, those whom the host admits.
        announced: the relay's own addresses as its members shall announce them; the host's when it is None.
        splicer: what moves bytes between the connections of circuits; when it is None all circuits go over streams.
        wall_clock: seconds since 1970; reservations end by it.
    """

    def __init__(
        self,
        config: RelayConfig | None = None,
        *,
        is_admitted: Callable[[PeerId], bool] | None = None,
        announced: Callable[[], Sequence[Address]] | None = None,
        splicer: Splicer | None = None,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.config = config or RelayConfig()
        self.book = RelayBook(self.config.book)
        self._is_admitted = is_admitted or self._is_member
        self._announced = announced or self._own_addresses
        self._wall_clock = wall_clock
        self._binding = Binding()
        self._meetings = Meetings(self.config.data_path, splicer)
        self._circuits: dict[int, Circuit] = {}
        self._granted = self._renewed = self._opened = self._closed = self._ended_bytes = 0
        self._refusals: dict[Status, int] = dict.fromkeys(REFUSALS, 0)
        self._reservation_refusals: dict[Status, int] = dict.fromkeys(REFUSALS, 0)

    def protocol(self) -> Protocol:
        """The hop protocol. It is open to anyone: who is not admitted is told so in the protocol's own words."""
        limits = StreamLimits(self.config.book.max_circuits_per_peer + SPARE_STREAMS)
        return Protocol(HOP_ID, self.serve_hop, limits=limits, run=self.run, doors=self._meetings.doors)

    def statistics(self) -> RelayStatistics:
        self.book.expire(self._wall_clock())
        return RelayStatistics(
            reservations=len(self.book.reservations),
            circuits=len(self._circuits),
            granted=self._granted,
            renewed=self._renewed,
            opened=self._opened,
            closed=self._closed,
            relayed_bytes=self._ended_bytes + sum(circuit.relayed_bytes for circuit in self._circuits.values()),
            refusals=dict(self._refusals),
            reservation_refusals=dict(self._reservation_refusals),
            data_paths=self._meetings.statistics(),
        )

    def drop(self, peer: PeerId) -> None:
        """Forget a peer's reservation and cut its circuits: it has lost its admission, or its last session."""
        self.book.release(peer)
        for entry in tuple(self.book.circuits_of(peer)):
            self._circuits[entry.number].cut(ErrorCode.GATED)

    async def run(self, host: Host) -> None:
        """Learn which host this is, and when its peers lapse and leave."""
        host.admissions.on_lapse(self.drop)
        host.on_disconnect(self.drop)
        self._binding.bind(host)

    async def serve_hop(self, stream: Stream) -> None:
        """Answer one request, and carry its circuit if it becomes one."""
        await self._binding.wait_host()
        hop = HopListener(trio.current_time())
        match await wait_event(hop, stream):
            case ReservationRequested():
                await self._reserve(hop, stream)
            case CircuitRequested(destination, data_path=data_path):
                await self._connect(hop, stream, destination, data_path)
            case RequestBroken(status):
                self._refusals[status] += 1
            case _:
                return  # it has left, or says nothing

    # ── reservations ──

    async def _reserve(self, hop: HopListener, stream: Stream) -> None:
        now = self._wall_clock()
        is_renewal, decision = self.book.holds(stream.peer, now), self._decide(stream, now)
        if isinstance(decision, Status):
            self._reservation_refusals[decision] += 1
            await self._refuse(hop, stream, decision)
            return
        self._granted += 1
        self._renewed += is_renewal
        voucher = seal_voucher(self._binding.host.identity, stream.peer, decision.expires_at)
        hop.send_reservation(
            ReservationGranted(decision.expires_at, tuple(self._announced()), self.config.circuit, voucher)
        )
        await flush(hop, stream)

    def _decide(self, stream: Stream, now: float) -> Reservation | Status:
        if not self._may_ask(stream):
            return Status.PERMISSION_DENIED
        admitted_until = self._binding.host.admissions.expires_at(stream.peer)
        until = math.inf if admitted_until is None else admitted_until
        return self.book.reserve(stream.peer, source_of(stream.session.address), until, now)

    # ── circuits ──

    async def _connect(self, hop: HopListener, near: Stream, destination: PeerId, data_path: bool) -> None:
        entry = self._enter(near, destination)
        if isinstance(entry, Status):
            await self._refuse(hop, near, entry)
            return
        circuit = self._circuits[entry.number] = Circuit(entry, self.config.circuit)
        try:
            with circuit.scope:
                await self._run_circuit(hop, near, circuit, data_path)
            if circuit.scope.cancelled_caught:
                near.reset(circuit.reset_code)
        finally:
            self._ended_bytes += circuit.relayed_bytes
            del self._circuits[entry.number]
            self.book.close_circuit(entry)

    def _enter(self, near: Stream, destination: PeerId) -> CircuitEntry | Status:
        now = self._wall_clock()
        if not self._may_ask(near):
            return Status.PERMISSION_DENIED
        if self.book.holds(destination, now) and not self._is_admitted(destination):
            return Status.PERMISSION_DENIED
        return self.book.open_circuit(near.peer, destination, now)

    async def _run_circuit(self, hop: HopListener, near: Stream, circuit: Circuit, data_path: bool) -> None:
        try:
            far = await self._binding.host.open_stream(circuit.entry.destination, STOP_ID)
        except (DialError, trio.BrokenResourceError):
            await self._refuse(hop, near, Status.CONNECTION_FAILED)
            return
        try:
            if not data_path:
                await self._join(hop, near, far, circuit, None)
                return
            with self._meetings.arranged(circuit, self._announced()) as meeting:
                await self._join(hop, near, far, circuit, meeting)
        finally:
            far.reset(circuit.reset_code)  # unless it was closed

    async def _join(
        self, hop: HopListener, near: Stream, far: Stream, circuit: Circuit, meeting: Meeting | None
    ) -> None:
        """Offer the circuit to the far end, and carry it if that takes it."""
        stop = StopDialer(self.config.connect_timeout)
        answer = await self._offer(stop, far, circuit, None if meeting is None else meeting.offer(Side.FAR))
        if not isinstance(answer, CircuitOpened):
            await self._refuse(hop, near, answer)
            return
        if meeting is not None and not answer.data_path:
            meeting.give_up()
            meeting = None
        self._opened += 1
        try:
            hop.send_circuit(circuit.limits, None if meeting is None else meeting.offer(Side.NEAR))
            await flush(hop, near)
            await (meeting or circuit).carry(near, far, hop.trailing(), stop.trailing())
            await far.aclose()
        finally:
            self._closed += 1

    async def _offer(
        self, stop: StopDialer, far: Stream, circuit: Circuit, data_path: Offer | None
    ) -> CircuitOpened | Status:
        """What the far end says: that it takes the circuit, or the answer for the near one."""
        stop.send_offer(circuit.entry.source, circuit.limits, trio.current_time(), data_path)
        try:
            event = await wait_event(stop, far)
        except (trio.BrokenResourceError, trio.TooSlowError, RemoteProtocolError):
            return Status.CONNECTION_FAILED
        match event:
            case CircuitOpened() if data_path or not event.data_path:
                return event
            case Refused(Status.RESOURCE_LIMIT_EXCEEDED):
                return Status.RESOURCE_LIMIT_EXCEEDED
            case _:
                return Status.CONNECTION_FAILED

    # ── who may ──

    def _may_ask(self, stream: Stream) -> bool:
        """A peer that came through a relay itself may not: circuits do not go over circuits."""
        address = stream.session.address
        relayed = address is not None and address.circuit is not None
        return not relayed and self._is_admitted(stream.peer)

    def _is_member(self, peer: PeerId) -> bool:
        return self._binding.host.admissions.level(peer) >= Admission.MEMBER

    def _own_addresses(self) -> Sequence[Address]:
        return [address for address in self._binding.host.addresses if address.circuit is None]

    async def _refuse(self, hop: HopListener, stream: Stream, status: Status) -> None:
        self._refusals[status] += 1
        hop.send_refusal(status)
        await flush(hop, stream)
