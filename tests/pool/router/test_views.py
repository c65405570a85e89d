import json
from collections import Counter
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from agentmesh.pool.agent.config import ConnectionsConfig
from agentmesh.pool.agent.scaling import Decision
from agentmesh.pool.metrics import (
    ACTIVE_STREAMS,
    CAPACITY,
    CONNECTIONS,
    ERRORS,
    LOST,
    METRICS,
    RTT,
    SCALE_DECISIONS,
    SELECTION,
    agent_samples,
    router_samples,
)
from agentmesh.pool.registry import ConnectionLease
from agentmesh.pool.router.claims import Reason
from agentmesh.pool.router.table import PoolTable
from agentmesh.pool.router.trace import Scope
from agentmesh.pool.router.views import Moment, agent_summary, agent_view, connection_views, trace_view
from agentmesh.protocols.pool import ConnEpoch, Scaling, Stats
from tests.pool.router.test_table import claim, join
from tests.pool.worlds import open_cluster

NAMES = {
    "tunnelmesh_agent_connections",
    "tunnelmesh_agent_connection_capacity",
    "tunnelmesh_agent_active_streams",
    "tunnelmesh_agent_connection_rtt",
    "tunnelmesh_agent_connection_errors",
    "tunnelmesh_agent_connection_scale_decisions",
    "tunnelmesh_agent_selection",
}

NOW = Moment(100.0, 1_800_000_000.0)  # 2027-01-15 08:00 UTC


def moment() -> Moment:
    return Moment(trio.current_time(), 1_800_000_000.0)


def test_the_seven_names() -> None:
    assert {metric.name for metric in METRICS} == NAMES


async def test_what_is_shown_is_what_there_is(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, cluster.agent("i1", ConnectionsConfig(min=2, max=2)), cluster.agent("i2"):
        await cluster.wait_for(3)
        streams = [await cluster.open() for _ in range(5)]
        await trio.sleep(40)
        view = json.loads(json.dumps(agent_view(cluster.table, "agent", moment())))
        assert (view["online"], view["instanceCount"], view["connectionCount"]) == (True, 2, len(cluster.connections()))
        assert view["activeStreams"] == sum(one["activeStreams"] for one in view["connections"]) == 5
        assert all(one["healthy"] and one["healthScore"] == 100 for one in view["connections"])
        assert all(str(one["connectionEpoch"]) == one["connectionEpochDecimal"] for one in view["connections"])

        samples = router_samples(cluster.table)
        by_metric = {metric: [one for one in samples if one.metric is metric] for metric in METRICS}
        assert sum(one.value for one in by_metric[CONNECTIONS]) == view["connectionCount"]
        assert sum(one.value for one in by_metric[ACTIVE_STREAMS]) == 5
        assert [one.value for one in by_metric[CAPACITY]] == [64]
        assert len(by_metric[RTT]) == view["connectionCount"]
        assert {one.labels[2]: one.value for one in by_metric[SELECTION]} == {Scope.LOCAL: 5, Scope.REMOTE: 0}
        assert {one.labels[2] for one in by_metric[ERRORS]} == {*Reason, *LOST}
        assert all(len(one.labels) == len(one.metric.labels) for one in samples)
        for stream in streams:
            await stream.aclose()
        assert sum(one.value for one in router_samples(cluster.table) if one.metric is ACTIVE_STREAMS) == 0


def test_an_agent_that_is_not_there_is_offline_and_no_error() -> None:
    view = agent_view(PoolTable("n1"), "nobody", Moment(0.0, 1e9))
    assert (view["online"], view["connections"], view["scaling"]) == (False, [], None)


async def test_a_choice_is_explained(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, cluster.agent("i1", ConnectionsConfig(min=2, max=2)):
        await cluster.wait_for(2)
        await cluster.open()
        pool = cluster.table.get("agent")
        assert pool is not None
        view = json.loads(json.dumps(trace_view(pool.traces.latest()[-1], moment())))
        assert view["chosen"] in [one["connectionId"] for one in view["considered"]]
        assert Counter(one["whyNot"] for one in view["considered"])[None] >= 1


def test_decisions_that_wanted_nothing_are_not_counted() -> None:
    counts = {Decision.SCALE_UP: 1, Decision.SCALE_DOWN: 2, Decision.REJECTED: 3, Decision.HOLD: 99}
    samples = agent_samples("agent", counts, "i1")
    assert {one.labels: one.value for one in samples} == {
        ("agent", "i1", "scale_up"): 1,
        ("agent", "i1", "scale_down"): 2,
        ("agent", "i1", "rejected"): 3,
    }
    assert {one.metric for one in samples} == {SCALE_DECISIONS}


def lease(name: str, node: str, epoch: int = 1, **more: Any) -> ConnectionLease:
    settings: dict[str, Any] = {"instance_id": "i9", "capabilities": (), "active_streams": 2, "health_score": 70}
    settings |= {"expires_at": 1_800_000_090.0, "stats_age": 1.0, **more}
    return ConnectionLease(
        agent_id="agent", connection_id=name, server_node_id=node, connection_epoch=ConnEpoch(epoch), **settings
    )


@pytest.mark.parametrize("epoch", [0, 1, 2**31 - 1, 2**31, 2**53 + 1, 2**63 - 1])
def test_an_epoch_is_read_as_it_was_written(epoch: int) -> None:
    table = PoolTable("n1")
    join(table, claim("here", epoch))
    shown = json.loads(json.dumps(connection_views(table, "agent", NOW, [lease("there", "n2", epoch)])))
    assert [one["connectionEpoch"] for one in shown] == [epoch, epoch]
    assert [one["connectionEpochDecimal"] for one in shown] == [str(epoch), str(epoch)]


def test_how_a_connection_does() -> None:
    table = PoolTable("n1")
    one = join(table, claim("c1")).connection
    one.heard(95.0, 0.25)
    one.take_stats(Stats(queued_bytes=50, queue_limit_bytes=100, queue_wait_ms=30), 96.0)
    one.reserve(96.0, "").fail(100.0, blames_connection=True)
    [view] = connection_views(table, "agent", NOW)
    assert (view["queuedBytes"], view["queuePressure"], view["rttSeconds"]) == (50, 0.5, 0.25)
    assert (view["recentErrorRate"], view["healthy"], view["leaseExpiresAt"]) == (0.2, True, None)
    assert (view["sinceHeartbeatSeconds"], view["ageSeconds"]) == (4.0, 100.0)
    assert (view["connectedAt"], view["lastHeartbeatAt"]) == ("2027-01-15T07:58:20.000Z", "2027-01-15T07:59:56.000Z")
    one.take_stats(Stats(queue_wait_ms=900), 97.0)
    assert connection_views(table, "agent", NOW)[0]["queuePressure"] == 1.0


def test_leases_are_of_other_routers_or_of_this_very_life() -> None:
    table = PoolTable("n1")
    join(table, claim("c1", 5))
    join(table, claim("c2", 5))
    leases = [lease("c1", "n1", 5), lease("c2", "n1", 4), lease("gone", "n1"), lease("far", "n2", health_score=0)]
    shown = {str(one["connectionId"]): one for one in connection_views(table, "agent", NOW, leases)}
    assert set(shown) == {"c1", "c2", "far"}  # what this router had before it was started again is not there
    assert (shown["c1"]["leaseExpiresAt"], shown["c2"]["leaseExpiresAt"]) == ("2027-01-15T08:01:30.000Z", None)
    assert (shown["far"]["healthy"], shown["far"]["local"], shown["far"]["activeStreams"]) == (False, False, 2)
    view = agent_view(table, "agent", Moment(1000.0, 1e9), leases)  # when nothing was heard for long
    assert (view["online"], view["connectionCount"], view["healthyConnectionCount"]) == (False, 3, 0)
    leases[-1] = lease("far", "n2", health_score=1)
    assert agent_view(table, "agent", Moment(1000.0, 1e9), leases)["online"] is True


def test_processes_with_one_id_are_marked() -> None:
    table = PoolTable("n1")
    for name, instance, boot in (("c1", "i1", "b1"), ("c2", "i1", "b1"), ("c3", "i2", "b1"), ("c4", "i3", "")):
        join(table, claim(name, instance_id=instance, boot=boot))
    pool = table.get("agent")
    assert pool is not None
    assert agent_summary(table, pool, NOW)["cloned"] == []
    join(table, claim("c5", instance_id="i2", boot="b2"))
    assert agent_summary(table, pool, NOW)["cloned"] == ["i2"]
    instances = json.loads(json.dumps(agent_view(table, "agent", NOW)["instances"]))
    assert {one["instanceId"]: one["cloned"] for one in instances} == {"i1": False, "i2": True, "i3": False}


def test_of_decisions_the_latest_is_shown() -> None:
    table = PoolTable("n1")
    for name, at, reason in (("c1", 50.0, "at_max"), ("c2", 40.0, "cooldown")):
        scaling = Scaling("rejected", reason, 2, 8)
        join(table, claim(name)).connection.take_stats(Stats(scaling=scaling), at)
    shown = json.loads(json.dumps(agent_view(table, "agent", NOW)["scaling"]))
    assert (shown["reason"], shown["toldAt"]) == ("at_max", "2027-01-15T07:59:10.000Z")
