"""The test kit: what agentmesh is tested with, for those who write protocols and transports of their own.

- `check_transport` holds a transport to its interface, in one call.
- `MemoryNetwork` is a network of named hosts in one process: latency, bandwidth, resets, half-closes, garbled bytes,
  partitions and frozen hosts, the same every time for one seed, in virtual time. `SteadyTlsContext` makes that true to
  the byte for hosts that talk over it.
- `Pair` joins two state machines by a wire that cuts and delays.
- `cancel_at_every_await` and `leaves_nothing` find what a cancellation leaves behind; `hang_at` is a peer that stops.
- `run` runs an async function on a virtual clock, scheduled by a seed.
- `agentmesh.testing.strategies` has Hypothesis strategies for peer IDs, addresses and messages; import it by that name,
  since only it needs Hypothesis (`pip install agentmesh[testing]`).

Nothing here needs pytest.
"""

from agentmesh.testing.cancellation import Footprint, cancel_at_every_await, footprint, leaves_nothing, wait_footprint
from agentmesh.testing.clock import deterministic_schedule, run
from agentmesh.testing.conformance import TRANSPORT_CHECKS, check_transport, run_check
from agentmesh.testing.links import Conditions
from agentmesh.testing.network import MemoryNetwork, TraceEntry
from agentmesh.testing.pair import Pair, PairEnd, Untimed
from agentmesh.testing.security import SteadyTlsContext
from agentmesh.testing.streams import HangingHalfCloseableStream, HangingStream, hang_at
from agentmesh.testing.transport_setup import TransportSetup

__all__ = [
    "TRANSPORT_CHECKS",
    "Conditions",
    "Footprint",
    "HangingHalfCloseableStream",
    "HangingStream",
    "MemoryNetwork",
    "Pair",
    "PairEnd",
    "SteadyTlsContext",
    "TraceEntry",
    "TransportSetup",
    "Untimed",
    "cancel_at_every_await",
    "check_transport",
    "deterministic_schedule",
    "footprint",
    "hang_at",
    "leaves_nothing",
    "run",
    "run_check",
    "wait_footprint",
]
