"""The protocols that a host speaks: a frozen list of values, checked when the host is built."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import attrs

from agentmesh.abc import Admission, Stream, StreamLimits
from agentmesh.runtime.doors import Door, doors_by_byte
from agentmesh.runtime.multistream import GREETING, opening_of
from agentmesh.types import ProtocolId

if TYPE_CHECKING:
    from agentmesh.runtime.host import Host

NAME_AT = len(GREETING)  # in an opening: its length in one byte, then the name

Serve = Callable[[Stream], Awaitable[None]]
Run = Callable[["Host"], Awaitable[None]]


@attrs.frozen
class Protocol:
    """One protocol of a host.

    `serve(stream)` runs in a task of the stream's session and owns the stream: when it returns the stream is closed,
    when it raises the stream is reset, and the failure is logged with peer and protocol and counted. It is cancelled
    when the session ends. A `serve` never reaches the session or other streams.

    `run(host)` is the protocol's background work, if it has any, for as long as the host is open. If it raises, the
    host goes down with it.

    `doors` are for connections that it takes beside its streams.
    """

    id: ProtocolId
    serve: Serve
    admission: Admission = Admission.ANYONE
    limits: StreamLimits = StreamLimits()
    run: Run | None = None
    doors: tuple[Door, ...] = ()


class ProtocolRegistry:
    """Protocols by their IDs, and their doors by the bytes that lead to them.

    Raises:
        ValueError: two protocols share an ID, or two doors a byte.
    """

    def __init__(self, protocols: Sequence[Protocol]) -> None:
        self._by_id = {protocol.id: protocol for protocol in protocols}
        if len(self._by_id) != len(protocols):
            ids = [protocol.id for protocol in protocols]
            raise ValueError(f"protocol given twice: {sorted({i for i in ids if ids.count(i) > 1})}")
        self._by_opening = {opening_of(protocol.id): protocol for protocol in protocols}
        self.doors = doors_by_byte(door for protocol in protocols for door in protocol.doors)

    def get(self, protocol_id: str) -> Protocol | None:
        return self._by_id.get(ProtocolId(protocol_id))

    def opened_by(self, data: bytes) -> Protocol | None:
        """The protocol whose opening begins these first bytes of a stream; None where negotiation has more to say."""
        if len(data) <= NAME_AT:
            return None
        return self._by_opening.get(data[: NAME_AT + 1 + data[NAME_AT]])

    def __iter__(self) -> Iterator[Protocol]:
        return iter(self._by_id.values())

    @property
    def ids(self) -> tuple[ProtocolId, ...]:
        return tuple(self._by_id)
