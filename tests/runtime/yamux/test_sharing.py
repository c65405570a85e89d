"""Streams that share a link fairly, whatever credit the peer gives, in whatever amounts."""

from hypothesis import given
from hypothesis import strategies as st

from agentmesh.errors import LimitExceededError
from agentmesh.runtime.yamux import Mux, MuxLimits
from agentmesh.runtime.yamux.frames import FrameType, encode_header
from agentmesh.runtime.yamux.limits import INITIAL_WINDOW
from tests.runtime.yamux.two import BATCH

QUANTUM = 1000
LIMITS = MuxLimits(max_frame_bytes=QUANTUM)


@given(
    st.lists(st.integers(20 * QUANTUM, 30 * QUANTUM), min_size=2, max_size=6),
    st.lists(st.integers(1, 5 * QUANTUM), min_size=10, max_size=40),
    st.integers(0, 20),
)
def test_streams_that_have_much_to_say_get_the_same(queued: list[int], takes: list[int], late: int) -> None:
    """Over any interval in which two of them have something to send, they differ by two turns at most."""
    mux = Mux(dialer=True, limits=LIMITS)
    channels = [mux.open() for _ in queued]
    for channel, size in zip(channels[:-1], queued, strict=False):
        mux.send(channel, bytes(size))
    history: list[dict[int, int]] = []
    for turn, take in enumerate(takes):
        if turn == late:  # one that begins later gets its turn, and no more than that
            mux.send(channels[-1], bytes(queued[-1]))
        mux.data_to_send(take)
        history.append({channel.id: channel.queued for channel in channels if channel.queued > 0})
    for start in range(len(history)):
        for end in range(start, len(history)):
            both = history[start].keys() & history[end].keys()
            sent = [history[start][number] - history[end][number] for number in both]
            assert max(sent, default=0) - min(sent, default=0) <= 2 * QUANTUM


@given(st.lists(st.integers(0, 2**32 - 1) | st.integers(0, 2000), max_size=30), st.integers(160 * 1024, 600_000))
def test_any_credit_is_used_and_no_more(credits: list[int], size: int) -> None:
    """A window that the peer enlarges by anything, a byte or four gigabytes: what may leave leaves, and what may not
    waits. Beyond what yamux can count the session is over, by name.
    """
    mux = Mux(dialer=True)
    channel = mux.open()
    mux.send(channel, bytes(size))
    send_all(mux)
    allowed = INITIAL_WINDOW
    for credit in credits:
        used = size - channel.queued
        try:
            mux.receive_data(encode_header(FrameType.WINDOW_UPDATE, 0, channel.id, credit))
        except LimitExceededError as exc:
            assert exc.limit == "window_overflow"
            assert allowed - used + credit > 2**32 - 1
            return
        allowed += credit
        assert allowed - used <= 2**32 - 1
        send_all(mux)
        assert size - channel.queued == min(size, allowed)
        assert mux.memory.held == channel.queued


def send_all(mux: Mux) -> None:
    while mux.wants_to_send:
        mux.data_to_send(BATCH)
