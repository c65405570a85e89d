"""Seconds as messages hold them (google.protobuf.Duration)."""

from datetime import timedelta

from agentmesh.wire.framing import encode_varint

_MICROSECOND = timedelta(microseconds=1)
_SECONDS, _NANOS = bytes([1 << 3]), bytes([2 << 3])  # fields of Duration, both varints


def to_duration(seconds: float) -> timedelta:
    """`seconds`, to the microsecond."""
    return timedelta(seconds=seconds)


def encode_duration(seconds: float) -> bytes:
    """The message of a duration that is not negative, by hand: where there are very many."""
    whole, micros = divmod(to_duration(seconds) // _MICROSECOND, 1_000_000)
    first = _SECONDS + encode_varint(whole) if whole else b""
    return first + (_NANOS + encode_varint(1000 * micros) if micros else b"")


def seconds_in(duration: timedelta | None, *, absent: float, at_most: float) -> float:
    """A duration that a peer sent, as seconds from 0 up to a bound.

    Args:
        absent: what it means that there is none.
        at_most: the bound.
    """
    return absent if duration is None else min(max(duration.total_seconds(), 0.0), at_most)
