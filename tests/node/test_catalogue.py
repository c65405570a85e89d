"""Which routers are chosen, and when again: examples, and a model that sees every order of events."""

import math
from collections import Counter
from collections.abc import Sequence
from random import Random

import attrs
import pytest

from agentmesh.control_plane.routers import RouterRecord
from agentmesh.errors import LocalProtocolError
from agentmesh.node.catalogue import (
    FIRST_REDIAL_WAIT,
    MAX_ROUTERS,
    MAX_SHUN_TIME,
    REFUSED_WAIT,
    STEADY_TIME,
    SUSPICION_TIME,
    Catalogue,
)
from agentmesh.node.standing import MAX_ATTEMPTS, ROWS, SHUN_TIME, TRANSITIONS, Input, State
from agentmesh.types import Address, PeerId

PEERS = [PeerId.from_ed25519(bytes([number]) * 32) for number in range(6)]


def record(
    peer: PeerId, connections: int = 0, connection_limit: int = 0, text: str = "/ip4/10.0.0.1/tcp/1"
) -> RouterRecord:
    return RouterRecord(peer, (Address.parse(text).with_peer(peer),), {}, connections, connection_limit)


RECORDS = [record(peer) for peer in PEERS]


def catalogue_of(*records: RouterRecord, wanted: int = 2) -> Catalogue:
    catalogue = Catalogue(wanted, Random(1))
    catalogue.update(records)
    return catalogue


def peers(records: Sequence[RouterRecord]) -> list[PeerId]:
    return [record.peer for record in records]


def test_every_state_and_input_is_decided() -> None:
    assert set(TRANSITIONS) == {(state, got) for state in State for got in Input}
    assert all(len(row) == len(Input) for row in ROWS.values())


def test_as_many_as_are_wanted_are_chosen_and_every_one_when_there_are_fewer() -> None:
    assert len(catalogue_of(*RECORDS).choose(0.0)) == 2
    assert len(catalogue_of(*RECORDS[:1]).choose(0.0)) == 1
    assert catalogue_of().choose(0.0) == []


def test_the_least_loaded_come_first_and_an_unknown_load_is_half() -> None:
    full, half, idle = record(PEERS[0], 90, 100), record(PEERS[1]), record(PEERS[2], 10, 100)
    catalogue = catalogue_of(full, half, idle, wanted=1)
    for expected in (idle, half, full):
        assert catalogue.choose(0.0) == [expected]
        catalogue.failed(expected.peer, 0.0)


def test_a_load_that_makes_no_sense_counts_as_full_or_idle() -> None:
    over, negative = record(PEERS[0], 900, 100), record(PEERS[1], -5, 100)
    assert catalogue_of(over, negative, wanted=1).choose(0.0) == [negative]


def test_routers_of_like_load_are_spread() -> None:
    first = {Catalogue(1, Random(seed)) for seed in range(50)}
    chosen = set[PeerId]()
    for catalogue in first:
        catalogue.update(RECORDS)
        chosen.update(peers(catalogue.choose(0.0)))
    assert chosen == set(PEERS)


def test_failures_wait_two_seconds_doubling_and_the_sixth_is_shunned() -> None:
    catalogue = catalogue_of(RECORDS[0])
    catalogue.choose(0.0)
    catalogue.update(RECORDS[:2])
    catalogue.choose(0.0)
    catalogue.admitted(PEERS[1], 0.0)
    now, waits = 0.0, list[float]()
    for _ in range(MAX_ATTEMPTS + 1):
        if waits:
            assert catalogue.choose(now) == [RECORDS[0]]
        catalogue.failed(PEERS[0], now)
        waits.append(catalogue.deadline - now)
        assert catalogue.choose(math.nextafter(catalogue.deadline, 0)) == []
        now = catalogue.deadline
    assert waits == [2, 4, 8, 16, 32, SHUN_TIME, 2]


def test_whoever_shuns_every_router_tries_them_in_turn() -> None:
    catalogue = catalogue_of(*RECORDS[:2])
    now, attempts = 0.0, list[tuple[float, PeerId]]()
    while now < 400:
        for chosen in catalogue.choose(now):
            attempts.append((now, chosen.peer))
            catalogue.failed(chosen.peer, now)
        now = catalogue.deadline
    times = [at for at, peer in attempts if peer == PEERS[0]]
    assert times == [at for at, peer in attempts if peer == PEERS[1]]
    assert times == [0, 2, 6, 14, 30, 62, 62 + 60, 62 + 120, 62 + 180, 62 + 240, 62 + 300]
    (one,) = catalogue.choose(now)
    catalogue.admitted(one.peer, now)
    (other,) = set(PEERS[:2]) - {one.peer}
    assert catalogue.choose(now + SHUN_TIME - 61) == []  # there is something left now
    assert peers(catalogue.choose(now + SHUN_TIME)) == [other]


def test_a_router_that_failed_is_replaced_by_another_at_once() -> None:
    catalogue = catalogue_of(*RECORDS[:2], wanted=1)
    (first,) = catalogue.choose(0.0)
    catalogue.failed(first.peer, 0.0)
    (second,) = catalogue.choose(0.0)
    assert second != first


def test_a_router_that_was_lost_is_tried_again_at_once_but_after_the_others() -> None:
    catalogue = catalogue_of(*RECORDS[:2], wanted=1)
    (first,) = catalogue.choose(0.0)
    catalogue.admitted(first.peer, 0.0)
    catalogue.lost(first.peer, STEADY_TIME)
    (second,) = catalogue.choose(STEADY_TIME)
    assert second != first
    catalogue.failed(second.peer, STEADY_TIME)
    assert catalogue.choose(STEADY_TIME) == [first]


def test_a_router_that_admits_and_drops_is_left_alone_like_one_that_fails() -> None:
    catalogue = catalogue_of(RECORDS[0])
    now, waits = 0.0, list[float]()
    for _ in range(3):
        catalogue.choose(now)
        catalogue.admitted(PEERS[0], now)
        catalogue.lost(PEERS[0], now + 1)
        waits.append(catalogue.deadline - now - 1)
        now = catalogue.deadline
    assert waits == [2, 4, 8]


def test_an_attachment_that_lasted_forgives_earlier_failures() -> None:
    catalogue = catalogue_of(RECORDS[0])
    catalogue.choose(0.0)
    catalogue.failed(PEERS[0], 0.0)
    catalogue.choose(2.0)
    catalogue.admitted(PEERS[0], 2.0)
    catalogue.lost(PEERS[0], 2.0 + STEADY_TIME)
    assert catalogue.choose(2.0 + STEADY_TIME) == [RECORDS[0]]
    catalogue.failed(PEERS[0], 100.0)
    assert catalogue.deadline == 100.0 + FIRST_REDIAL_WAIT


def test_a_router_that_is_held_is_kept_when_it_is_not_listed_any_more_and_forgotten_once_lost() -> None:
    catalogue = catalogue_of(*RECORDS[:2])
    catalogue.choose(0.0)
    catalogue.admitted(PEERS[0], 0.0)
    catalogue.admitted(PEERS[1], 0.0)
    catalogue.update(RECORDS[1:2])
    assert peers(catalogue.attached) == PEERS[:2]
    assert catalogue.listed == (RECORDS[1],)
    catalogue.lost(PEERS[0], 100.0)
    assert catalogue.state(PEERS[0]) is None
    assert catalogue.choose(100.0) == []


def test_a_banned_router_is_never_chosen() -> None:
    catalogue = Catalogue(2, Random(1))
    catalogue.update(RECORDS[:2], {PEERS[0]})
    assert (catalogue.choose(0.0), catalogue.listed) == ([RECORDS[1]], (RECORDS[1],))


def attached_to(*records: RouterRecord, listed: Sequence[RouterRecord] = RECORDS) -> Catalogue:
    catalogue = catalogue_of(*records, wanted=len(records))
    for chosen in catalogue.choose(0.0):
        catalogue.admitted(chosen.peer, 0.0)
    catalogue.update(listed)
    return catalogue


def test_a_router_that_sends_us_away_is_replaced_while_its_session_lasts() -> None:
    catalogue = attached_to(*RECORDS[:2])
    catalogue.sent_away(PEERS[0], 30.0, 100.0)
    assert catalogue.state(PEERS[0]) is State.LEAVING
    assert peers(catalogue.attached) == [PEERS[1]]
    (replacement,) = catalogue.choose(100.0)
    assert replacement.peer not in PEERS[:2]
    catalogue.lost(PEERS[0], 105.0)
    assert catalogue.state(PEERS[0]) is State.AWAY
    assert catalogue.deadline == 130.0
    catalogue.choose(130.0)
    assert catalogue.state(PEERS[0]) is State.FREE  # as good as any other: it has room, having sent all away


@pytest.mark.parametrize(
    ("retry_after", "shunned"), [(0.0, SHUN_TIME), (1.0, 1.0), (600.0, 600.0), (1e6, MAX_SHUN_TIME)]
)
def test_how_long_a_router_that_sent_us_away_is_left_alone(retry_after: float, shunned: float) -> None:
    catalogue = attached_to(*RECORDS[:2])
    catalogue.sent_away(PEERS[0], retry_after, 100.0)
    catalogue.lost(PEERS[0], 100.0)
    assert catalogue.deadline == 100.0 + shunned


def test_a_router_that_is_full_is_asked_again_soon_and_last_until_the_list_says_that_it_has_room() -> None:
    full, other = record(PEERS[0], 10, 100), record(PEERS[1], 90, 100)
    catalogue = catalogue_of(full, other, wanted=1)
    assert catalogue.choose(0.0) == [full]
    catalogue.refused(PEERS[0], 0.0)
    assert catalogue.state(PEERS[0]) is State.AWAY
    assert catalogue.deadline == REFUSED_WAIT
    assert catalogue.choose(0.0) == [other]
    catalogue.failed(PEERS[1], REFUSED_WAIT)
    assert peers(catalogue.choose(REFUSED_WAIT)) == [PEERS[0]]
    catalogue.failed(PEERS[0], REFUSED_WAIT)
    assert catalogue.deadline == REFUSED_WAIT + FIRST_REDIAL_WAIT  # it was no failure
    catalogue.update([record(PEERS[0], 20, 100), other])
    catalogue.choose(REFUSED_WAIT + SUSPICION_TIME)
    assert catalogue.state(PEERS[0]) is State.ATTACHING


def test_whoever_is_refused_everywhere_asks_again_in_ten_seconds() -> None:
    catalogue = catalogue_of(*RECORDS[:2])
    for now in (0.0, REFUSED_WAIT, 2 * REFUSED_WAIT):
        chosen = catalogue.choose(now)
        assert chosen
        for one in chosen:
            catalogue.refused(one.peer, now)
        assert catalogue.deadline == now + REFUSED_WAIT
        assert catalogue.choose(now + REFUSED_WAIT - 1) == []


def test_a_router_is_suspect_for_five_minutes() -> None:
    idle, full = record(PEERS[0], 0, 100), record(PEERS[1], 90, 100)
    for later, expected in ((SUSPICION_TIME - 1, full), (SUSPICION_TIME, idle)):
        catalogue = catalogue_of(idle, full, wanted=1)
        catalogue.choose(0.0)
        catalogue.admitted(PEERS[0], 0.0)
        catalogue.update([full])
        catalogue.update([idle, full])
        catalogue.lost(PEERS[0], STEADY_TIME)
        assert catalogue.deadline == math.inf
        assert catalogue.choose(STEADY_TIME + later) == [expected]


@pytest.mark.parametrize("how", ["lost", "sent away"])
def test_those_who_lose_a_router_together_do_not_all_go_to_the_one_that_has_most_room(how: str) -> None:
    left, idle, busy = record(PEERS[0], 0, 100), record(PEERS[1], 10, 100), record(PEERS[2], 50, 100)
    found = Counter[PeerId]()
    for seed in range(100):
        catalogue = Catalogue(1, Random(seed))
        catalogue.update([left, idle, busy])
        catalogue.choose(0.0)
        catalogue.admitted(PEERS[0], 0.0)
        catalogue.update([record(PEERS[0], 60, 100), idle, busy])  # of which sixty now look for a place
        if how == "lost":
            catalogue.lost(PEERS[0], STEADY_TIME)
        else:
            catalogue.sent_away(PEERS[0], 30.0, STEADY_TIME)
        (chosen,) = catalogue.choose(STEADY_TIME)
        found[chosen.peer] += 1
        catalogue.admitted(chosen.peer, STEADY_TIME)
        catalogue.lost(chosen.peer, STEADY_TIME)  # this one alone
    assert found[PEERS[0]] == 0
    assert 2 <= found[PEERS[2]] < found[PEERS[1]]


def test_a_session_that_outlives_the_shunning_is_no_reason_to_wait() -> None:
    catalogue = attached_to(*RECORDS[:1], listed=RECORDS[:1])
    catalogue.sent_away(PEERS[0], 1.0, 100.0)
    assert catalogue.choose(105.0) == []
    catalogue.lost(PEERS[0], 105.0)
    assert catalogue.choose(105.0) == [RECORDS[0]]


def test_whoever_was_sent_away_by_every_router_tries_them_after_a_minute() -> None:
    catalogue = attached_to(*RECORDS[:2], listed=RECORDS[:2])
    for peer in PEERS[:2]:
        catalogue.sent_away(peer, 3600.0, 100.0)
        catalogue.lost(peer, 101.0)
    assert catalogue.deadline == 160.0
    assert len(catalogue.choose(160.0)) == 1


def test_the_order_of_attachments_is_that_in_which_they_came_about() -> None:
    catalogue = catalogue_of(*RECORDS[:3], wanted=3)
    catalogue.choose(0.0)
    for peer in (PEERS[2], PEERS[0], PEERS[1]):
        catalogue.admitted(peer, 0.0)
    assert peers(catalogue.attached) == [PEERS[2], PEERS[0], PEERS[1]]
    catalogue.update(RECORDS[:2])
    catalogue.update(RECORDS)
    assert peers(catalogue.attached) == [PEERS[2], PEERS[0], PEERS[1]]
    catalogue.lost(PEERS[2], 100.0)
    (replacement,) = catalogue.choose(100.0)
    catalogue.admitted(replacement.peer, 100.0)
    assert peers(catalogue.attached) == [PEERS[0], PEERS[1], replacement.peer]


def test_new_addresses_of_a_router_are_taken_on_also_while_it_is_held() -> None:
    catalogue = catalogue_of(RECORDS[0])
    catalogue.choose(0.0)
    catalogue.admitted(PEERS[0], 0.0)
    moved = record(PEERS[0], text="/ip4/10.0.0.9/tcp/9")
    catalogue.update([moved])
    assert catalogue.attached == (moved,)
    assert catalogue.addresses(PEERS[0]) == moved.addresses
    assert catalogue.addresses(PEERS[1]) == ()


def test_a_router_behind_a_router_is_none_for_us() -> None:
    behind = record(PEERS[0], text=f"/ip4/10.0.0.1/tcp/1/p2p/{PEERS[1]}/p2p-circuit")
    both = attrs.evolve(RECORDS[2], addresses=(*RECORDS[2].addresses, *behind.addresses))
    catalogue = catalogue_of(behind, both)
    assert catalogue.choose(0.0) == [RECORDS[2]]


def test_a_list_is_read_up_to_its_bound() -> None:
    many = (record(PeerId.from_ed25519(number.to_bytes(32, "big"))) for number in range(MAX_ROUTERS + 10))
    catalogue = catalogue_of(*many)
    assert len(catalogue) == MAX_ROUTERS
    catalogue.update([])
    assert len(catalogue) == 0


@pytest.mark.parametrize("misuse", ["admitted", "failed", "lost", "sent_away"])
@pytest.mark.parametrize("peer", [PEERS[0], PEERS[1]], ids=["free", "unknown"])
def test_a_report_that_does_not_fit_is_our_own_fault(misuse: str, peer: PeerId) -> None:
    catalogue = catalogue_of(RECORDS[0])
    with pytest.raises(LocalProtocolError):
        getattr(catalogue, misuse)(peer, *([60.0] if misuse == "sent_away" else []), 0.0)
    assert catalogue.state(PEERS[0]) is State.FREE


def test_an_attempt_that_is_under_way_can_not_be_lost() -> None:
    catalogue = catalogue_of(RECORDS[0])
    catalogue.choose(0.0)
    with pytest.raises(LocalProtocolError, match="while attaching"):
        catalogue.lost(PEERS[0], 0.0)
