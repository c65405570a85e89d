"""The seven metrics: each value is that of the set it speaks of, recomputed; and their number is bounded."""

import re
from collections import Counter
from collections.abc import Mapping

import httpx
import trio
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from trio.testing import MockClock

from agentmesh.pool.agent.config import ConnectionsConfig
from agentmesh.pool.agent.scaling import Decision
from agentmesh.pool.metrics import (
    ACTIVE_STREAMS,
    CAPACITY,
    CONNECTIONS,
    ERRORS,
    LOST,
    MAX_LABELLED_AGENTS,
    RTT,
    SELECTION,
    Metric,
    router_samples,
)
from agentmesh.pool.router.audit import Action
from agentmesh.pool.router.claims import Reason, Refusal
from agentmesh.pool.router.connection import Connection
from agentmesh.pool.router.limits import PoolLimits
from agentmesh.pool.router.selection import pick
from agentmesh.pool.router.table import PoolTable
from agentmesh.protocols.pool import Scaling, Stats
from agentmesh.router import Router
from agentmesh.router.pages import router_pages
from agentmesh.testing import Conditions
from tests.pool.router.test_table import claim, join
from tests.router.agents.agency import AGENT, dialled, open_agency

TWO = ConnectionsConfig(min=2, max=2)
Series = Mapping[tuple[str, ...], float]


def series(table: PoolTable, metric: Metric) -> Series:
    """What is shown of a metric, by the values of its labels; nothing is shown twice."""
    samples = [one for one in router_samples(table) if one.metric is metric]
    found = {one.labels: one.value for one in samples}
    assert len(found) == len(samples)
    assert all(len(one.labels) == len(metric.labels) for one in samples)
    return found


async def page(router: Router) -> dict[str, float]:
    transport = httpx.ASGITransport(router_pages(router))
    async with httpx.AsyncClient(transport=transport, base_url="http://router") as client:
        text = (await client.get("/metrics")).text
    lines = re.findall(r"^(tunnelmesh_\S+) (\S+)$", text, re.MULTILINE)
    return {name: float(value) for name, value in lines}


async def test_a_page_has_them_under_their_very_names_and_series_go_with_the_connections(
    autojump_clock: MockClock,
) -> None:
    async with open_agency() as agency:
        router = await agency.router("r1")
        agency.fleet.network.set_conditions("r1", "i1", Conditions(latency=0.02))
        agent = await agency.agent("i1", connections=TWO)
        client, node = await agency.client("c", router), str(router.peer)
        streams = [await dialled(client) for _ in range(3)]
        await trio.sleep(30)
        found, names = await page(router), [one.connection_id for one in agent.pool.links.values()]
        whose = f'agent_id="{AGENT}"'
        assert found[f'tunnelmesh_agent_connections{{{whose},instance_id="i1",server_node_id="{node}"}}'] == 2
        assert found[f'tunnelmesh_agent_connection_capacity{{{whose},server_node_id="{node}"}}'] == 64
        assert found[f'tunnelmesh_agent_selection{{{whose},scope="local",server_node_id="{node}"}}'] == 3
        for name in names:
            labels = f'{{{whose},connection_id="{name}",instance_id="i1",server_node_id="{node}"}}'
            assert f"tunnelmesh_agent_active_streams{labels}" in found
            assert 0 < found[f"tunnelmesh_agent_connection_rtt{labels}"] < 1
        assert sum(count for name, count in found.items() if name.startswith("tunnelmesh_agent_active_streams")) == 3
        for stream in streams:
            await stream.aclose()
        agent.pool.drain()
        await trio.sleep(60)
        assert not [name for name in await page(router) if any(one in name for one in names)]
        lost = f'{{{whose},reason="lost",server_node_id="{node}"}}'
        assert found[f"tunnelmesh_agent_connection_errors{lost}"] == 0  # whoever leaves is not lost


def test_connections_have_labels_of_their_own_with_the_busiest_agents_only() -> None:
    table = PoolTable("n1", PoolLimits(registrations_per_second=0, max_connections_per_token=0))
    for n in range(MAX_LABELLED_AGENTS + 50):
        for name in ("c1", "c2"):
            one = join(table, claim(f"{name}-{n}", agent_id=f"agent-{n}")).connection
            one.heard(0.0, n / 1000 + (name == "c2"))
            for _ in range(n):
                one.reserve(0.0, "")
    streams = series(table, ACTIVE_STREAMS)
    labelled = {agent for agent, _, connection, _ in streams if connection}
    assert labelled == {f"agent-{n}" for n in range(50, MAX_LABELLED_AGENTS + 50)}
    assert len(streams) == 2 * MAX_LABELLED_AGENTS + 50
    for n in range(MAX_LABELLED_AGENTS + 50):
        assert sum(count for (agent, *_), count in streams.items() if agent == f"agent-{n}") == 2 * n
    trips = series(table, RTT)
    assert trips["agent-10", "i1", "", "n1"] == 1.01  # the longest of those that are told together
    assert trips["agent-60", "i1", "c1-60", "n1"] == 0.06


def test_decisions_are_those_that_each_process_told_last() -> None:
    table = PoolTable("n1")
    told = (("c1", "i1", 1.0, 3), ("c2", "i1", 2.0, 4), ("c3", "i2", 1.0, 1), ("c4", "i3", 1.0, 0))
    for name, instance, at, ups in told:
        one = join(table, claim(name, instance_id=instance)).connection
        scaling = Scaling("scale_up", "high_streams", 2, 8, scale_ups=ups, scale_downs=1, rejections=9)
        one.take_stats(Stats(scaling=scaling if instance != "i3" else None), at)
    found = {sample.labels: sample.value for sample in router_samples(table) if "decisions" in sample.metric.name}
    assert found == {
        ("agent", instance, decision): count
        for instance, ups in (("i1", 4), ("i2", 1))
        for decision, count in ((Decision.SCALE_UP, ups), (Decision.SCALE_DOWN, 1), (Decision.REJECTED, 9))
    }


NAMES = st.sampled_from(["c1", "c2", "c3", "c4"])
AGENTS = st.sampled_from(["a", "b", "c"])


class Figures(RuleBasedStateMachine):
    """Connections come, are refused, carry streams and go; each refusal is counted and written down."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.now, self.epoch = PoolTable("n1"), 0.0, 0
        self.chosen, self.ended = Counter[str](), Counter[tuple[str, str]]()
        self.refused, self.written = Counter[str](), Counter[str]()

    @initialize(per_agent=st.integers(1, 3), per_token=st.integers(1, 4), per_node=st.integers(1, 6))
    def begin(self, per_agent: int, per_token: int, per_node: int) -> None:
        limits = PoolLimits(
            max_connections_per_agent=per_agent,
            max_connections_per_token=per_token,
            max_connections_per_node=per_node,
            registrations_per_second=1.0,
        )
        self.table = PoolTable("n1", limits)

    @property
    def connections(self) -> list[Connection]:
        return [one for pool in self.table for one in pool.connections]

    @rule(agent=AGENTS, name=NAMES, token=st.sampled_from(["t1", "t2"]), back=st.integers(0, 2))
    def hello(self, agent: str, name: str, token: str, back: int) -> None:
        self.epoch += 1
        wanted = claim(name, max(self.epoch - 10 * back, 0), agent_id=agent, token_id=token)
        place = self.table.begin(wanted, self.now)
        if isinstance(place, Refusal):
            self.refused[place.reason] += 1
        else:
            self.table.complete(place, wanted.epoch, object(), self.now)

    @rule(agent=AGENTS)
    def stranger(self, agent: str) -> None:
        self.table.refuse(claim(agent_id=agent, token_id=""), Reason.IDENTITY_MISMATCH, self.now)
        self.refused[Reason.IDENTITY_MISMATCH] += 1

    @rule(agent=AGENTS)
    def open(self, agent: str) -> None:
        pool = self.table.get(agent)
        if pool is not None and pool.by_id:
            for one in pool.connections:
                one.heard(self.now)
            pick(pool, protocol="tcp", limits=self.table.limits, now=self.now)
            self.chosen[agent] += 1

    @rule(data=st.data(), reason=st.sampled_from(["lost", "silent", "left", "drained"]))
    def end(self, data: st.DataObject, reason: str) -> None:
        if self.connections:
            one = data.draw(st.sampled_from(self.connections))
            self.table.close(one, self.now, reason)
            self.ended[one.claim.agent_id, reason] += 1

    @rule(seconds=st.floats(0, 100))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        for event in self.table.audit.take(self.now):
            self._write(event.action, event.reason, event.count)

    def _write(self, action: Action, reason: str, count: int) -> None:
        if action is Action.REJECTED:
            self.written[reason] += count

    @invariant()
    def each_value_is_that_of_its_set(self) -> None:
        by_labels = Counter[tuple[str, ...]]()
        for one in self.connections:
            by_labels[one.claim.agent_id, one.claim.instance_id, one.connection_id, "n1"] += len(one.leases)
        assert series(self.table, ACTIVE_STREAMS) == by_labels
        counts = Counter((one.claim.agent_id, one.claim.instance_id, "n1") for one in self.connections)
        assert series(self.table, CONNECTIONS) == counts
        assert set(series(self.table, CAPACITY)) == {(pool.agent_id, "n1") for pool in self.table}
        local = {agent: count for (agent, _, scope), count in series(self.table, SELECTION).items() if scope == "local"}
        assert {agent: count for agent, count in local.items() if count} == self.chosen

    @invariant()
    def each_refusal_is_counted_once(self) -> None:
        shown = series(self.table, ERRORS)
        assert {reason: shown["", "n1", reason] for reason in Reason} == {one: self.refused[one] for one in Reason}
        for pool in self.table:
            assert {one: shown[pool.agent_id, "n1", one] for one in LOST} == {
                one: self.ended[pool.agent_id, one] for one in LOST
            }

    def teardown(self) -> None:
        for event in self.table.audit.close():
            self._write(event.action, event.reason, event.count)
        assert self.written == self.refused
        assert self.table.audit.lost == 0


TestFigures = Figures.TestCase
TestFigures.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
