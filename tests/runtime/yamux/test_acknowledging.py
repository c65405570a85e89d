"""When the peer hears that a stream of its own was taken."""

from agentmesh.runtime.yamux import ChannelOpened, Mux
from agentmesh.runtime.yamux.frames import ACK, HEADER_BYTES, SYN, FrameType, decode_header, encode_header
from agentmesh.runtime.yamux.machine import MAX_UNANSWERED


def acknowledged(mux: Mux) -> list[int]:
    """The numbers of the streams that the mux says it has taken."""
    data, _ = mux.data_to_send(1 << 20)
    headers = [decode_header(data, offset) for offset in range(0, len(data), HEADER_BYTES)]
    return [number for _, flags, number, _ in headers if flags & ACK]


def test_a_stream_is_acknowledged_with_the_first_thing_said_on_it() -> None:
    mux = Mux(dialer=False)
    (opened,) = mux.receive_data(encode_header(FrameType.WINDOW_UPDATE, SYN, 1, 0))
    assert isinstance(opened, ChannelOpened)
    assert not mux.wants_to_send
    mux.finish(opened.channel)
    assert acknowledged(mux) == [1]
    mux.handle_timeout(60.0)
    assert acknowledged(mux) == []


def test_streams_on_which_nothing_is_said_are_acknowledged_when_they_are_many_or_old() -> None:
    mux = Mux(dialer=False)
    for number in range(MAX_UNANSWERED - 1):
        mux.receive_data(encode_header(FrameType.WINDOW_UPDATE, SYN, 2 * number + 1, 0))
    assert acknowledged(mux) == []
    mux.receive_data(encode_header(FrameType.WINDOW_UPDATE, SYN, 2 * MAX_UNANSWERED - 1, 0))
    assert acknowledged(mux) == [2 * number + 1 for number in range(MAX_UNANSWERED)]
    mux.receive_data(encode_header(FrameType.WINDOW_UPDATE, SYN, 2 * MAX_UNANSWERED + 1, 0))
    mux.handle_timeout(60.0)
    assert acknowledged(mux) == [2 * MAX_UNANSWERED + 1]
