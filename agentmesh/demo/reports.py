"""What a member reports to the demo: one JSON object a line, on standard output."""

import json
import sys
from typing import Any

import attrs

from agentmesh.errors import RemoteProtocolError


@attrs.frozen
class Attached:
    """The member is in the mesh. Peer IDs, and the transport over which it holds its routers: "tcp" or "ws"."""

    peer: str
    routers: list[str]
    transport: str


@attrs.frozen
class CircuitOpened:
    """A router relays for the member from now on. Peer IDs."""

    router: str
    to: str


@attrs.frozen
class Progressed:
    """Bytes of the download that have come, in so many seconds."""

    bytes: int
    total: int
    seconds: float


@attrs.frozen
class Downloaded:
    """A download is whole."""

    transport: str
    bytes: int
    seconds: float
    sha256: str


@attrs.frozen
class ToolAnswered:
    """The tool gave its answer."""

    answer: str
    seconds: float


Report = Attached | CircuitOpened | Progressed | Downloaded | ToolAnswered
KINDS: dict[str, type[Report]] = {
    kind.__name__: kind for kind in (Attached, CircuitOpened, Progressed, Downloaded, ToolAnswered)
}


def send_report(report: Report) -> None:
    """Print a report, now."""
    sys.stdout.write(json.dumps({"kind": type(report).__name__, **attrs.asdict(report)}) + "\n")
    sys.stdout.flush()


def parse_report(line: str) -> Report:
    """Raises RemoteProtocolError when a line is no report."""
    try:
        fields: dict[str, Any] = json.loads(line)
        return KINDS[fields.pop("kind")](**fields)
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise RemoteProtocolError(f"no report: {line[:200]!r}") from exc
