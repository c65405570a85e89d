"""The catalogue in every order of what may happen to it, against a model with none of its code."""

import math
from random import Random

import attrs
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agentmesh.control_plane.routers import RouterRecord
from agentmesh.node.catalogue import MAX_SHUN_TIME, REFUSED_WAIT, STEADY_TIME, Catalogue
from agentmesh.node.selection import Selection
from agentmesh.node.standing import SHUN_TIME
from agentmesh.types import PeerId
from tests.node.test_catalogue import PEERS, RECORDS, peers

LABELS = [
    {"site": "a", "tier": "1"},
    {"site": "a", "tier": "1"},
    {"site": "a"},
    {"site": "a", "tier": "2"},
    {"tier": "1"},
]
LABELLED = [attrs.evolve(one, labels=labels) for one, labels in zip(RECORDS, [*LABELS, {"site": "b"}], strict=True)]
MATCHING, PREFERRED = set(PEERS[:4]), set(PEERS[:2])


@attrs.define
class Standing:
    """What the model knows of one router."""

    state: str = "free"
    failures: int = 0
    not_before: float = -math.inf
    since: float = 0.0
    shunned_at: float = math.inf
    has_no_place: bool = False  # for us: it sent us away, or refused us
    is_left_alone: bool = False


class Driver(RuleBasedStateMachine):
    """Every order of lists, choices, outcomes and clock, against a model with none of the catalogue's code."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.wanted = 2
        self.catalogue = Catalogue(self.wanted, Random(0), Selection({"site": "a"}, {"tier": "1"}))
        self.listed = set[PeerId]()
        self.model = dict[PeerId, Standing]()

    def those(self, state: str) -> list[PeerId]:
        return [peer for peer, standing in self.model.items() if standing.state == state]

    @rule(
        listed=st.lists(st.sampled_from(LABELLED), unique_by=lambda record: record.peer),
        banned=st.sets(st.sampled_from(PEERS), max_size=1),
    )
    def read(self, listed: list[RouterRecord], banned: set[PeerId]) -> None:
        self.catalogue.update(listed, banned)
        self.listed = set(peers(listed)) - banned
        for peer in self.listed:
            self.model.setdefault(peer, Standing())
        self.forget()

    @rule()
    def choose(self) -> None:
        free = [p for p in self.those("free") if p in self.listed and self.model[p].not_before <= self.now]
        ready = [p for p in free if p in MATCHING]
        if (last := self.last_resort()) is not None and self.cut_short(last) <= self.now:
            ready = ready or [last]
        missing = self.wanted - len(self.those("attaching")) - len(self.those("attached"))
        chosen = peers(self.catalogue.choose(self.now))
        assert len(chosen) == len(set(chosen)) == min(max(missing, 0), len(ready))
        assert set(chosen) <= set(ready)
        left = [p for p in ready if p not in chosen]
        assert not (chosen and any(p in PREFERRED for p in left)) or all(p in PREFERRED for p in chosen)
        for peer in chosen:
            standing = self.model[peer]
            standing.state, standing.has_no_place, standing.is_left_alone = "attaching", False, False
        for peer in self.those("free"):
            if self.model[peer].not_before <= self.now:
                self.model[peer].failures %= 6
                self.model[peer].has_no_place = self.model[peer].is_left_alone = False
        self.forget()

    @precondition(lambda self: self.those("attaching"))
    @rule(data=st.data())
    def admit(self, data: st.DataObject) -> None:
        peer = data.draw(st.sampled_from(self.those("attaching")))
        self.catalogue.admitted(peer, self.now)
        self.model[peer].state, self.model[peer].since = "attached", self.now

    @precondition(lambda self: self.those("attaching"))
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        peer = data.draw(st.sampled_from(self.those("attaching")))
        self.catalogue.failed(peer, self.now)
        self.set_back(self.model[peer])
        self.forget()

    @precondition(lambda self: self.those("attaching"))
    @rule(data=st.data())
    def refuse(self, data: st.DataObject) -> None:
        peer = data.draw(st.sampled_from(self.those("attaching")))
        self.catalogue.refused(peer, self.now)
        until = self.now + REFUSED_WAIT
        self.model[peer] = Standing("free", 0, until, 0.0, self.now, has_no_place=True, is_left_alone=True)
        self.forget()

    @precondition(lambda self: self.those("attached"))
    @rule(data=st.data(), retry_after=st.sampled_from([0.0, 5.0, 30.0, 300.0, 1e5]))
    def send_away(self, data: st.DataObject, retry_after: float) -> None:
        peer = data.draw(st.sampled_from(self.those("attached")))
        self.catalogue.sent_away(peer, retry_after, self.now)
        standing = self.model[peer]
        standing.state, standing.shunned_at = "leaving", self.now
        standing.not_before = self.now + min(retry_after or SHUN_TIME, MAX_SHUN_TIME)

    @precondition(lambda self: self.those("attached") + self.those("leaving"))
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        peer = data.draw(st.sampled_from(self.those("attached") + self.those("leaving")))
        self.catalogue.lost(peer, self.now)
        standing = self.model[peer]
        if standing.state == "leaving":
            standing.state, standing.failures = "free", 0
            standing.has_no_place = standing.is_left_alone = True
        elif self.now - standing.since < STEADY_TIME:
            self.set_back(standing)
        else:
            standing.state, standing.failures, standing.not_before = "free", 0, -math.inf
        self.forget()

    @rule(seconds=st.sampled_from([0.5, 2.0, 10.0, 61.0, 300.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    def set_back(self, standing: Standing) -> None:
        standing.failures = min(standing.failures + 1, 6)
        wait = SHUN_TIME if standing.failures == 6 else 2.0**standing.failures
        standing.state, standing.not_before, standing.is_left_alone = "free", self.now + wait, True
        if standing.failures == 6:
            standing.shunned_at = self.now

    def cut_short(self, peer: PeerId) -> float:
        return min(self.model[peer].not_before, self.model[peer].shunned_at + 60)

    def last_resort(self) -> PeerId | None:
        """Of whoever shuns all that there are, the one whose time comes first."""
        mine = {p: s for p, s in self.model.items() if (p in self.listed and p in MATCHING)}
        standings = mine | {p: s for p, s in self.model.items() if s.state in ("attaching", "attached")}
        waiting = {p: s for p, s in standings.items() if s.state == "free" and s.not_before > self.now}
        shunned = [p for p, s in waiting.items() if s.failures == 6 or s.has_no_place]
        if not shunned or len(shunned) < len(standings):
            return None
        return min(shunned, key=self.cut_short)

    def forget(self) -> None:
        kept = {p for p, s in self.model.items() if s.is_left_alone or s.state != "free"}
        self.model = {p: s for p, s in self.model.items() if p in self.listed | kept}

    @invariant()
    def never_more_than_wanted(self) -> None:
        assert len(self.those("attaching")) + len(self.those("attached")) <= self.wanted
        assert set(peers(self.catalogue.attached)) == set(self.those("attached"))
        assert self.catalogue.is_short == (len(self.those("attached")) < self.wanted)

    @invariant()
    def nothing_is_kept_that_is_neither_listed_nor_held_nor_left_alone(self) -> None:
        assert len(self.catalogue) == len(self.model) <= len(PEERS)
        assert set(peers(self.catalogue.listed)) == self.listed
        assert all(self.catalogue.state(peer) is not None for peer in self.model)

    @invariant()
    def the_deadline_wakes_whoever_waits_for_the_next_router(self) -> None:
        free = [s for p, s in self.model.items() if s.state == "free" and p in self.listed]
        waits = [s.not_before for s in free if s.not_before > self.now]
        assert self.catalogue.deadline <= min(waits, default=math.inf)
        if (last := self.last_resort()) is not None:
            assert self.catalogue.deadline == self.cut_short(last)


TestCatalogueInEveryOrder = Driver.TestCase
