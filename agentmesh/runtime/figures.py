"""How sessions and the handshakes before them stand and end, in names and numbers."""

import enum

import attrs
import trio

from agentmesh.errors import (
    REFUSALS,
    CertificateError,
    ErrorCode,
    LimitExceededError,
    RejectedError,
    RemoteProtocolError,
    StreamResetError,
)
from agentmesh.runtime.yamux import BOUNDS
from agentmesh.types import PeerId, ProtocolId

VIOLATION = "protocol_violation"
HELD = "max_held_bytes"
ABUSES: tuple[str, ...] = (*BOUNDS, HELD, VIOLATION)
HANDSHAKE_FAILURES: tuple[str, ...] = ("timeout", "left", "too_long", "certificate", VIOLATION, "refused")


class State(enum.Enum):
    """Of a session."""

    OPEN = "open"
    DRAINING = "draining"  # no new streams, by our wish or the peer's
    CLOSED = "closed"


@attrs.frozen
class SessionStatistics:
    """A snapshot of a session. `rtt` is seconds, None until the first pong."""

    state: str
    streams: int
    rtt: float | None
    bytes_received: int
    bytes_sent: int


def abuse_of(failure: RemoteProtocolError) -> str:
    """Which of ABUSES ended a session."""
    limit = failure.limit if isinstance(failure, LimitExceededError) else ""
    return limit if limit in ABUSES else VIOLATION


def failure_of(exc: Exception) -> str:
    """Which of HANDSHAKE_FAILURES ended a handshake."""
    match exc:
        case trio.TooSlowError():
            return "timeout"
        case LimitExceededError():
            return "too_long"
        case CertificateError():
            return "certificate"
        case RemoteProtocolError():
            return VIOLATION
        case RejectedError():
            return "refused"
        case _:
            return "left"


def reset_error(peer: PeerId, protocol: ProtocolId, code: int, *, answered: bool, finished: bool) -> StreamResetError:
    """What a stream that `peer` reset with `code` raises: a refusal only where no answer had come."""
    name = ErrorCode(code).name if code in ErrorCode.__members__.values() else hex(code)
    if code in REFUSALS and not answered:
        return RejectedError(f"{peer} refused {protocol}: {name}", code)
    return StreamResetError(f"{peer} reset {protocol}: {name}", code, finished=finished)
