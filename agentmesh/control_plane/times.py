"""Wall-clock seconds and protobuf instants."""

from datetime import UTC, datetime


def to_datetime(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
