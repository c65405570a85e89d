"""The pulse: everything that is kept is beaten when it is due, by one task, and nothing after it is let go."""

import math

import attrs
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from agentmesh.runtime.nursery import open_background
from agentmesh.runtime.pulse import Pulse


@attrs.define(eq=False)
class Heart:
    """Is beaten at intervals, and remembers when it was."""

    interval: float
    beats: list[float] = attrs.Factory(list[float])

    def beat(self, now: float) -> float:
        self.beats.append(now)
        return now + self.interval


async def test_a_heart_is_beaten_at_once_and_then_when_it_is_due(autojump_clock: MockClock) -> None:
    pulse, fast, slow = Pulse(), Heart(2.0), Heart(5.0)
    async with open_background() as nursery:
        nursery.start_soon(pulse.run)
        with pulse.keeping(fast):
            await trio.sleep(1)
            with pulse.keeping(slow):
                await trio.sleep(10.5)
            await trio.sleep(10)
    assert fast.beats == list(range(0, 21, 2))
    assert slow.beats == [1, 6, 11]


async def test_one_that_is_never_due_again_is_left_alone(autojump_clock: MockClock) -> None:
    pulse, still = Pulse(), Heart(math.inf)
    async with open_background() as nursery:
        nursery.start_soon(pulse.run)
        with pulse.keeping(still):
            await trio.sleep(80_000)
        assert len(pulse) == 0
    assert still.beats == [0]


async def test_those_that_are_let_go_leave_nothing_behind_once_they_would_have_been_due(
    autojump_clock: MockClock,
) -> None:
    pulse = Pulse()
    async with open_background() as nursery:
        nursery.start_soon(pulse.run)
        for _ in range(100):
            with pulse.keeping(Heart(3.0)):
                await wait_all_tasks_blocked()
        assert len(pulse) == 100
        await trio.sleep(3)
        await wait_all_tasks_blocked()
        assert len(pulse) == 0


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 20), st.integers(0, 20)), max_size=8))
def test_any_hearts_for_any_times(kept: list[tuple[int, int, int]]) -> None:
    """Each: its interval, from when and for how long it is kept."""
    hearts = [Heart(interval) for interval, _, _ in kept]

    async def keep(pulse: Pulse, heart: Heart, start: int, length: int) -> None:
        await trio.sleep(start)
        with pulse.keeping(heart):
            await trio.sleep(length + 0.5)

    async def main() -> None:
        pulse = Pulse()
        async with open_background() as nursery:
            nursery.start_soon(pulse.run)
            async with trio.open_nursery() as keepers:
                for heart, (_, start, length) in zip(hearts, kept, strict=True):
                    keepers.start_soon(keep, pulse, heart, start, length)

    trio.run(main, clock=MockClock(autojump_threshold=0))
    for heart, (interval, start, length) in zip(hearts, kept, strict=True):
        assert heart.beats == list(range(start, start + length + 1, interval))
