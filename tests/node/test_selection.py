"""Which routers are chosen by what they are attested: all of the selector, and the more of the preferred the sooner."""

from collections.abc import Mapping
from random import Random

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from agentmesh.control_plane.routers import RouterRecord
from agentmesh.node.catalogue import Catalogue
from agentmesh.node.selection import LOAD_JITTER, Selection, load_of
from agentmesh.types import Address, PeerId
from tests.node.fleet import open_fleet, wait_attached

PAIRS = st.dictionaries(st.sampled_from(["site", "tier", "zone"]), st.sampled_from(["a", "b"]), max_size=3)


def router(
    number: int, labels: Mapping[str, str] | None = None, connections: int = 0, connection_limit: int = 100
) -> RouterRecord:
    peer = PeerId.from_ed25519(bytes([number]) * 32)
    address = Address.parse("/ip4/10.0.0.1/tcp/1").with_peer(peer)
    return RouterRecord(peer, (address,), labels or {}, connections, connection_limit)


@st.composite
def fleets(draw: st.DrawFn) -> list[RouterRecord]:
    loads = st.tuples(PAIRS, st.integers(-5, 200), st.integers(-1, 100))
    return [router(number, *load) for number, load in enumerate(draw(st.lists(loads, max_size=8)))]


def chosen(routers: list[RouterRecord], selection: Selection, wanted: int = 2, seed: int = 1) -> list[RouterRecord]:
    catalogue = Catalogue(wanted, Random(seed), selection)
    catalogue.update(routers)
    return catalogue.choose(0.0)


@given(fleets(), PAIRS, PAIRS, st.integers(1, 9), st.integers())
def test_the_order_of_choice(
    routers: list[RouterRecord], selector: dict[str, str], prefer: dict[str, str], wanted: int, seed: int
) -> None:
    selection = Selection(selector, prefer)
    found = chosen(routers, selection, wanted, seed)
    matching = [one for one in routers if selector.items() <= one.labels.items()]
    assert len(found) == min(wanted, len(matching))  # every router when there are fewer
    assert all(one in matching for one in found)

    def attested(one: RouterRecord) -> int:
        return len(prefer.items() & one.labels.items())

    ranks = [(-attested(one), load_of(one)) for one in found]
    for before, after in zip(ranks, ranks[1:], strict=False):
        assert before[0] < after[0] or (before[0] == after[0] and before[1] <= after[1] + LOAD_JITTER)
    left = [(-attested(one), load_of(one)) for one in matching if one not in found]
    if found and left:
        worst = max(ranks)
        assert all(worst[0] < one[0] or (worst[0] == one[0] and worst[1] <= one[1] + LOAD_JITTER) for one in left)


def test_preference_goes_before_load_and_load_decides_among_equals() -> None:
    near_full, near, far = router(1, {"site": "a"}, 90), router(2, {"site": "a"}, 10), router(3, {"site": "b"}, 0)
    assert chosen([far, near_full, near], Selection(prefer={"site": "a"})) == [near, near_full]


def test_a_router_that_was_lost_comes_behind_its_equals_and_before_those_that_are_worth_less() -> None:
    one, two, other = router(1, {"site": "a"}), router(2, {"site": "a"}, 90), router(3, {"site": "b"})
    catalogue = Catalogue(1, Random(1), Selection(prefer={"site": "a"}))
    catalogue.update([one, two, other])
    assert catalogue.choose(0.0) == [one]
    catalogue.admitted(one.peer, 0.0)
    catalogue.lost(one.peer, 100.0)
    assert catalogue.choose(100.0) == [two]
    catalogue.failed(two.peer, 100.0)
    assert catalogue.choose(100.0) == [one]


def test_a_selector_that_nobody_attests_is_complained_of_with_the_labels_there_are() -> None:
    selection = Selection({"site": "c", "tier": "1"})
    routers = [router(1, {"site": "a"}), router(2, {"site": "b", "tier": "1"}), router(3)]
    complaint = selection.complaint(routers)
    assert complaint == "no router has site=c,tier=1; labels seen: site=a, site=b, tier=1"
    assert selection.complaint([router(1)]) == "no router has site=c,tier=1; labels seen: none"
    assert selection.complaint([]) is None  # there is no router to complain of
    assert selection.complaint([*routers, router(4, {"site": "c", "tier": "1"})]) is None
    many = [router(1, {f"key{number}": "x" for number in range(25)})]
    assert selection.complaint(many) is not None
    assert str(selection.complaint(many)).endswith(" and 5 more")


def test_what_is_wanted_is_no_more_than_the_selector_admits() -> None:
    catalogue = Catalogue(2, Random(1), Selection({"site": "a"}))
    catalogue.update([router(1, {"site": "a"}), router(2)])
    assert (catalogue.wanted, len(catalogue.matching), len(catalogue.listed)) == (1, 1, 2)
    catalogue.update(
        [attrs.evolve(router(2), labels={"site": "a"}), router(1, {"site": "a"}), router(3, {"site": "a"})]
    )
    assert catalogue.wanted == 2


async def test_a_node_holds_only_routers_that_its_selector_names(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        here = [await fleet.router(f"a{number}", labels={"site": "a"}) for number in range(2)]
        await fleet.router("b0", labels={"site": "b"})
        node = await fleet.node("node", routers=3, router_selector={"site": "a"})
        await trio.sleep(100)
        assert set(node.routers) == {router.peer for router in here}


async def test_a_node_holds_preferred_routers_first_and_others_when_there_are_no_more(
    autojump_clock: MockClock,
) -> None:
    async with open_fleet() as fleet:
        near = await fleet.router("a0", labels={"site": "a"})
        far = [await fleet.router(f"b{number}", labels={"site": "b"}) for number in range(2)]
        node = await fleet.node("node", routers=2, router_prefer={"site": "a"})
        await trio.sleep(100)
        assert near.peer in node.routers
        assert len(set(node.routers) & {router.peer for router in far}) == 1


async def test_a_selector_that_nobody_attests_is_tried_again_with_a_warning(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_fleet() as fleet:
        router = await fleet.router("router", labels={"site": "b"})
        node = await fleet.node("node", router_selector={"site": "a"}, ready_timeout=5.0)
        assert node.routers == ()
        (warning, *_) = [record for record in caplog.records if record.getMessage() == "no router to attach to"]
        assert "site=a" in vars(warning)["reason"]
        assert "site=b" in vars(warning)["reason"]
        listed = fleet.plane.routers[router.peer]
        fleet.plane.routers[router.peer] = attrs.evolve(listed, labels={"site": "a"})
        await wait_attached(node, router, within=67)


async def test_a_router_that_is_banned_is_left_and_not_chosen_again(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        routers = {router.peer: router for router in [await fleet.router("r0"), await fleet.router("r1")]}
        node = await fleet.node("node", routers=1)
        (held,) = node.routers
        fleet.plane.banned.add(held)
        (other,) = set(routers) - {held}
        await wait_attached(node, routers[other], within=1000)
        await trio.sleep(100)
        assert node.routers == (other,)
