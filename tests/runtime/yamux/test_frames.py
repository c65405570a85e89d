"""The twelve header bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmesh.errors import RemoteProtocolError
from agentmesh.runtime.yamux.frames import HEADER_BYTES, FrameType, decode_header, encode_header


def test_golden_vectors() -> None:
    assert encode_header(FrameType.DATA, 0x1, 3, 5).hex() == "000000010000000300000005"
    assert encode_header(FrameType.WINDOW_UPDATE, 0x8, 3, 0x1008).hex() == "000100080000000300001008"
    assert encode_header(FrameType.PING, 0x2, 0, 7).hex() == "000200020000000000000007"
    assert encode_header(FrameType.GO_AWAY, 0, 0, 1).hex() == "000300000000000000000001"


@given(st.sampled_from(list(FrameType)), st.integers(0, 15), st.integers(1, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_round_trip(frame_type: FrameType, flags: int, stream_id: int, length: int) -> None:
    stream_id = 0 if frame_type >= FrameType.PING else stream_id
    header = decode_header(b"xx" + encode_header(frame_type, flags, stream_id, length), 2)
    assert header == (frame_type, flags, stream_id, length)


@given(st.binary(min_size=HEADER_BYTES, max_size=HEADER_BYTES))
def test_any_bytes_are_a_header_or_a_protocol_error(data: bytes) -> None:
    try:
        header = decode_header(data)
    except RemoteProtocolError:
        return
    assert encode_header(*header) == data


@pytest.mark.parametrize(
    "data",
    [
        bytes.fromhex("010000000000000100000000"),  # version
        bytes.fromhex("000400000000000100000000"),  # type
        bytes.fromhex("000000100000000100000000"),  # flag
        bytes.fromhex("000000000000000000000000"),  # data of no stream
        bytes.fromhex("000200010000000100000000"),  # a ping with a stream
    ],
)
def test_what_is_no_header(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_header(data)
