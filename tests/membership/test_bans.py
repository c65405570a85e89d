"""Who is out: lists and events, and which of the two has the last word."""

from collections.abc import Set

import pytest

from agentmesh.membership import bans as module
from agentmesh.membership.bans import Bans
from agentmesh.types import PeerId

A, B, C = (PeerId.from_ed25519(bytes([n]) * 32) for n in range(3))


def watched() -> tuple[Bans, list[Set[PeerId]]]:
    bans, news = Bans(), list[Set[PeerId]]()
    bans.on_ban(news.append)
    return bans, news


def test_a_list_replaces_the_one_before() -> None:
    bans, news = watched()
    bans.reconcile({A, B}, asked_at=1.0)
    bans.reconcile({B, C}, asked_at=2.0)
    assert [peer in bans for peer in (A, B, C)] == [False, True, True]
    assert (news, len(bans)) == ([{A, B}, {C}], 2)


def test_a_ban_that_came_after_the_list_was_asked_for_stays() -> None:
    bans, _ = watched()
    bans.tell(A, at=1.0, now=1.0)
    bans.tell(B, at=2.0, now=2.0)
    bans.reconcile(frozenset(), asked_at=2.0)
    assert [peer in bans for peer in (A, B)] == [False, True]
    bans.reconcile(frozenset(), asked_at=2.5)
    assert B not in bans


@pytest.mark.parametrize(("at", "now"), [(1.0, 5.0), (5.0, 1.0)])
def test_of_two_clocks_the_later_counts(at: float, now: float) -> None:
    """An event of a control plane whose clock is behind ours is not older than a list that was asked for before it."""
    bans, _ = watched()
    bans.tell(A, at, now)
    bans.reconcile(frozenset(), asked_at=4.0)
    assert A in bans


def test_a_ban_is_news_once() -> None:
    bans, news = watched()
    bans.tell(A, at=1.0, now=1.0)
    bans.tell(A, at=2.0, now=2.0)
    bans.reconcile({A}, asked_at=3.0)
    bans.tell(A, at=4.0, now=4.0)
    assert (news, len(bans)) == ([{A}], 1)
    bans.reconcile(frozenset(), asked_at=5.0)
    bans.tell(A, at=6.0, now=6.0)
    assert news == [{A}, {A}]


def test_what_events_tell_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_TOLD_BANS", 2)
    bans, _ = watched()
    bans.reconcile({C}, asked_at=0.0)
    for n, peer in enumerate((A, B, A, C)):
        bans.tell(peer, at=n, now=n)
    assert [peer in bans for peer in (A, B, C)] == [True, False, True]
    assert len(bans) == 2
