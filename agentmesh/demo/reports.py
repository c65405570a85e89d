"""What a member reports to the demo: one JSON object a line, on standard output."""

import json
import sys
from typing import Any

import attrs

from agentmesh.errors import RemoteProtocolError


@attrs.frozen
class Attached:
    """The member is in the mesh."""

    peer: str
    routers: list[str]
    transport: str


@attrs.frozen
class Progressed:
    """Bytes of the download that have come."""

    bytes: int
    total: int


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


Report = Attached | Progressed | Downloaded | ToolAnswered
KINDS: dict[str, type[Report]] = {kind.__name__: kind for kind in (Attached, Progressed, Downloaded, ToolAnswered)}


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
