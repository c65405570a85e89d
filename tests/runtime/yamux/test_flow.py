"""Flow control: credit, and windows that grow to the path and no further."""

import pytest

from agentmesh.runtime.yamux import (
    MuxLimits,
)
from agentmesh.runtime.yamux.flow import UPDATES_PER_WINDOW
from agentmesh.runtime.yamux.limits import INITIAL_WINDOW
from tests.runtime.yamux.two import BATCH, Two


def test_a_sender_stops_at_the_window_and_goes_on_with_credit() -> None:
    two = Two()
    ours, theirs = two.opened(b"")
    two.dialer.send(ours, bytes(INITIAL_WINDOW + 10))
    two.carry()
    assert ours.queued == 10
    assert theirs.readable == INITIAL_WINDOW
    received = 0
    while data := two.listener.read(theirs):
        received += len(data)
        two.carry()
    assert received == INITIAL_WINDOW + 10
    assert not ours.queued


def test_credit_costs_four_updates_per_window() -> None:
    two = Two()
    ours, theirs = two.opened(b"")
    two.dialer.send(ours, bytes(INITIAL_WINDOW))
    two.carry()
    updates = 0
    while two.listener.read(theirs, 1024):
        updates += two.listener.wants_to_send
        two.carry()
    assert updates == UPDATES_PER_WINDOW


def test_a_window_that_limits_grows_within_its_bounds() -> None:
    limits = MuxLimits(max_window_bytes=INITIAL_WINDOW * 4, max_session_window_bytes=INITIAL_WINDOW * 5)
    two = Two(limits)
    pairs = [two.opened(b"") for _ in range(3)]
    for _ in range(20):
        for ours, theirs in pairs:
            two.dialer.send(ours, bytes(theirs.window.size))
            two.carry()
            while two.listener.read(theirs):
                two.carry()
    sizes = [theirs.window.size // INITIAL_WINDOW for _, theirs in pairs]
    assert max(sizes) == 4
    assert sum(sizes) == 3 + 5
    assert two.listener.statistics().window_bytes_left == 0
    for _, theirs in pairs:
        two.listener.reset(theirs)
    assert two.listener.statistics().window_bytes_left == limits.max_session_window_bytes


def test_a_long_path_grows_the_window_though_new_credit_is_under_way() -> None:
    """The reader keeps up with the bytes as they come, and credit takes longer to arrive than a window to be sent."""
    limits = MuxLimits(max_window_bytes=INITIAL_WINDOW * 4)
    two = Two(limits)
    ours, theirs = two.opened(b"")
    two.dialer.send(ours, bytes(40 * INITIAL_WINDOW))
    while ours.queued:
        wire = two.dialer.data_to_send(BATCH)[0]
        for start in range(0, len(wire), 10_000):
            two.listener.receive_data(wire[start : start + 10_000])
            two.listener.read(theirs)
        two.dialer.receive_data(two.listener.data_to_send(BATCH)[0])
    assert theirs.window.size == limits.max_window_bytes


def test_a_sender_of_round_pieces_that_is_never_out_of_credit_does_not_grow_the_window() -> None:
    two = Two()
    ours, theirs = two.opened(b"")
    for _ in range(400):
        two.dialer.send(ours, bytes(INITIAL_WINDOW // 16))
        two.carry()
        two.listener.read(theirs)
        two.carry()
    assert theirs.window.size == INITIAL_WINDOW


def test_a_slow_sender_does_not_grow_the_window() -> None:
    two = Two()
    ours, theirs = two.opened(b"")
    for _ in range(40):
        two.dialer.send(ours, bytes(INITIAL_WINDOW // 4))
        two.carry()
        while two.listener.read(theirs):
            two.carry()
    assert theirs.window.size == INITIAL_WINDOW


def test_a_slow_reader_does_not_grow_the_window() -> None:
    two = Two()
    ours, theirs = two.opened(b"")
    two.dialer.send(ours, bytes(20 * INITIAL_WINDOW))
    two.carry()
    while theirs.readable:
        two.listener.read(theirs, 1000)
        two.carry()
        if not ours.queued:
            break
    assert theirs.window.size == INITIAL_WINDOW


def test_a_window_has_at_least_the_size_that_yamux_gives_it() -> None:
    assert MuxLimits(max_window_bytes=INITIAL_WINDOW).max_window_bytes == INITIAL_WINDOW
    with pytest.raises(ValueError, match="max_window_bytes"):
        MuxLimits(max_window_bytes=INITIAL_WINDOW - 1)
