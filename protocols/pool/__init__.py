"""Pool, `/mesh/pool/1.0.0` and what belongs to it: one agent identity, many processes, many connections.

    agent (one of its connections)                     router
      | hello: who, which process, which connection --> | registers it, under an epoch
      | <-- ack: that epoch, what the router allows      | or why not, and when to ask again
      | <-> heartbeats; stats -->                        |
      | <-- open: where to (a stream of its own)         | for a client of the agent
      | result: how far it got; then raw bytes <------> | either side ends its half when it likes
      | <-> goaway, phase 1: open nothing more           | of whoever leaves
      | <-> goaway, phase 2: the last open that counts   | those behind it were never begun

A client's open comes to a router as `/mesh/pool/dial/1.0.0`, and goes on to the router of the connection that was
chosen as `/mesh/pool/relay/1.0.0`: the same messages. `/mesh/pool/close/1.0.0` is an operator's word, passed on.

Each connection is a session of its own, and its streams live and die with it. What is known of the others is the
business of the pool (`agentmesh.pool`), not of this protocol.
"""

from agentmesh.protocols.pool.close_wire import CLOSE_ID, CloseRequest
from agentmesh.protocols.pool.driver import (
    Control,
    Opening,
    answer_open,
    ask_close,
    close_protocol,
    open_control,
    open_target,
    receive_open,
)
from agentmesh.protocols.pool.entries import dial_protocol, open_protocol, pool_protocol, relay_protocol
from agentmesh.protocols.pool.machine import AgentSide, RouterSide
from agentmesh.protocols.pool.open_wire import DIAL_ID, OPEN_ID, RELAY_ID
from agentmesh.protocols.pool.values import (
    ACCEPTED,
    CAPABILITIES,
    MAX_EPOCH,
    Ack,
    Closing,
    Code,
    ConnEpoch,
    Drain,
    DrainReason,
    ErrorName,
    Hello,
    Item,
    NodeEpoch,
    Open,
    OpenResult,
    Phase,
    Problem,
    Scaling,
    Stage,
    Stats,
    serves,
)
from agentmesh.protocols.pool.wire import POOL_ID

__all__ = [
    "ACCEPTED",
    "CAPABILITIES",
    "CLOSE_ID",
    "DIAL_ID",
    "MAX_EPOCH",
    "OPEN_ID",
    "POOL_ID",
    "RELAY_ID",
    "Ack",
    "AgentSide",
    "CloseRequest",
    "Closing",
    "Code",
    "ConnEpoch",
    "Control",
    "Drain",
    "DrainReason",
    "ErrorName",
    "Hello",
    "Item",
    "NodeEpoch",
    "Open",
    "OpenResult",
    "Opening",
    "Phase",
    "Problem",
    "RouterSide",
    "Scaling",
    "Stage",
    "Stats",
    "answer_open",
    "ask_close",
    "close_protocol",
    "dial_protocol",
    "open_control",
    "open_protocol",
    "open_target",
    "pool_protocol",
    "receive_open",
    "relay_protocol",
    "serves",
]
