"""Bytes that need not be queued: they leave as they would have, and never before anything that waits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmesh.runtime.yamux import Channel, ChannelOpened, Mux, MuxLimits

ALL = 1 << 24


def pair(limits: MuxLimits | None = None) -> tuple[Mux, Mux, Channel, Channel]:
    """Two muxes with a stream between them whose opening has left: ours, and theirs."""
    one, other = Mux(dialer=True, limits=limits), Mux(dialer=False)
    channel = one.open()
    one.send(channel, b"first")
    opened = other.receive_data(one.data_to_send(ALL)[0])[0]
    assert isinstance(opened, ChannelOpened)
    assert other.read(opened.channel) == b"first"
    return one, other, channel, opened.channel


@given(st.lists(st.tuples(st.binary(min_size=1, max_size=300), st.booleans(), st.booleans()), max_size=12))
def test_what_passes_by_arrives_in_order_with_what_is_queued(words: list[tuple[bytes, bool, bool]]) -> None:
    one, other, ours, theirs = pair()
    wire = b""
    for word, passes_by, leaves in words:
        frame = one.pass_by(ours, word) if passes_by else None
        if frame is None:
            one.send(ours, word)
        wire += (frame or b"") + (one.data_to_send(ALL)[0] if leaves else b"")
    other.receive_data(wire + one.data_to_send(ALL)[0])
    assert other.read(theirs) == b"".join(word for word, _, _ in words)


def test_it_is_the_frame_that_would_have_been_and_costs_as_much_credit() -> None:
    (one, _, passing, _), (other, _, queued, _) = pair(), pair()
    frame = one.pass_by(passing, b"hello")
    other.send(queued, b"hello")
    assert frame == other.data_to_send(ALL)[0]
    assert passing.send_credit == queued.send_credit
    assert (passing.queued, one.wants_to_send, one.statistics().held_bytes) == (0, False, 0)


def test_what_waits_is_not_overtaken() -> None:
    one, _, channel, _ = pair()
    one.send(channel, b"before")
    assert one.pass_by(channel, b"after") is None
    one.data_to_send(ALL)
    assert one.pass_by(channel, b"") is None
    one.ping(1)
    assert one.pass_by(channel, b"after") is None
    one.data_to_send(ALL)
    another = one.open()
    assert one.pass_by(another, b"its opening is still here") is None
    one.reset(channel)
    assert one.pass_by(channel, b"over") is None


@pytest.mark.parametrize("max_frame_bytes", [4096, 1 << 20])
def test_it_needs_credit_and_one_frame_for_all(max_frame_bytes: int) -> None:
    one, _, channel, _ = pair(MuxLimits(max_frame_bytes=max_frame_bytes))
    room = min(channel.send_credit, max_frame_bytes)
    assert one.pass_by(channel, bytes(room + 1)) is None
    assert one.pass_by(channel, bytes(room)) is not None
    assert (one.pass_by(channel, b"x") is None) is (room < max_frame_bytes), "the credit is used up"
