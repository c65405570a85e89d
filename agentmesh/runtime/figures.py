"""How sessions and the handshakes before them stand and end, in names and numbers."""

import enum

import attrs
import trio

from agentmesh.errors import CertificateError, LimitExceededError, RejectedError, RemoteProtocolError
from agentmesh.runtime.yamux import BOUNDS

VIOLATION = "protocol_violation"
ABUSES: tuple[str, ...] = (*BOUNDS, VIOLATION)
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
