"""What the machines of the two proxy protocols have in common: a request for a target comes in, and an answer goes out.

Call order for a driver: after `receive_data`, `send_accepted` or `send_refused` send `data_to_send()`; take events with
`next_event()`. `receive_data(b"")` says that the client ended its side. Once accepted, `received` is the beginning of
what the client has for the target.
"""

import abc
from collections import deque

import attrs

from agentmesh.node import TunnelTarget
from agentmesh.protocols.pool import OpenResult


@attrs.frozen
class TargetRequested:
    """The client wants to get there, and may. It waits for `send_accepted` or `send_refused`."""

    target: TunnelTarget


@attrs.frozen
class RequestRefused:
    """The client's request is none, or none that is served here. The machine is finished."""

    reason: str


Event = TargetRequested | RequestRefused


class Front(abc.ABC):
    """The machine of one connection."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque()
        self._out = bytearray()

    @abc.abstractmethod
    def receive_data(self, data: bytes) -> None:
        """Take what came from the client, b"" for its end."""

    @abc.abstractmethod
    def send_accepted(self) -> None:
        """Tell the client that it is connected. Raises LocalProtocolError unless it waits for that."""

    @abc.abstractmethod
    def send_refused(self, result: OpenResult) -> None:
        """Tell it why it is not. Raises LocalProtocolError unless it waits for that."""

    @property
    @abc.abstractmethod
    def received(self) -> bytes:
        """What came behind the request; none of it before `send_accepted`."""

    def next_event(self) -> Event | None:
        return self._events.popleft() if self._events else None

    def data_to_send(self) -> bytes:
        out, self._out = bytes(self._out), bytearray()
        return out
