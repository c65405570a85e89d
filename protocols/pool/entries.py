"""What hosts list to speak it, each with whom it is open to and how many streams one peer may have."""

from collections.abc import Awaitable, Callable

from agentmesh.abc import Admission, Stream, StreamLimits
from agentmesh.protocols.pool.open_wire import DIAL_ID, OPEN_ID, RELAY_ID
from agentmesh.protocols.pool.wire import POOL_ID
from agentmesh.runtime.registry import Protocol

MAX_CONNECTIONS_PER_PEER = 512
MAX_OPENS_PER_PEER = 65_536  # over all its connections; what one connection may carry is the pool's to say
MAX_DIALS_PER_PEER = 4096  # streams that one client has, through one router

Serve = Callable[[Stream], Awaitable[None]]


def pool_protocol(serve: Serve, admission: Admission = Admission.MEMBER) -> Protocol:
    """The router's part: `serve` gets the control stream of each connection that an agent makes."""
    return Protocol(POOL_ID, serve, admission, StreamLimits(MAX_CONNECTIONS_PER_PEER))


def open_protocol(serve: Serve, admission: Admission = Admission.ROUTER) -> Protocol:
    """The agent's part: `serve` gets each open that a router makes."""
    return Protocol(OPEN_ID, serve, admission, StreamLimits(MAX_OPENS_PER_PEER))


def dial_protocol(serve: Serve, admission: Admission = Admission.MEMBER) -> Protocol:
    """A router's part: `serve` gets each open that a client makes."""
    return Protocol(DIAL_ID, serve, admission, StreamLimits(MAX_DIALS_PER_PEER))


def relay_protocol(serve: Serve, admission: Admission = Admission.ROUTER) -> Protocol:
    """A router's part: `serve` gets each open that another router makes."""
    return Protocol(RELAY_ID, serve, admission, StreamLimits(MAX_OPENS_PER_PEER))
