"""Circuit relay v2: `/libp2p/circuit/relay/0.2.0/hop` and `/libp2p/circuit/relay/0.2.0/stop`.

    member A                      relay                        member B
                                    |<- hop: RESERVE ------------- |      B holds a reservation
                                    | -- STATUS OK, Reservation -> |      while its session and admission last
      | -- hop: CONNECT B --------> |                              |
      |                             | -- stop: CONNECT from A ---> |
      |                             | <- STATUS OK --------------- |
      | <- STATUS OK -------------- |                              |
      |<============ bytes of A and B, which mean nothing to the relay ============>|

Both ends must be admitted. Each direction of a circuit ends by itself; a reset of either stream resets the other.
Source: libp2p specification "relay/circuit-v2". `driver` is the relay's side, `client` the members'.

Where both ends have reached the relay over TCP, a circuit gets a connection of its own from each, between which the
kernel moves the bytes: `meeting` shows how. That is ours alone, and no other implementation notices. Where anything of
it fails, the two streams carry the circuit.
"""

from agentmesh.protocols.relay.book import BookLimits
from agentmesh.protocols.relay.circuit_stream import CircuitStream
from agentmesh.protocols.relay.client import (
    IncomingCircuits,
    RelayClient,
    keep_reservation,
    open_circuit,
    reserve,
)
from agentmesh.protocols.relay.driver import Relay, RelayConfig, RelayStatistics
from agentmesh.protocols.relay.events import CircuitLimits, ReservationGranted, Status
from agentmesh.protocols.relay.meetings import DataPathConfig, DataPathStatistics
from agentmesh.protocols.relay.wire import HOP_ID, STOP_ID

__all__ = [
    "HOP_ID",
    "STOP_ID",
    "BookLimits",
    "CircuitLimits",
    "CircuitStream",
    "DataPathConfig",
    "DataPathStatistics",
    "IncomingCircuits",
    "Relay",
    "RelayClient",
    "RelayConfig",
    "RelayStatistics",
    "ReservationGranted",
    "Status",
    "keep_reservation",
    "open_circuit",
    "reserve",
]
