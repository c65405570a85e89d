"""The traces of choices: bounded for one agent, and for all."""

from hypothesis import given
from hypothesis import strategies as st

from agentmesh.pool.router.trace import Considered, Scope, Trace, TraceBook, TraceRing

MOST = 40


def trace(considered: int, name: str = "t") -> Trace:
    looked_at = tuple(Considered(f"c{n}", 1, 0) for n in range(considered))
    return Trace(trace_id=name, at=0.0, protocol="tcp", scope=Scope.LOCAL, considered=looked_at, chosen="c0")


def test_a_ring_forgets_the_oldest_and_counts_all() -> None:
    ring = TraceRing(max_traces=2)
    for name in ("a", "b", "c"):
        ring.add(trace(1, name))
    assert [one.trace_id for one in ring.latest()] == ["b", "c"]
    assert (ring.chosen[Scope.LOCAL], ring.find("a"), len(ring), ring.size) == (3, None, 2, 4)


def test_an_agent_that_nothing_was_chosen_for_has_the_same_ring_when_it_is_asked_again() -> None:
    book = TraceBook()
    assert book.of("a") is book.of("a") is book.get("a")
    assert book.get("b") is None


def test_the_traces_of_whoever_was_chosen_for_longest_ago_go_first_and_their_numbers_stay() -> None:
    book = TraceBook(max_held=MOST)
    old, new = book.of("old"), book.of("new")
    for ring in (old, new, old):
        ring.add(trace(9))
    new.add(trace(19))  # of 10, 10, 10 and 20 those of whoever was last but one
    assert [len(old), len(new)] == [0, 2]
    assert old.chosen[Scope.LOCAL] == 2


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 8), st.booleans()), max_size=60),
    st.integers(1, 4),
)
def test_no_more_is_held_than_may_be(adds: list[tuple[str, int, bool]], max_agents: int) -> None:
    """Rings that the book has forgotten are used all the same: by a pool that has one from before."""
    book, held = TraceBook(max_agents, max_held=MOST), dict[str, TraceRing]()
    for agent, considered, anew in adds:
        ring = book.of(agent) if anew else held.setdefault(agent, book.of(agent))
        ring.add(trace(considered))
        assert sum(ring.size for _, ring in book.items()) <= MOST
        assert len(book) <= max_agents
        assert book.get(agent) is ring
