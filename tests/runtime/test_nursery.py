"""Whose exception leaves the block, and in what wrapping."""

import pytest
import trio

from agentmesh.runtime.nursery import open_background


async def _fail() -> None:
    raise ValueError("task")


async def test_the_blocks_own_exception_leaves_bare() -> None:
    cause = OSError("why")
    with pytest.raises(KeyError) as caught:
        async with open_background() as nursery:
            nursery.start_soon(trio.sleep_forever)
            raise KeyError("mine") from cause
    assert caught.value.__cause__ is cause


async def test_a_tasks_exception_leaves_in_a_group() -> None:
    with pytest.raises(ExceptionGroup) as caught:
        async with open_background() as nursery:
            nursery.start_soon(_fail)
            await trio.sleep_forever()
    assert caught.group_contains(ValueError, match="task")


async def test_both_leave_together() -> None:
    with pytest.raises(ExceptionGroup) as caught:
        async with open_background() as nursery:
            nursery.start_soon(_fail)
            raise KeyError("mine")
    assert caught.group_contains(KeyError)


async def test_nothing_raised_is_nothing() -> None:
    async with open_background() as nursery:
        nursery.start_soon(trio.lowlevel.checkpoint)
