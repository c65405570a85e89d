"""The queue of bytes, against a plain string of bytes."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agentmesh.runtime.yamux.chunks import LARGE_BYTES, Chunk, Chunks


class ChunksMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.chunks = Chunks()
        self.model = b""

    @rule(data=st.binary(min_size=1, max_size=20), view=st.booleans())
    def append(self, data: bytes, view: bool) -> None:
        self.chunks.append(memoryview(data) if view else data)
        self.model += data

    @rule(size=st.integers(0, 50))
    def take(self, size: int) -> None:
        assert joined(self.chunks.take(size)) == self.model[:size]
        self.model = self.model[size:]

    @precondition(lambda self: self.model)
    @rule(size=st.none() | st.integers(1, 50))
    def take_some(self, size: int | None) -> None:
        taken = self.chunks.take_some(size)
        assert taken == self.model[:size]
        self.model = self.model[len(taken) :]

    @rule()
    def clear(self) -> None:
        self.chunks.clear()
        self.model = b""

    @invariant()
    def is_empty_when_it_is(self) -> None:
        assert bool(self.chunks) == bool(self.model)


def joined(taken: list[Chunk]) -> bytes:
    return b"".join(taken)


TestChunks = ChunksMachine.TestCase
TestChunks.settings = settings(max_examples=100, stateful_step_count=30)


def test_a_large_piece_is_taken_as_it_came() -> None:
    chunks = Chunks()
    large = bytes(LARGE_BYTES)
    for chunk in (large, large, b"small", large):
        chunks.append(chunk)
    assert chunks.take_some(None) is large
    assert chunks.take_some(LARGE_BYTES - 1) == large[1:]
    assert chunks.take_some(None) == large[:1] + b"small" + large
    assert not chunks


def test_taking_byte_by_byte_moves_each_piece_a_bounded_number_of_times() -> None:
    count = 200_000
    chunks = Chunks()
    for _ in range(count):
        chunks.append(b"x")
    for _ in range(count):
        assert chunks.take(1) == [b"x"]
    assert not chunks
