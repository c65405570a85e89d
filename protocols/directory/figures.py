"""What is counted of the directory, by names that do not change; every count is there from the start, at 0."""

import enum
import itertools
from collections.abc import Callable

import attrs

from agentmesh.protocols.directory.events import Answer, FindPeer, FindProviders, Provide, Request, Status
from agentmesh.runtime.durations import Durations


class Operation(enum.StrEnum):
    """What was asked."""

    PROVIDE = "provide"
    PLACE = "place"  # another router's provide, on behalf of a member
    FIND_PROVIDERS = "find_providers"
    FIND_PEER = "find_peer"
    UNKNOWN = "unknown"  # what could not be read


class Result(enum.StrEnum):
    """How it went."""

    OK = "ok"
    NOT_FOUND = "not_found"
    OUTDATED = "outdated"
    LIMITED = "limited"
    UNAVAILABLE = "unavailable"  # the mesh's fault: no router that would know could be asked
    MALFORMED = "malformed"  # the peer's fault, as the next ones
    FORGED = "forged"
    FAILED = "failed"  # the stream broke, or nothing came in time


class Placement(enum.StrEnum):
    """What became of a record that was to be placed on another router."""

    PLACED = "placed"
    REFUSED = "refused"
    FAILED = "failed"


Observe = Callable[[Operation, Result, float], None]  # called with each request, and the seconds that it took


_OPERATIONS: dict[type[Request], Operation] = {
    Provide: Operation.PROVIDE,
    FindProviders: Operation.FIND_PROVIDERS,
    FindPeer: Operation.FIND_PEER,
}
_RESULTS: dict[Status, Result] = {
    Status.OK: Result.OK,
    Status.OUTDATED: Result.OUTDATED,
    Status.LIMITED: Result.LIMITED,
    Status.UNAVAILABLE: Result.UNAVAILABLE,
}


def operation_of(request: Request) -> Operation:
    """The operation that a request is."""
    if isinstance(request, Provide) and request.provider is not None:
        return Operation.PLACE
    return _OPERATIONS[type(request)]


def result_of(request: Request, answer: Answer) -> Result:
    """How a request went, by its answer."""
    if answer == Answer() and not isinstance(request, Provide):
        return Result.NOT_FOUND
    return _RESULTS[answer.status]


@attrs.frozen
class DirectoryStatistics:
    """A snapshot of a router's directory. The first three are sizes, the others count up.

    Attributes:
        seconds: how long requests took, whatever came of them.
    """

    records: int
    keys: int
    providers: int
    requests: dict[tuple[Operation, Result], int]
    placements: dict[Placement, int]
    seconds: dict[Operation, Durations]


class Figures:
    """The counts, as they go.

    Args:
        observe: told of each request as well; it must not raise.
    """

    def __init__(self, observe: Observe | None = None) -> None:
        self.requests = dict.fromkeys(itertools.product(Operation, Result), 0)
        self.placements = dict.fromkeys(Placement, 0)
        self.seconds = {operation: Durations() for operation in Operation}
        self._observe = observe

    def count(self, operation: Operation, result: Result, seconds: float) -> None:
        self.requests[operation, result] += 1
        self.seconds[operation].add(seconds)
        if self._observe is not None:
            self._observe(operation, result, seconds)

    def count_placement(self, placement: Placement) -> None:
        self.placements[placement] += 1
