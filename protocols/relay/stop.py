"""stop, sans-IO: between a relay and the peer at the far end of a circuit. The relay offers the circuit."""

from agentmesh.protocols.relay.dialer import Dialer
from agentmesh.protocols.relay.dialer import Input as DialerInput
from agentmesh.protocols.relay.events import CircuitLimits, Offer, Status
from agentmesh.protocols.relay.listener import Input as ListenerInput
from agentmesh.protocols.relay.listener import Listener
from agentmesh.protocols.relay.wire import (
    StopMessage,
    decode_stop,
    encode_stop_connect,
    encode_stop_status,
)
from agentmesh.types import PeerId


class StopListener(Listener):
    """The member's side."""

    def send_circuit(self, *, data_path: bool = False) -> None:
        """Answer CircuitRequested: what follows on the stream is the circuit's, or of the offer if that is taken."""
        self._command(ListenerInput.OPEN, encode_stop_status(Status.OK, data_path))

    def _decode(self, frame: bytes) -> StopMessage:
        return decode_stop(frame)

    def _encode_status(self, status: Status) -> bytes:
        return encode_stop_status(status)


class StopDialer(Dialer):
    """The relay's side."""

    def send_offer(self, source: PeerId, limits: CircuitLimits, now: float, offer: Offer | None = None) -> None:
        """Offer a circuit from `source`, with a connection of its own or not: CircuitOpened or Refused follows."""
        self._command(DialerInput.CONNECT, encode_stop_connect(source, limits, offer), now)

    def _decode(self, frame: bytes) -> StopMessage:
        return decode_stop(frame)
