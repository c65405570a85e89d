from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from agentmesh.protocols.floodsub.limits import FloodsubLimits
from agentmesh.protocols.floodsub.seen import SeenCache

NAMES = [bytes([n]) for n in range(8)]


def test_a_message_is_known_for_its_time() -> None:
    seen = SeenCache(100, 60.0)
    assert seen.add(b"a", 0.0)
    assert not seen.add(b"a", 59.9)
    assert seen.has(b"a", 59.9)
    assert not seen.has(b"a", 60.0), "being seen again gave it no more time"
    assert len(seen) == 0


def test_beyond_the_bound_the_oldest_is_forgotten() -> None:
    limits = FloodsubLimits()
    seen = SeenCache(limits.max_seen, limits.seen_ttl)
    for n in range(limits.max_seen + 3):
        assert seen.add(n.to_bytes(4), 0.0)
    assert len(seen) == limits.max_seen
    known = [seen.has(n.to_bytes(4), 0.0) for n in range(5)]
    assert known == [False, False, False, True, True]


class Caches(RuleBasedStateMachine):
    """Against a plain list of what was added and when."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.seen = SeenCache(5, 10.0)
        self.added: list[tuple[bytes, float]] = []

    @rule(name=st.sampled_from(NAMES))
    def add(self, name: bytes) -> None:
        known = any(name == one for one, _ in self.added)
        assert self.seen.add(name, self.now) is not known
        if not known:
            self.added = [*self.added, (name, self.now)][-5:]

    @rule(seconds=st.floats(0, 6))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.added = [(name, at) for name, at in self.added if at + 10.0 > self.now]

    @invariant()
    def it_knows_what_was_added_lately(self) -> None:
        assert [self.seen.has(name, self.now) for name in NAMES] == [
            any(name == one for one, _ in self.added) for name in NAMES
        ]
        assert len(self.seen) == len(self.added)


TestCaches = Caches.TestCase
TestCaches.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
