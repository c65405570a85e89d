"""The mux, two of them where it takes two."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmesh.errors import ErrorCode, LimitExceededError, LocalProtocolError, RejectedError, RemoteProtocolError
from agentmesh.runtime.yamux import (
    ChannelFinished,
    ChannelOpened,
    ChannelReadable,
    ChannelReset,
    GoAwayReceived,
    Mux,
    MuxLimits,
    PongReceived,
)
from agentmesh.runtime.yamux.frames import ACK, FIN, RST, SYN, FrameType, encode_header
from agentmesh.runtime.yamux.limits import INITIAL_WINDOW
from agentmesh.runtime.yamux.states import State
from tests.runtime.yamux.two import BATCH, Two


def test_a_stream_opens_with_its_first_bytes_in_one_frame() -> None:
    mux = Mux(dialer=True)
    mux.send(mux.open(), b"hi")
    assert mux.data_to_send(BATCH)[0] == encode_header(FrameType.DATA, SYN, 1, 2) + b"hi"


def test_a_stream_with_nothing_to_say_opens_alone() -> None:
    mux = Mux(dialer=True)
    mux.open()
    assert mux.data_to_send(BATCH)[0] == encode_header(FrameType.WINDOW_UPDATE, SYN, 1, 0)


def test_bytes_arrive_and_their_end_behind_them() -> None:
    two = Two()
    ours, theirs = two.opened()
    assert two.listener.read(theirs) == b"hello"
    two.dialer.send(ours, b"bye")
    two.dialer.finish(ours)
    _, told = two.carry()
    assert told == [ChannelReadable(theirs), ChannelFinished(theirs)]
    assert two.listener.read(theirs, 2) == b"by"
    assert two.listener.read(theirs, 2) == b"e"
    two.listener.send(theirs, b"thanks")
    two.listener.finish(theirs)
    two.carry()
    assert two.dialer.read(ours) == b"thanks"
    assert ours.state is theirs.state is State.DONE
    assert two.sizes == (0,) * 6


def test_the_end_leaves_in_a_frame_of_its_own() -> None:
    """js-libp2p (yamux 8.0.3) forgets the bytes of a frame that ends its stream."""
    mux = Mux(dialer=True)
    channel = mux.open()
    mux.send(channel, b"all")
    mux.finish(channel)
    data, end = encode_header(FrameType.DATA, SYN, 1, 3) + b"all", encode_header(FrameType.WINDOW_UPDATE, FIN, 1, 0)
    assert mux.data_to_send(BATCH)[0] == data + end


def test_a_reset_carries_its_code() -> None:
    two = Two()
    ours, theirs = two.opened()
    two.listener.reset(theirs, ErrorCode.GATED)
    told, _ = two.carry()
    assert told == [ChannelReset(ours)]
    assert ours.reset_code == ErrorCode.GATED
    assert two.sizes == (0,) * 6


def test_what_was_finished_before_a_reset_can_still_be_read() -> None:
    two = Two()
    ours, theirs = two.opened()
    two.listener.send(theirs, b"answer")
    two.listener.close(theirs, 0.0)  # "hello" was not read: a reset follows the answer
    two.carry()
    assert ours.state is State.CUT
    assert two.dialer.read(ours) == b"answer"
    assert two.sizes == (0,) * 6


def test_bytes_of_an_unfinished_stream_go_with_its_reset() -> None:
    two = Two()
    _, theirs = two.opened()
    two.dialer.reset(two.dialer.open())  # one that never reached the wire leaves no trace
    assert two.dialer.data_to_send(BATCH)[0] == b""
    two.listener.receive_data(encode_header(FrameType.WINDOW_UPDATE, RST, theirs.id, 0))
    assert two.listener.read(theirs) == b""


def test_nobody_reads_an_abandoned_stream_and_the_sender_hears_it() -> None:
    two = Two()
    ours, theirs = two.opened()
    two.listener.read(theirs)
    two.listener.close(theirs, 0.0)
    two.carry()
    assert ours.state is State.REMOTE_DONE
    two.dialer.send(ours, b"more")
    told, _ = two.carry()
    assert told == [ChannelReset(ours)]
    assert two.sizes == (0,) * 6


def test_a_closed_stream_whose_peer_never_ends_is_reset_in_time() -> None:
    two = Two()
    ours, theirs = two.opened()
    two.listener.read(theirs)
    two.listener.close(theirs, 5.0)
    two.carry()
    assert two.listener.deadline == 65.0
    two.listener.handle_timeout(64.9)
    assert not two.listener.wants_to_send
    two.listener.handle_timeout(65.0)
    two.carry()
    assert ours.reset_code == ErrorCode.GARBAGE_COLLECTED
    assert two.sizes == (0,) * 6
    assert two.listener.deadline is None


def test_a_closed_stream_whose_peer_never_takes_the_rest_is_reset_in_time() -> None:
    two = Two()
    ours, theirs = two.opened()
    two.dialer.finish(ours)
    two.carry()
    two.listener.read(theirs)
    two.listener.send(theirs, bytes(INITIAL_WINDOW + 1))
    two.listener.close(theirs, 5.0)
    two.carry()
    assert theirs.state is State.DONE
    assert theirs.queued == 1
    assert two.listener.deadline == 65.0
    two.listener.handle_timeout(65.0)
    two.carry()
    assert ours.reset_code == ErrorCode.GARBAGE_COLLECTED
    assert two.sizes == (0,) * 6


def test_control_goes_first_and_streams_take_turns() -> None:
    limits = MuxLimits(max_frame_bytes=4)
    mux = Mux(dialer=True, limits=limits)
    bulk, small = mux.open(), mux.open()
    mux.send(bulk, b"a" * 8)
    mux.send(small, b"b")
    mux.ping(7)
    data, progressed = mux.data_to_send(BATCH)
    assert data == (
        encode_header(FrameType.PING, SYN, 0, 7)
        + encode_header(FrameType.DATA, SYN, 1, 4) + b"aaaa"
        + encode_header(FrameType.DATA, SYN, 3, 1) + b"b"
        + encode_header(FrameType.DATA, 0, 1, 4) + b"aaaa"
    )  # fmt: skip
    assert progressed == [bulk, small, bulk]


def test_a_batch_ends_when_it_is_full() -> None:
    mux = Mux(dialer=True)
    channel = mux.open()
    mux.send(channel, bytes(200_000))
    data, _ = mux.data_to_send(65536)
    assert len(data) == 12 + 65536
    assert channel.queued == 200_000 - 65536


def test_pings_are_answered() -> None:
    two = Two()
    two.dialer.ping(99)
    told, _ = two.carry()
    assert told == [PongReceived(99)]


def test_go_away_is_told() -> None:
    two = Two()
    two.listener.go_away()
    told, _ = two.carry()
    assert told == [GoAwayReceived(0)]


def test_late_frames_of_a_closed_stream_are_harmless() -> None:
    two = Two()
    _, theirs = two.opened()
    two.listener.reset(theirs)
    for flags in (0, FIN):
        frame = encode_header(FrameType.DATA, flags, theirs.id, 3) + b"abc"
        assert two.listener.receive_data(frame) == []
    assert two.listener.receive_data(encode_header(FrameType.WINDOW_UPDATE, 0, theirs.id, 3)) == []
    assert two.listener.statistics().late_frames == 3


def test_bytes_behind_the_end_of_a_stream_are_thrown_away() -> None:
    two = Two()
    ours, theirs = two.opened()
    two.dialer.finish(ours)
    two.carry()
    behind = encode_header(FrameType.DATA, 0, theirs.id, 3) + b"abc" + encode_header(FrameType.DATA, FIN, theirs.id, 0)
    assert two.listener.receive_data(behind) == []
    assert two.listener.statistics().late_frames == 1
    assert two.listener.read(theirs) == b"hello"
    assert two.listener.read(theirs) == b""
    two.listener.send(theirs, b"answer")
    two.listener.finish(theirs)
    two.carry()
    assert two.dialer.read(ours) == b"answer"
    assert two.sizes == (0,) * 6


@pytest.mark.parametrize("cut", [1, 13, 100])
def test_the_end_may_come_on_the_last_bytes(cut: int) -> None:
    """Ours does not, but others' does."""
    mux = Mux(dialer=False)
    wire = encode_header(FrameType.DATA, SYN | FIN, 1, 5) + b"hello"
    events = [event for start in range(0, len(wire), cut) for event in mux.receive_data(wire[start : start + cut])]
    assert isinstance(events[0], ChannelOpened)
    channel = events[0].channel
    assert events[-1] == ChannelFinished(channel)
    assert channel.state is State.REMOTE_DONE
    assert mux.read(channel) == b"hello"


def test_a_number_used_again_is_another_stream() -> None:
    mux = Mux(dialer=False)
    syn, rst = (encode_header(FrameType.WINDOW_UPDATE, flag, 1, 0) for flag in (SYN, RST))
    events = mux.receive_data(syn + rst + syn)
    assert [type(event) for event in events] == [ChannelOpened, ChannelReset, ChannelOpened]
    assert isinstance(events[0], ChannelOpened)
    mux.close(events[0].channel, 0.0)
    assert mux.statistics().inbound_streams == 1
    assert mux.deadline is None
    told = mux.receive_data(encode_header(FrameType.DATA, 0, 1, 3) + b"abc")
    assert isinstance(events[2], ChannelOpened)
    assert told == [ChannelReadable(events[2].channel)]


def test_more_streams_than_the_limit_are_refused_by_name() -> None:
    two = Two(MuxLimits(max_inbound_streams=2))
    two.opened()
    two.opened()
    third = two.dialer.open()
    two.dialer.send(third, b"one too many")
    told, _ = two.carry()
    assert told == [ChannelReset(third)]
    assert third.reset_code == ErrorCode.RESOURCE_LIMIT_EXCEEDED
    assert two.listener.statistics().refused_streams == 1
    assert two.listener.statistics().late_frames == 0


def test_our_own_limit_on_streams() -> None:
    mux = Mux(dialer=True, limits=MuxLimits(max_outbound_streams=1))
    channel = mux.open()
    with pytest.raises(RejectedError) as caught:
        mux.open()
    assert caught.value.code == ErrorCode.RESOURCE_LIMIT_EXCEEDED
    mux.reset(channel)
    mux.open()


def test_the_numbers_of_streams_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentmesh.runtime.yamux.machine.MAX_STREAM_ID", 4)
    mux = Mux(dialer=True)
    assert [mux.open().id, mux.open().id] == [1, 3]
    with pytest.raises(LocalProtocolError, match="no stream numbers left"):
        mux.open()


def test_an_empty_data_frame_says_nothing() -> None:
    two = Two()
    _, theirs = two.opened()
    assert two.listener.receive_data(encode_header(FrameType.DATA, ACK, theirs.id, 0)) == []
    assert two.listener.read(theirs) == b"hello"
    assert two.listener.read(theirs) == b""


def test_misuse_is_our_own_fault_and_sends_nothing() -> None:
    mux = Mux(dialer=True)
    channel = mux.open()
    mux.finish(channel)
    mux.data_to_send(BATCH)
    with pytest.raises(LocalProtocolError):
        mux.send(channel, b"x")
    with pytest.raises(LocalProtocolError):
        mux.finish(channel)
    assert not mux.wants_to_send


def _window_overrun(mux: Mux) -> bytes:
    return encode_header(FrameType.DATA, SYN, 1, INITIAL_WINDOW + 1)


def _window_overflow(mux: Mux) -> bytes:
    return encode_header(FrameType.WINDOW_UPDATE, SYN, 1, 0) + encode_header(FrameType.WINDOW_UPDATE, 0, 1, 2**32 - 1)


def _own_number(mux: Mux) -> bytes:
    return encode_header(FrameType.WINDOW_UPDATE, SYN, 2, 0)


def _opened_twice(mux: Mux) -> bytes:
    return encode_header(FrameType.WINDOW_UPDATE, SYN, 1, 0) * 2


def _garbage(mux: Mux) -> bytes:
    return b"GET / HTTP/1.1\r\n"


@pytest.mark.parametrize("attack", [_window_overrun, _window_overflow, _own_number, _opened_twice, _garbage])
def test_what_ends_the_session(attack: Callable[[Mux], bytes]) -> None:
    mux = Mux(dialer=False)
    with pytest.raises(RemoteProtocolError):
        mux.receive_data(attack(mux))
    assert mux.data_to_send(BATCH)[0].endswith(encode_header(FrameType.GO_AWAY, 0, 0, 1))
    with pytest.raises(LocalProtocolError):
        mux.receive_data(b"")


@pytest.mark.parametrize(
    "frames",
    [
        encode_header(FrameType.PING, SYN, 0, 1) * 200,
        b"".join(encode_header(FrameType.WINDOW_UPDATE, SYN, 2 * number + 1, 0) for number in range(200)),
    ],
    ids=["answers to pings", "refusals of streams"],
)
def test_a_peer_that_causes_more_than_it_reads_is_cut_off(frames: bytes) -> None:
    mux = Mux(dialer=False, limits=MuxLimits(max_control_bytes=1200, max_inbound_streams=1))
    with pytest.raises(LimitExceededError, match="max_control_bytes"):
        mux.receive_data(frames)


@given(st.lists(st.binary(max_size=40), max_size=20))
def test_any_bytes_raise_only_the_typed_error(pieces: list[bytes]) -> None:
    mux = Mux(dialer=False)
    try:
        for piece in pieces:
            mux.receive_data(piece)
    except RemoteProtocolError:
        pass


def frame_of(kind: FrameType, flags: int, stream_id: int, length: int, body: bytes) -> bytes:
    if kind is FrameType.DATA:
        return encode_header(kind, flags, stream_id, len(body)) + body
    return encode_header(kind, flags, 0 if kind >= FrameType.PING else stream_id, length)


FRAMES = st.builds(
    frame_of,
    st.sampled_from(list(FrameType)),
    st.sampled_from([0, SYN, ACK, FIN, RST, SYN | FIN, SYN | RST, FIN | RST]),
    st.integers(1, 7),
    st.integers(0, 1000),
    st.binary(max_size=30),
)


@given(st.lists(FRAMES, max_size=40), st.integers(1, 50))
def test_any_frames_in_any_cut_raise_only_the_typed_error(frames: list[bytes], cut: int) -> None:
    mux = Mux(dialer=False)
    wire = b"".join(frames)
    try:
        for start in range(0, len(wire), cut):
            for event in mux.receive_data(wire[start : start + cut]):
                if isinstance(event, ChannelReadable):
                    mux.read(event.channel, 7)
                if isinstance(event, ChannelFinished):
                    mux.close(event.channel, 0.0)
            mux.data_to_send(BATCH)
    except RemoteProtocolError:
        pass
