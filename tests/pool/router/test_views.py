import json
from collections import Counter

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
from agentmesh.pool.router.claims import Reason
from agentmesh.pool.router.table import PoolTable
from agentmesh.pool.router.trace import Scope
from agentmesh.pool.router.views import Moment, agent_view, trace_view
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
