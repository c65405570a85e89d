"""Admission ends with its credential, whatever else goes on."""

import pytest
import trio
from trio.testing import MockClock

from agentmesh.abc import Admission
from agentmesh.errors import RejectedError
from agentmesh.runtime.admission import AdmissionBook
from agentmesh.types import PeerId

PEERS = [PeerId.from_ed25519(bytes([number]) * 32) for number in range(4)]


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_levels() -> None:
    clock = Clock()
    book = AdmissionBook(clock)
    assert book.level(PEERS[0]) is Admission.ANYONE
    book.admit(PEERS[0], Admission.MEMBER, 1010.0)
    book.admit(PEERS[1], Admission.ROUTER, 1010.0)
    assert book.level(PEERS[0]) is Admission.MEMBER
    assert book.level(PEERS[1]) is Admission.ROUTER
    assert book.expires_at(PEERS[1]) == 1010.0
    clock.now = 1010.0
    assert book.level(PEERS[0]) is Admission.ANYONE  # at the instant itself, timer or no timer


def test_a_renewal_outlives_the_first_expiry() -> None:
    clock, lapsed = Clock(), list[PeerId]()
    book = AdmissionBook(clock)
    book.on_lapse(lapsed.append)
    book.admit(PEERS[0], Admission.MEMBER, 1010.0)
    book.admit(PEERS[0], Admission.MEMBER, 1020.0)
    clock.now = 1015.0
    book.handle_timeout()
    assert PEERS[0] in book
    assert not lapsed
    clock.now = 1020.0
    book.handle_timeout()
    assert lapsed == [PEERS[0]]
    assert not len(book)


def test_the_book_is_bounded_and_says_so() -> None:
    book = AdmissionBook(Clock(), max_peers=2)
    book.admit(PEERS[0], Admission.MEMBER, 1010.0)
    book.admit(PEERS[1], Admission.MEMBER, 1010.0)
    with pytest.raises(RejectedError, match="max_peers"):
        book.admit(PEERS[2], Admission.MEMBER, 1010.0)
    book.admit(PEERS[0], Admission.MEMBER, 1011.0)
    book.revoke(PEERS[1])
    book.admit(PEERS[2], Admission.MEMBER, 1010.0)


def test_ten_thousand_renewals_leave_no_trace() -> None:
    book = AdmissionBook(Clock())
    for renewal in range(10_000):
        book.admit(PEERS[0], Admission.MEMBER, 2000.0 + renewal)
    assert book.pending_expiries <= 100


def test_whoever_has_left_leaves_no_expiry_behind() -> None:
    book = AdmissionBook(lambda: 0.0)
    peers = [PeerId.from_ed25519(bytes([number]) * 32) for number in range(200)]
    for peer in peers:
        book.admit(peer, Admission.MEMBER, 1e9)
    for left, peer in zip(reversed(range(200)), peers, strict=True):
        book.revoke(peer)
        assert book.pending_expiries <= (2 * left + 64 if left else 0)


async def test_the_timer_follows_the_earliest_expiry(autojump_clock: MockClock) -> None:
    lapsed: dict[PeerId, float] = {}
    book = AdmissionBook(trio.current_time)
    book.on_lapse(lambda peer: lapsed.update({peer: trio.current_time()}))
    start = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(book.run)
        book.admit(PEERS[0], Admission.MEMBER, start + 50)
        await trio.sleep(10)
        book.admit(PEERS[1], Admission.MEMBER, start + 20)
        await trio.sleep(100)
        nursery.cancel_scope.cancel()
    assert list(lapsed) == [PEERS[1], PEERS[0]]
    assert list(lapsed.values()) == pytest.approx([start + 20, start + 50])
