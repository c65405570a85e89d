"""Seconds as messages hold them (google.protobuf.Duration)."""

from datetime import timedelta


def to_duration(seconds: float) -> timedelta:
    """`seconds`, to the microsecond."""
    return timedelta(seconds=seconds)


def seconds_in(duration: timedelta | None, *, absent: float, at_most: float) -> float:
    """A duration that a peer sent, as seconds from 0 up to a bound.

    Args:
        absent: what it means that there is none.
        at_most: the bound.
    """
    return absent if duration is None else min(max(duration.total_seconds(), 0.0), at_most)
