"""The secure link: long writes, goodbyes, writes that were cut off, records damaged on the way."""

import pytest
import trio
from trio.testing import MockClock

from agentmesh.errors import RemoteProtocolError
from agentmesh.runtime.upgrade import (
    ALERT_TIMEOUT,
    WRITE_BYTES,
)
from tests.runtime.pairs import upgrade_both, what_it_hears
from tests.runtime.wires import duplex, watched_duplex


async def test_a_long_write_leaves_in_pieces() -> None:
    dialer, listener, log = watched_duplex()
    ours, theirs = await upgrade_both(dialer, listener)
    data = bytes(range(256)) * (2 * WRITE_BYTES // 256) + b"end"
    received = bytearray()
    log.clear()

    async def receive() -> None:
        while len(received) < len(data):
            received.extend(await theirs.link.receive_some())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(receive)
        await ours.link.send_all(data)
    assert received == data
    assert len(log) == 3


async def test_closing_a_link_says_goodbye() -> None:
    dialer, listener, log = watched_duplex()
    ours, theirs = await upgrade_both(dialer, listener)
    log.clear()
    await ours.link.aclose()
    assert [sent.who for sent in log] == ["dialer"]
    assert log[0].data[0] == 0x17  # a TLS record: the alert "close notify"
    assert await what_it_hears(theirs) == b""


async def test_closing_a_link_whose_peer_is_gone() -> None:
    dialer, listener = duplex()
    ours, _ = await upgrade_both(dialer, listener)
    await listener.aclose()
    await ours.link.aclose()
    with pytest.raises(trio.ClosedResourceError):
        await dialer.send_all(b"more")


async def test_closing_a_link_whose_peer_does_not_read_costs_a_moment(autojump_clock: MockClock) -> None:
    dialer, listener = duplex(4096)
    ours, _ = await upgrade_both(dialer, listener)
    await dialer.send_all(bytes(4096))
    start = trio.current_time()
    await ours.link.aclose()
    assert trio.current_time() - start == pytest.approx(ALERT_TIMEOUT)
    with pytest.raises(trio.ClosedResourceError):
        await dialer.send_all(b"more")


async def test_behind_a_write_that_was_cut_off_nothing_is_sent(autojump_clock: MockClock) -> None:
    dialer, listener = duplex(4096)
    ours, theirs = await upgrade_both(dialer, listener)
    with trio.move_on_after(1) as scope:
        await ours.link.send_all(bytes(10_000))
    assert scope.cancelled_caught
    with pytest.raises(trio.BrokenResourceError, match="cut off"):
        await ours.link.send_all(b"more")
    start = trio.current_time()
    await ours.link.aclose()
    assert trio.current_time() == start
    assert await what_it_hears(theirs) == b""


async def test_a_record_damaged_on_the_way_is_a_protocol_error_on_both_sides() -> None:
    dialer, listener = duplex()
    ours, theirs = await upgrade_both(dialer, listener)
    await dialer.send_all(b"\x17\x03\x03\x00\x20" + bytes(32))
    with pytest.raises(RemoteProtocolError, match="TLS record failed"):
        await theirs.link.receive_some()
    await theirs.link.aclose()
    assert "alert" in str(await what_it_hears(ours))
