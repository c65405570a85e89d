"""The queue of bytes, against a plain string of bytes."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from agentmesh.runtime.yamux.chunks import Chunk, Chunks


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

    @rule()
    def take_all(self) -> None:
        assert joined(self.chunks.take_all()) == self.model
        self.model = b""

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


def test_taking_byte_by_byte_moves_each_piece_a_bounded_number_of_times() -> None:
    count = 200_000
    chunks = Chunks()
    for _ in range(count):
        chunks.append(b"x")
    for _ in range(count):
        assert chunks.take(1) == [b"x"]
    assert not chunks
