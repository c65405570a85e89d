"""The places where one task waits."""

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from agentmesh.runtime.guard import Guard, Seat, Signal


async def test_a_seat_wakes_whoever_waits_and_nobody_later() -> None:
    seat, woken = Seat(), trio.Event()

    async def wait() -> None:
        await seat.wait()
        woken.set()

    seat.wake()  # nobody is there: it is not remembered
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        assert not woken.is_set()
        seat.wake()
        seat.wake()
        await woken.wait()


async def test_a_seat_is_for_one() -> None:
    seat = Seat()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(seat.wait)
        await wait_all_tasks_blocked()
        with pytest.raises(trio.BusyResourceError):
            await seat.wait()
        seat.wake()


async def test_a_seat_left_by_cancellation_is_free_again() -> None:
    seat = Seat()
    with trio.move_on_after(0) as scope:
        await seat.wait()
    assert scope.cancelled_caught
    seat.wake()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(seat.wait)
        await wait_all_tasks_blocked()
        seat.wake()


async def test_a_wake_that_meets_a_cancellation_wins() -> None:
    seat = Seat()
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(seat.wait)
            await wait_all_tasks_blocked()
            seat.wake()
            scope.cancel()
    seat.wake()  # nobody is there any more


async def test_a_guard_lets_one_task_in() -> None:
    guard = Guard("testing")
    with guard, pytest.raises(trio.BusyResourceError, match="another task is already testing"), guard:
        raise AssertionError
    with guard:
        pass


@pytest.mark.parametrize("first", [True, False])
async def test_a_signal_counts_once_however_often_it_is_raised(first: bool) -> None:
    signal = Signal()
    async with trio.open_nursery() as nursery:
        if not first:
            nursery.start_soon(signal.wait)
            await wait_all_tasks_blocked()
        signal.set()
        signal.set()
        if first:
            await signal.wait()
    with trio.move_on_after(0) as scope:
        await signal.wait()
    assert scope.cancelled_caught
    signal.set()
    await signal.wait()
