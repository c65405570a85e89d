"""Bytes through the pool, from a client's router to an agent's target and back, in virtual time: none is lost, none
comes twice, none waits for ever, and nobody waits for another stream.
"""

import itertools

import pytest
import trio
from hypothesis import given, settings
from trio.testing import MockClock, wait_all_tasks_blocked

from agentmesh.pool.router.attached import attached_to
from agentmesh.testing.clock import run
from agentmesh.testing.links import Conditions
from tests.pool.scripts import CUT_SCRIPTS, SCRIPTS, Cuttable, End, Script, Transcript, play
from tests.pool.test_pool import quiet
from tests.pool.worlds import HELD, Cluster, open_cluster, say

FEW = settings(max_examples=40, deadline=None)
WINDOWS = 2 * 16 * 1024 * 1024  # two hops, as much as either's window may grow to


async def transcript_of(script: Script, conditions: Conditions) -> Transcript:
    async with open_cluster() as cluster, cluster.agent("i1"):
        cluster.network.set_conditions("i1", "router", conditions)
        await cluster.wait_for(1)
        client = await cluster.open(HELD)
        found = await play(script, client, cluster.targets.held[-1])
        await trio.sleep(5)
        assert quiet(cluster)
        assert all(host.statistics().connections.held_bytes == 0 for host in (cluster.host, cluster.hosts["i1"]))
        return found


@FEW
@given(SCRIPTS)
def test_whatever_is_said_is_heard_and_ends_once(script: Script) -> None:
    """In pieces of any size, taken in pieces of any size, and however long nobody reads: no byte behind the end, no
    end before the last byte, and no stream that waits for ever.
    """
    found = run(transcript_of, script, Conditions(latency=0.05, bandwidth=5e6))
    is_whole = found.forth.is_all_of(script.forth) and found.back.is_all_of(script.back)
    assert is_whole, found


@FEW
@given(CUT_SCRIPTS)
def test_what_is_broken_off_is_no_whole(script: Script) -> None:
    """Each side hears what the other said, or a part of it, and takes no part for all."""
    found = run(transcript_of, script, Conditions(latency=0.05))
    for way, heard in ((script.forth, found.forth), (script.back, found.back)):
        is_honest = heard.is_part_of(way) or (heard.is_all_of(way) and way.end is End.EOF)
        assert is_honest, found


async def pour(stream: Cuttable, poured: list[int]) -> None:
    while True:
        await stream.send_all(bytes(32 * 1024))
        poured.append(32 * 1024)


@pytest.mark.parametrize("who", ["target", "client"])
async def test_who_does_not_read_holds_up_nobody(autojump_clock: MockClock, who: str) -> None:
    """Not its neighbours, not the heartbeats, whichever way; what waits for it is bounded, and comes when it reads."""
    async with open_cluster() as cluster, cluster.agent("i1"):
        cluster.network.set_conditions("i1", "router", Conditions(latency=0.02))
        await cluster.wait_for(1)
        stuck, other = await cluster.open(HELD), await cluster.open()
        far = cluster.targets.held[-1]
        writer, reader = (stuck, far) if who == "target" else (far, stuck)
        poured: list[int] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pour, writer, poured)
            for _ in range(20):
                await trio.sleep(5)
                began = trio.current_time()
                assert await say(other) == b"hello"
                assert trio.current_time() - began < 0.1  # one round trip, and not what the other waits for
                await check_beats(cluster)
            assert 0 < sum(poured) < WINDOWS
            before = sum(poured)
            for _ in range(40):
                assert await reader.receive_some()
            await trio.sleep(5)
            assert sum(poured) > before  # what was read is credited, and only that
            assert sum(poured) < WINDOWS + 40 * 64 * 1024
            nursery.cancel_scope.cancel()


async def check_beats(cluster: Cluster) -> None:
    pool = cluster.table.get("agent")
    assert pool is not None
    [connection] = pool.connections
    rtt = attached_to(connection).control.machine.beat.rtt
    assert rtt is not None
    assert rtt < 0.1
    assert trio.current_time() - connection.heard_at <= 10.1
    await trio.lowlevel.checkpoint()


async def test_two_that_pour_share_the_link(autojump_clock: MockClock) -> None:
    """And a third that says little is not behind them."""
    async with open_cluster() as cluster, cluster.agent("i1"):
        cluster.network.set_conditions("i1", "router", Conditions(latency=0.01, bandwidth=2e6))
        await cluster.wait_for(1)
        other, *busy = [await cluster.open(), await cluster.open(HELD), await cluster.open(HELD)]
        taken, poured = [0, 0], list[int]()

        async def take(number: int) -> None:
            while data := await cluster.targets.held[number].receive_some():
                taken[number] += len(data)

        async with trio.open_nursery() as nursery:
            for number, stream in enumerate(busy):
                nursery.start_soon(pour, stream, poured)
                nursery.start_soon(take, number)
            shares: list[tuple[int, int]] = []
            for _ in range(10):
                await trio.sleep(1)
                shares.append((taken[0], taken[1]))
                began = trio.current_time()
                assert await say(other) == b"hello"
                assert trio.current_time() - began < 0.5
            nursery.cancel_scope.cancel()
        for (one, two), (first, second) in itertools.pairwise(shares):
            assert abs((first - one) - (second - two)) < 0.2e6  # of the 2 MB that each of these seconds had
        assert sum(shares[-1]) > 15e6  # the link was full


async def test_a_thousand_short_streams_leave_no_more_than_one(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, cluster.agent("i1") as agent:
        await cluster.wait_for(1)
        for _ in range(1000):
            stream = await cluster.open(HELD)
            stream.reset()
            await cluster.targets.held.pop().aclose()
        await wait_all_tasks_blocked()
        [link] = agent.links.values()
        assert quiet(cluster)
        assert len(link.session.streams) == 1
        assert not link.opens
        assert cluster.host.statistics().connections.held_bytes == 0
