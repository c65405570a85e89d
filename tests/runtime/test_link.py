"""The secure link: long writes, goodbyes, writes that were cut off, records damaged on the way."""

import pytest
import trio
from trio.testing import MockClock

from agentmesh.abc import Link
from agentmesh.errors import RemoteProtocolError
from agentmesh.runtime.upgrade import ALERT_TIMEOUT
from tests.runtime.pairs import upgrade_both, what_it_hears
from tests.runtime.wires import duplex, socket_streams, watched_duplex

LONG = bytes(range(256)) * 64 * 1024  # more than a socket takes at once


async def receive_exactly(link: Link, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        received += await link.receive_some()
    return bytes(received)


async def test_a_socket_takes_a_short_write_at_once() -> None:
    async with socket_streams() as streams:
        ours, theirs = await upgrade_both(*streams)
        assert ours.link.write(b"hello")
        assert ours.link.write(b" again")
        assert await receive_exactly(theirs.link, 11) == b"hello again"


@pytest.mark.parametrize("then", [b"", b"more"], ids=["alone", "with more behind it"])
async def test_the_rest_of_a_long_write_leaves_with_a_flush(then: bytes) -> None:
    async with socket_streams() as streams:
        ours, theirs = await upgrade_both(*streams)
        assert not ours.link.write(LONG)
        if then:
            assert not ours.link.write(then)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ours.link.flush)
            assert await receive_exactly(theirs.link, len(LONG + then)) == LONG + then


async def test_what_is_no_socket_waits_for_the_flush() -> None:
    dialer, listener, log = watched_duplex()
    ours, theirs = await upgrade_both(dialer, listener)
    log.clear()
    assert not ours.link.write(b"hello")
    assert not log
    await ours.link.flush()
    assert await receive_exactly(theirs.link, 5) == b"hello"


async def test_a_write_to_a_peer_that_is_gone_fails_with_the_flush() -> None:
    async with socket_streams() as streams:
        ours, _ = await upgrade_both(*streams)
        await streams[1].aclose()
        while ours.link.write(LONG):
            pass
        with pytest.raises(trio.BrokenResourceError):
            await ours.link.flush()


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
