"""Wall-clock seconds and protobuf instants."""

from datetime import UTC, datetime


def to_datetime(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def instant_text(seconds: float) -> str:
    """As JSON has it, to the millisecond: 2027-01-15T08:00:00.000Z."""
    return to_datetime(seconds).isoformat(timespec="milliseconds").replace("+00:00", "Z")
