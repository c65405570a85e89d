"""Framing: whole frames come out however the bytes were cut; nothing but a typed error comes of anything else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmesh.errors import LimitExceededError, LocalProtocolError, RemoteProtocolError
from agentmesh.wire.framing import (
    MAX_VARINT,
    MAX_VARINT_BYTES,
    FrameReader,
    decode_varint,
    encode_frame,
    encode_varint,
)

GOLDEN = {
    0: "00",
    1: "01",
    127: "7f",
    128: "8001",
    255: "ff01",
    300: "ac02",
    16384: "808001",
    MAX_VARINT: "ffffffffffffffff7f",
}


@pytest.mark.parametrize(("value", "spelling"), GOLDEN.items())
def test_golden_varints(value: int, spelling: str) -> None:
    assert encode_varint(value).hex() == spelling
    assert decode_varint(bytes.fromhex(spelling)) == (value, len(spelling) // 2)


@given(st.integers(0, MAX_VARINT), st.binary(max_size=20), st.binary(max_size=20))
def test_varint_round_trip_in_the_middle_of_bytes(value: int, before: bytes, after: bytes) -> None:
    spelt = encode_varint(value)
    assert decode_varint(before + spelt + after, len(before)) == (value, len(before) + len(spelt))


@given(st.integers(0, MAX_VARINT), st.data())
def test_a_cut_varint_is_incomplete(value: int, data: st.DataObject) -> None:
    spelt = encode_varint(value)
    assert decode_varint(spelt[: data.draw(st.integers(0, len(spelt) - 1))]) is None


@given(st.binary(max_size=12))
def test_any_bytes_are_a_canonical_varint_or_incomplete_or_refused(data: bytes) -> None:
    try:
        found = decode_varint(data)
    except RemoteProtocolError:
        return
    if found is None:
        assert len(data) < MAX_VARINT_BYTES
        assert all(byte >= 0x80 for byte in data)
    else:
        assert encode_varint(found[0]) == data[: found[1]]


@pytest.mark.parametrize("spelling", ["8000", "ff00", "80808000", "808080808080808000"])
def test_a_varint_that_is_not_the_shortest_is_refused(spelling: str) -> None:
    with pytest.raises(RemoteProtocolError, match="shortest"):
        decode_varint(bytes.fromhex(spelling))


@pytest.mark.parametrize("spelling", ["80" * 9, "ff" * 9 + "01", "ff" * 20])
def test_an_overlong_varint_is_refused(spelling: str) -> None:
    with pytest.raises(RemoteProtocolError, match="more than 9"):
        decode_varint(bytes.fromhex(spelling))


@pytest.mark.parametrize("value", [-1, MAX_VARINT + 1])
def test_what_has_no_varint_is_the_callers_fault(value: int) -> None:
    with pytest.raises(LocalProtocolError):
        encode_varint(value)


def read_all(reader: FrameReader, data: bytes, cuts: list[int]) -> list[bytes]:
    frames: list[bytes] = []
    marks = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    for start, end in zip(marks, marks[1:], strict=False):
        reader.receive_data(data[start:end])
        while (frame := reader.next_frame()) is not None:
            frames.append(frame)
    return frames


@given(st.lists(st.binary(max_size=300), max_size=8), st.lists(st.integers(0, 5000), max_size=10))
def test_frames_come_out_whole_however_they_were_cut(frames: list[bytes], cuts: list[int]) -> None:
    reader = FrameReader(300)
    assert read_all(reader, b"".join(map(encode_frame, frames)), cuts) == frames
    assert reader.trailing() == b""


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=5))
def test_any_bytes_are_frames_or_the_peers_fault(data: bytes, cuts: list[int]) -> None:
    reader = FrameReader(64)
    try:
        frames = read_all(reader, data, cuts)
    except RemoteProtocolError as error:
        with pytest.raises(RemoteProtocolError) as again:
            reader.next_frame()
        assert again.value is error
    else:
        assert b"".join(map(encode_frame, frames)) + reader.trailing() == data


def test_the_bound_is_inclusive() -> None:
    reader = FrameReader(4)
    reader.receive_data(b"\x04abcd\x05")
    assert reader.next_frame() == b"abcd"
    with pytest.raises(LimitExceededError, match="5 bytes; at most 4"):
        reader.next_frame()


def test_a_frame_above_the_bound_is_refused_before_its_bytes_have_come() -> None:
    reader = FrameReader(64 * 1024)
    reader.receive_data(encode_varint(1 << 40))
    with pytest.raises(LimitExceededError) as first:
        reader.next_frame()
    with pytest.raises(LimitExceededError) as again:
        reader.receive_data(b"more")
    assert again.value is first.value
    assert reader.trailing() == b""


def test_what_follows_the_last_frame_is_handed_over_once() -> None:
    reader = FrameReader(16)
    reader.receive_data(memoryview(encode_frame(b"last") + b"\xff\xff of a circuit"))
    assert reader.next_frame() == b"last"
    assert reader.trailing() == b"\xff\xff of a circuit"
    assert reader.trailing() == b""
    assert reader.next_frame() is None


def test_an_empty_frame_is_a_frame() -> None:
    reader = FrameReader(0)
    reader.receive_data(encode_frame(b""))
    assert reader.next_frame() == b""
    assert reader.next_frame() is None
