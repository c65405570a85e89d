"""hop, sans-IO: between a peer and a relay. The peer asks for a reservation, or for a circuit."""

from agentmesh.protocols.relay.dialer import Dialer
from agentmesh.protocols.relay.dialer import Input as DialerInput
from agentmesh.protocols.relay.events import CircuitLimits, Offer, ReservationGranted, Status
from agentmesh.protocols.relay.listener import Input as ListenerInput
from agentmesh.protocols.relay.listener import Listener
from agentmesh.protocols.relay.wire import (
    HopMessage,
    decode_hop,
    encode_hop_connect,
    encode_hop_status,
    encode_reserve,
)
from agentmesh.types import PeerId


class HopListener(Listener):
    """The relay's side."""

    def send_reservation(self, granted: ReservationGranted) -> None:
        """Answer ReservationRequested."""
        self._command(ListenerInput.GRANT, encode_hop_status(Status.OK, granted.limits, granted))

    def send_circuit(self, limits: CircuitLimits, offer: Offer | None = None) -> None:
        """Answer CircuitRequested: what follows on the stream is the circuit's, or of the offer."""
        self._command(ListenerInput.OPEN, encode_hop_status(Status.OK, limits, offer=offer))

    def _decode(self, frame: bytes) -> HopMessage:
        return decode_hop(frame)

    def _encode_status(self, status: Status) -> bytes:
        return encode_hop_status(status, CircuitLimits())


class HopDialer(Dialer):
    """The peer's side."""

    def send_reserve(self, now: float) -> None:
        """Ask to be reachable: ReservationGranted or Refused follows."""
        self._command(DialerInput.RESERVE, encode_reserve(), now)

    def send_connect(self, destination: PeerId, now: float, *, data_path: bool = False) -> None:
        """Ask for a circuit, with a connection of its own if that can be: CircuitOpened or Refused follows."""
        self._command(DialerInput.CONNECT, encode_hop_connect(destination, data_path), now)

    def _decode(self, frame: bytes) -> HopMessage:
        return decode_hop(frame)
