import pytest
import trio

from agentmesh.testing import deterministic_schedule, run


async def order_of_tasks() -> list[int]:
    order: list[int] = []

    async def task(number: int) -> None:
        for _ in range(5):
            await trio.lowlevel.checkpoint()
            order.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(5):
            nursery.start_soon(task, number)
    return order


def test_sleeping_takes_no_time() -> None:
    async def day() -> float:
        began = trio.current_time()
        await trio.sleep(24 * 3600)
        return trio.current_time() - began

    assert run(day) == pytest.approx(24 * 3600)


def test_arguments_are_passed_on() -> None:
    async def add(one: int, other: int) -> int:
        await trio.lowlevel.checkpoint()
        return one + other

    assert run(add, 1, 2) == 3


def test_the_seed_decides_the_order() -> None:
    orders = [tuple(run(order_of_tasks, seed=seed)) for seed in range(10)]
    assert orders == [tuple(run(order_of_tasks, seed=seed)) for seed in range(10)]
    assert len(set(orders)) > 5


def test_chance_comes_back_afterwards() -> None:
    with pytest.raises(KeyError), deterministic_schedule(1):
        raise KeyError
    assert len({tuple(trio.run(order_of_tasks)) for _ in range(30)}) > 1
