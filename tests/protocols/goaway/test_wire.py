import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmesh.errors import RemoteProtocolError
from agentmesh.protocols.goaway import MAX_MESSAGE_BYTES, GoAway, Reason
from agentmesh.protocols.goaway.wire import MAX_RETRY_AFTER, decode_goaway, encode_goaway
from agentmesh.testing.strategies import damaged, goaways

GOAWAYS = st.builds(GoAway, st.sampled_from(Reason), st.integers(0, int(MAX_RETRY_AFTER)).map(float))


@given(GOAWAYS)
def test_what_is_sent_comes_back(goaway: GoAway) -> None:
    data = encode_goaway(goaway)
    assert len(data) < MAX_MESSAGE_BYTES
    assert decode_goaway(data) == goaway


@pytest.mark.parametrize(
    ("data", "goaway"),
    [
        (b"", GoAway(Reason.UNSPECIFIED, 0.0)),
        (b"\x08\x01", GoAway(Reason.DRAINING, 0.0)),
        (b"\x08\x02\x12\x03\x08\xac\x02", GoAway(Reason.OVERLOADED, 300.0)),
        (b"\x08\x63", GoAway(Reason.UNSPECIFIED, 0.0)),  # a reason that a newer router may have
        (b"\x08\x01\x12\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", GoAway(Reason.DRAINING, 0.0)),  # -1 s
        (b"\x08\x01\x12\x05\x08\x80\x9a\x9e\x01", GoAway(Reason.DRAINING, MAX_RETRY_AFTER)),
    ],
)
def test_bytes_and_what_they_say(data: bytes, goaway: GoAway) -> None:
    assert decode_goaway(data) == goaway


@given(goaways().map(bytes) | damaged(goaways().map(bytes)))
def test_any_bytes_are_a_goaway_or_the_peers_fault(data: bytes) -> None:
    try:
        goaway = decode_goaway(data)
    except RemoteProtocolError:
        return
    assert 0.0 <= goaway.retry_after <= MAX_RETRY_AFTER
