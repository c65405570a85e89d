"""Whom a router sends away, and how fast, in virtual time."""

import math

import pytest
import trio
from trio.testing import MockClock

from agentmesh.protocols.goaway import Reason, Result
from agentmesh.router.departures import AT_ONCE, MAX_SPREAD, OVERLOADED_RETRY, SHED_INTERVAL, spread_of
from agentmesh.router.members import SETTLED_TIME
from agentmesh.runtime.config import ConnectionLimits, HostConfig
from tests.node.fleet import open_fleet


def small(high: int, low: int) -> HostConfig:
    return HostConfig(connections=ConnectionLimits(high_watermark=high, low_watermark=low, max_per_source=high))


@pytest.mark.parametrize(
    ("members", "within", "seconds"),
    [
        (0, math.inf, 0.0),
        (AT_ONCE, math.inf, 0.0),
        (AT_ONCE + 50, math.inf, 4.0),
        (750, 30.0, 15.0),
        (4000, 30.0, MAX_SPREAD),
        (4000, 3.0, 2.0),
    ],
)
def test_members_that_are_many_are_told_one_after_the_other(members: int, within: float, seconds: float) -> None:
    assert spread_of(members, Reason.DRAINING, within) == seconds


def test_members_that_are_too_many_are_told_one_after_the_other() -> None:
    assert [spread_of(members, Reason.OVERLOADED) for members in (0, 15, 600)] == [0.0, 1.0, MAX_SPREAD]


async def test_those_who_have_hardly_come_are_sent_away_last(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        router = await fleet.router("router", host=small(8, 5))
        old = [await fleet.node(f"old-{number}") for number in range(4)]
        await trio.sleep(SETTLED_TIME)
        assert set(router.members.settled) == {node.peer for node in old}
        new = [await fleet.node(f"new-{number}") for number in range(4)]
        await trio.sleep(SHED_INTERVAL + 0.5)
        assert router.departures.sent[Reason.OVERLOADED, Result.OK] == 3
        present = set(router.members.present)
        assert {node.peer for node in new} <= present
        assert len(present & {node.peer for node in old}) == 1


async def test_a_router_that_sent_some_away_does_not_fill_up_to_where_it_has_to_again(
    autojump_clock: MockClock,
) -> None:
    async with open_fleet() as fleet:
        router = await fleet.router("router", host=small(4, 2))
        for number in range(4):
            await fleet.node(f"first-{number}")
        await trio.sleep(2 * SHED_INTERVAL)
        counts = [len(router.members.present)]
        for number in range(4):
            await fleet.node(f"second-{number}", ready_timeout=1.0)
        counts.append(len(router.members.present))
        assert counts == [2, 3]
        await trio.sleep(100)
        assert router.departures.sent[Reason.OVERLOADED, Result.OK] == 2  # it did so once
        await trio.sleep(OVERLOADED_RETRY)
        assert router.departures.sent[Reason.OVERLOADED, Result.OK] > 2  # whoever wants to can come again
