"""Agents and a router, from the dial to the target, in virtual time."""

import itertools

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from agentmesh.errors import SessionClosedError
from agentmesh.pool.agent.config import ConnectionsConfig
from agentmesh.pool.agent.serving import ServingLimits
from agentmesh.pool.router.attached import Bearer, attached_to
from agentmesh.pool.router.audit import Action
from agentmesh.pool.router.claims import ConnectionKey, Reason
from agentmesh.pool.router.leased import PooledStream
from agentmesh.pool.router.limits import PoolLimits
from agentmesh.pool.router.selection import is_online
from agentmesh.protocols.pool import Closing, Code, ConnEpoch, DrainReason, OpenResult, Stage
from agentmesh.testing.cancellation import cancel_at_every_await
from tests.pool.worlds import BREAKING, ECHO, REFUSED, SLOW, Cluster, asked, open_cluster, say

THREE = ConnectionsConfig(min=3, max=3)


async def test_a_stream_reaches_its_target_and_each_way_ends_by_itself(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, cluster.agent("i1"):
        await cluster.wait_for(1)
        async with await cluster.open() as stream:
            assert await say(stream, b"x" * 300_000) == b"x" * 300_000
            await stream.send_all(b"the last")
            await stream.send_eof()
            said = b""
            while data := await stream.receive_some():
                said += data
            assert said == b"the last"
        await wait_all_tasks_blocked()
        assert cluster.targets.cut == 0
        assert quiet(cluster)


def quiet(cluster: Cluster) -> bool:
    """Whether nothing is left of any stream, in any place where something could be."""
    pools = list(cluster.table)
    connections = [one for pool in pools for one in pool.connections]
    return not any(
        one.leases
        or attached_to(one).streams
        or attached_to(one).opening
        or attached_to(one).control.machine.open_streams
        for one in connections
    )


async def test_two_processes_and_six_connections_are_one_agent(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, cluster.agent("i1", THREE), cluster.agent("i2", THREE):
        await cluster.wait_for(6)
        assert cluster.connections().count("i1") == 3
        streams = [await cluster.open() for _ in range(12)]
        assert [await say(stream) for stream in streams] == [b"hello"] * 12
        used = [stream.key for stream in streams]
        assert {used.count(key) for key in used} == {2}
        # the same number on every connection, and six streams of bytes
        assert sorted(stream.lease.stream_id for stream in streams) == [1] * 6 + [2] * 6
        for stream in streams:
            await stream.aclose()
        await wait_all_tasks_blocked()
        assert quiet(cluster)


async def test_a_connection_that_is_lost_takes_its_own_streams_and_no_others(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, cluster.agent("i1", THREE):
        await cluster.wait_for(3)
        streams = [await cluster.open() for _ in range(6)]
        victim = streams[0].lease.connection
        attached_to(victim).session.abort("the cable")
        await wait_all_tasks_blocked()
        for stream in streams:
            if stream.lease.connection is victim:
                with pytest.raises(SessionClosedError):
                    await stream.receive_some()
            else:
                assert await say(stream) == b"hello"
        assert is_online(cluster.table.get("agent"), cluster.table.limits, trio.current_time())
        assert await say(await cluster.open()) == b"hello"
        await cluster.wait_for(3)
        pool = cluster.table.get("agent")
        assert pool is not None
        assert victim.connection_id not in pool.by_id  # a fresh ID for each dial


async def test_a_process_that_dies_leaves_the_others_alone(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, cluster.agent("i1", THREE):
        async with cluster.agent("i2", THREE):
            await cluster.wait_for(6)
        await cluster.wait_for(3)
        assert set(cluster.connections()) == {"i1"}
        assert await say(await cluster.open()) == b"hello"
    assert isinstance(await cluster.service.opener.open("agent", asked()), OpenResult)


async def test_an_agent_nobody_has_heard_of_is_offline(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster:
        result = await cluster.service.opener.open("nobody", asked())
        assert isinstance(result, OpenResult)
        assert result.code is Code.AGENT_OFFLINE


async def test_a_credential_for_another_agent_is_refused(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, cluster.agent("i1", label="other"), cluster.agent("i2", label=None):
        await trio.sleep(30)
        assert cluster.connections() == []
        assert cluster.table.refused[Reason.IDENTITY_MISMATCH] == 2  # and they have not come again: it was no outage


async def test_a_router_that_is_full_is_left_alone(autojump_clock: MockClock) -> None:
    limits = PoolLimits(max_connections_per_agent=2)
    async with (
        open_cluster(limits) as cluster,
        cluster.agent("i1", ConnectionsConfig(min=2, max=8)),
        cluster.agent("i2", ConnectionsConfig(min=2, max=8)),
    ):
        await trio.sleep(600)
        assert len(cluster.connections()) == 2
        assert cluster.table.refused[Reason.MAX_CONNECTIONS_PER_AGENT] < 100


@pytest.mark.parametrize(
    ("host", "result"),
    [
        (REFUSED, OpenResult(Stage.CONNECT, Code.CONNECTION_REFUSED)),
        (SLOW, OpenResult(Stage.CONNECT, Code.TIMEOUT)),
        ("127.0.0.1", OpenResult(Stage.POLICY, Code.FORBIDDEN)),
    ],
)
async def test_a_target_that_is_not_reached(autojump_clock: MockClock, host: str, result: OpenResult) -> None:
    async with open_cluster() as cluster, cluster.agent("i1", THREE):
        await cluster.wait_for(3)
        for _ in range(6):
            assert await cluster.service.opener.open("AGENT", asked(host)) == result
        assert cluster.healthy() == 3  # it was not the connections' fault
        assert len(cluster.targets.reached) == (0 if host == "127.0.0.1" else 6)
        assert quiet(cluster)


async def test_an_open_whose_connection_breaks_is_made_on_another(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, cluster.agent("i1", ConnectionsConfig(min=2, max=2)):
        await cluster.wait_for(2)
        pool = cluster.table.get("agent")
        assert pool is not None
        first, second = pool.connections
        attached_to(first).session.drain()  # opens nothing more, without a word
        stream = await cluster.open()
        assert stream.lease.connection is second
        assert await say(stream) == b"hello"


async def test_what_drains_is_not_chosen_and_its_streams_go_on(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, cluster.agent("i1", ConnectionsConfig(min=1, max=1)) as agent:
        await cluster.wait_for(1)
        stream = await cluster.open()
        assert cluster.service.drain(stream.lease.connection, DrainReason.SERVER_SHUTDOWN, timeout=30.0)
        assert not cluster.service.drain(stream.lease.connection, DrainReason.SERVER_SHUTDOWN, timeout=30.0)
        await cluster.wait_for(2)  # made before the other is broken
        other = await cluster.open()
        assert other.lease.connection is not stream.lease.connection
        assert await say(stream) == await say(other) == b"hello"
        await stream.aclose()
        await cluster.wait_for(1)
        assert await say(other) == b"hello"
        assert agent.controller.count == 1


async def test_streams_that_outstay_a_drain_are_cut_on_both_sides(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, cluster.agent("i1"):
        await cluster.wait_for(1)
        stream = await cluster.open()
        assert await say(stream) == b"hello"
        cluster.service.drain(stream.lease.connection, DrainReason.SERVER_SHUTDOWN, timeout=30.0)
        began = trio.current_time()
        with pytest.raises(trio.BrokenResourceError):
            await stream.receive_some()
        assert 29.0 <= trio.current_time() - began <= 31.0
        await cluster.wait_for(1)
        await wait_all_tasks_blocked()
        assert quiet(cluster)


async def test_an_agent_that_stops_lets_its_streams_end(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, cluster.agent("i1", THREE) as agent, cluster.agent("i2"):
        await cluster.wait_for(4)
        streams = [await cluster.open() for _ in range(8)]
        agent.drain()
        await trio.sleep(5)
        assert [await say(stream) for stream in streams] == [b"hello"] * 8
        assert (await cluster.open()).lease.connection.claim.instance_id == "i2"
        for stream in streams:
            await stream.aclose()
        await cluster.wait_for(1)
        assert agent.controller.is_over
        assert agent.links == {}


async def test_a_router_that_stops_tells_its_agents_one_after_another(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, cluster.agent("i1", THREE) as agent:
        await cluster.wait_for(3)
        told: list[float] = []

        async def watch() -> None:
            while len(told) < 3:
                told.extend([trio.current_time()] * (3 - len(agent.controller.active) - len(told)))
                await trio.sleep(0.1)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            await cluster.service.leave(over=9.0, timeout=30.0, retry_after=60.0)
        assert [later - sooner for sooner, later in itertools.pairwise(told)] == [pytest.approx(3.0, abs=0.2)] * 2
        assert cluster.connections() == []
        await trio.sleep(10)
        assert cluster.connections() == []  # not yet, it was asked


async def test_a_connection_is_meant_by_its_epoch(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, cluster.agent("i1", THREE):
        await cluster.wait_for(3)
        pool = cluster.table.get("agent")
        assert pool is not None
        wanted = pool.connections[1].key
        stream = await cluster.service.opener.open_on(wanted, asked())
        assert isinstance(stream, PooledStream)
        assert stream.key == wanted
        for stale in (
            ConnectionKey("agent", wanted.connection_id, ConnEpoch(wanted.epoch + 1)),
            ConnectionKey("agent", wanted.connection_id, ConnEpoch(0)),
            ConnectionKey("agent", "conn-gone", wanted.epoch),
            ConnectionKey("nobody", wanted.connection_id, wanted.epoch),
        ):
            result = await cluster.service.opener.open_on(stale, asked())
            assert result == OpenResult(Stage.RELAY, Code.AGENT_OFFLINE, retryable=True)
        assert cluster.targets.reached == [ECHO]


async def test_an_operator_closes_a_connection_by_its_epoch(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, cluster.agent("i1", ConnectionsConfig(max=3)) as agent:
        await cluster.wait_for(1)
        stream = await cluster.open()
        key = stream.key
        stale = ConnectionKey(key.agent_id, key.connection_id, ConnEpoch(key.epoch + 1))
        assert cluster.service.close_for_admin(stale) is Closing.STALE
        assert [cluster.service.close_for_admin(key) for _ in range(2)] == [Closing.BEGUN] * 2
        await trio.sleep(30)
        assert cluster.service.close_for_admin(key) is Closing.GONE
        with pytest.raises(trio.BrokenResourceError):
            await stream.receive_some()
        assert agent.controller.count == 1  # another: it is the least that there has to be
        actions = [event.action for event in cluster.table.audit.take(trio.current_time())]
        assert actions.count(Action.CLOSED_BY_ADMIN) == 1


async def test_another_credential_ends_what_it_is_not_for(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, cluster.agent("i1"), cluster.agent("i2"):
        await cluster.wait_for(2)
        one = cluster.hosts["i1"].peer
        cluster.service.recheck(one)
        await trio.sleep(1)
        assert len(cluster.connections()) == 2
        cluster.bearers[one] = Bearer("other", "token-other")
        cluster.service.recheck(one)
        await trio.sleep(1)
        assert cluster.connections() == ["i2"]
        assert dict(cluster.service.peers) == {cluster.hosts["i2"].peer: 1}


async def test_the_number_of_connections_follows_the_load(autojump_clock: MockClock) -> None:
    config = ConnectionsConfig(max=4, high_watermark=4, low_watermark=1)
    async with open_cluster() as cluster, cluster.agent("i1", config) as agent:
        await cluster.wait_for(1)
        streams: list[PooledStream] = []
        for _ in range(10):
            streams.append(await cluster.open())
            await trio.sleep(11)
        assert 2 <= len(cluster.connections()) <= 4
        pool = cluster.table.get("agent")
        assert pool is not None
        await trio.sleep(20)
        assert any(one.stats.scaling is not None for one in pool.connections)
        assert [await say(stream) for stream in streams] == [b"hello"] * 10
        for stream in streams:
            await stream.aclose()
        await cluster.wait_for(1)
        assert agent.controller.count == 1
        assert await say(await cluster.open()) == b"hello"


async def test_many_short_streams_leave_nothing(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, cluster.agent("i1", ConnectionsConfig(min=2, max=2)) as agent:
        await cluster.wait_for(2)
        used: dict[str, int] = {}
        for n in range(150):
            stream = await cluster.open()
            used[stream.key.connection_id] = used.get(stream.key.connection_id, 0) + 1
            if n % 3:
                assert await say(stream) == b"hello"
            if n % 2:
                await stream.aclose()
            else:
                stream.reset()
        await trio.sleep(1)
        assert quiet(cluster)
        assert not any(link.opens or link.control.machine.open_streams for link in agent.links.values())
        assert sum(used.values()) == 150


async def test_a_client_that_does_not_read_holds_up_nobody(autojump_clock: MockClock) -> None:
    """Not its neighbours on the same connection, not the heartbeats; and what waits for it is bounded."""
    async with open_cluster() as cluster, cluster.agent("i1") as agent:
        await cluster.wait_for(1)
        stuck, other = await cluster.open(), await cluster.open()

        async def pour() -> None:
            while True:
                await stuck.send_all(bytes(64 * 1024))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(pour)
            for _ in range(6):
                await trio.sleep(10)
                with trio.fail_after(1):
                    assert await say(other) == b"hello"
            nursery.cancel_scope.cancel()
        assert cluster.healthy() == 1
        assert agent.controller.count == 1  # a reader that is slow is no reason for another connection
        assert cluster.host.statistics().connections.held_bytes < 64 * 1024 * 1024
        assert await say(other) == b"hello"


async def test_a_target_that_breaks_off_is_no_end(autojump_clock: MockClock) -> None:
    """What came is a part, and the client is told so: its stream breaks, and does not end."""
    async with open_cluster() as cluster, cluster.agent("i1"):
        await cluster.wait_for(1)
        stream = await cluster.open(BREAKING)
        with pytest.raises(trio.BrokenResourceError):
            while await stream.receive_some():
                pass
        await stream.aclose()
        await wait_all_tasks_blocked()
        assert quiet(cluster)


async def test_a_client_that_breaks_off_has_its_target_cut(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, cluster.agent("i1"):
        await cluster.wait_for(1)
        stream = await cluster.open()
        assert await say(stream) == b"hello"
        stream.reset()
        await trio.sleep(1)
        assert cluster.targets.open == 0
        assert quiet(cluster)


async def test_no_more_streams_than_an_agent_takes(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, cluster.agent("i1", serving=ServingLimits(max_streams=2)):
        await cluster.wait_for(1)
        for _ in range(2):
            await cluster.open()
        result = await cluster.service.opener.open("agent", asked())
        assert isinstance(result, OpenResult)
        assert (result.stage, result.code, result.retryable) == (Stage.QUEUE, Code.QUEUE_FULL, True)


async def test_an_open_cancelled_anywhere_leaves_nothing(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, cluster.agent("i1"):
        await cluster.wait_for(1)

        async def use() -> None:
            stream = await cluster.service.opener.open("agent", asked())
            if isinstance(stream, PooledStream):
                await stream.aclose()

        async def check() -> None:
            await wait_all_tasks_blocked()
            assert quiet(cluster)

        assert await cancel_at_every_await(use, check=check) >= 3
