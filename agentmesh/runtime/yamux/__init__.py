"""yamux, sans-IO: many streams over one link (libp2p specification "yamux", hashicorp's spec.md).

Bytes and commands go in; events, bytes and the next `deadline` come out. `machine.Mux` is the whole interface; `states`
is the table of one stream's life, `channels` holds the streams, `flow` their receive windows, `memory` what they take
of it, `outbox` who may write next, `ledger` what the peer wastes, `cutter` and `frames` the twelve header bytes.
"""

from agentmesh.runtime.yamux.channel import Channel
from agentmesh.runtime.yamux.events import (
    ChannelFinished,
    ChannelOpened,
    ChannelReadable,
    ChannelReset,
    Event,
    GoAwayReceived,
    PongReceived,
)
from agentmesh.runtime.yamux.ledger import Allowance, Waste
from agentmesh.runtime.yamux.limits import MuxLimits
from agentmesh.runtime.yamux.machine import BOUNDS, Mux
from agentmesh.runtime.yamux.memory import HostMemory, Memory

__all__ = [
    "BOUNDS",
    "Allowance",
    "Channel",
    "ChannelFinished",
    "ChannelOpened",
    "ChannelReadable",
    "ChannelReset",
    "Event",
    "GoAwayReceived",
    "HostMemory",
    "Memory",
    "Mux",
    "MuxLimits",
    "PongReceived",
    "Waste",
]
