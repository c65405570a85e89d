"""Durations by hand are those of the generated classes."""

from hypothesis import given
from hypothesis import strategies as st

from agentmesh.wire.durations import encode_duration, to_duration
from agentmesh.wire.messages.mesh import v1 as pb

TTL = bytes([4 << 3 | 2])  # the field of DirectoryProvider


@given(st.floats(0, 1e9) | st.integers(0, 10**6).map(float))
def test_a_duration_by_hand_is_the_generated_one(seconds: float) -> None:
    message = encode_duration(seconds)
    field = TTL + bytes([len(message)]) + message
    assert pb.DirectoryProvider.parse(field).ttl == to_duration(seconds)
    assert field == bytes(pb.DirectoryProvider(ttl=to_duration(seconds)))
