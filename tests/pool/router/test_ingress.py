"""Which router's connection a client's stream gets, and what happens when what is known of them is old."""

import random

import attrs
import pytest
import trio
from trio.testing import MockClock

from agentmesh.pool.registry.errors import AmbiguousAgentError, RegistryUnavailableError
from agentmesh.pool.router.claims import ConnectionKey
from agentmesh.pool.router.ingress import AMBIGUOUS, UNLISTED, Ingress, IngressConfig
from agentmesh.pool.router.limits import PoolLimits
from agentmesh.pool.router.opening import GONE, RETURNED, Opener
from agentmesh.pool.router.recent import MAX_AGE
from agentmesh.pool.router.remotes import Remote, RemotePolicy, pick_remote
from agentmesh.pool.router.table import PoolTable
from agentmesh.pool.router.trace import TraceRing
from agentmesh.protocols.pool import Code, ConnEpoch, Open, Opening, OpenResult, Stage
from tests.pool.worlds import ECHO, asked

CLOSED = OpenResult(Stage.CONNECT, Code.CONNECTION_REFUSED)
FORBIDDEN = OpenResult(Stage.AUTHORIZATION, Code.FORBIDDEN)
LOST = OpenResult(Stage.RELAY, Code.NETWORK_UNREACHABLE, retryable=True)


def remote(name: str, epoch: int = 1, active_streams: int = 0) -> Remote:
    return Remote(
        agent_id="agent",
        connection_id=name,
        epoch=ConnEpoch(epoch),
        server_node_id="n2",
        active_streams=active_streams,
    )


@attrs.define
class Others:
    """Routers that say of every connection what becomes of an open on it.

    Attributes:
        listed: what the registry says; an error is raised.
        answers: of connections by name; those not here are gone.
        asked: what they were asked for, and how often the registry was.
    """

    listed: list[Remote] | AmbiguousAgentError | RegistryUnavailableError
    answers: dict[str, OpenResult] = attrs.Factory(dict[str, OpenResult])
    asked: list[Open] = attrs.Factory(list[Open])
    looked: int = 0

    async def remotes(self, agent: str) -> tuple[Remote, ...]:
        await trio.lowlevel.checkpoint()
        self.looked += 1
        if isinstance(self.listed, Exception):
            raise self.listed
        return tuple(self.listed)

    async def open(self, remote: Remote, request: Open, timeout: float) -> Opening:
        await trio.lowlevel.checkpoint()
        assert 0 < timeout <= 8
        self.asked.append(request)
        return Opening(self.answers.get(remote.connection_id, GONE))

    @property
    def tried(self) -> list[ConnectionKey]:
        return [
            ConnectionKey(one.agent_id, one.target_connection_id, one.target_connection_epoch) for one in self.asked
        ]


def ingress_to(others: Others, config: IngressConfig | None = None) -> Ingress:
    return Ingress(Opener(PoolTable("n1"), lambda _: True), others, config)


async def test_what_was_known_and_is_gone_is_looked_up_anew_and_tried_once_more(autojump_clock: MockClock) -> None:
    others = Others([remote("c1"), remote("c2")])
    ingress = ingress_to(others)
    assert await ingress.open("agent", asked()) == GONE
    assert [key.connection_id for key in others.tried] == ["c1", "c2"]  # and never the same one again
    assert others.looked == 2
    others.asked.clear()
    assert await ingress.open("Agent", asked()) == GONE  # by the list that was fetched a moment ago, and then anew
    assert len(others.asked) == 2
    assert others.looked == 3


async def test_another_life_of_the_connection_is_another_connection(autojump_clock: MockClock) -> None:
    """It was replaced at its router a moment ago: the registry knows the new epoch, and that is asked for."""
    others = Others([remote("c1", epoch=7)], {"c1": CLOSED})
    ingress = ingress_to(others)
    assert await ingress.open("agent", asked()) == CLOSED
    others.answers, others.listed = {}, [remote("c1", epoch=8)]
    others.asked.clear()
    assert await ingress.open("agent", asked()) == GONE
    assert [key.epoch for key in others.tried] == [7, 8]


async def test_connections_that_leave_are_passed_over_however_many(autojump_clock: MockClock) -> None:
    """All of a process that stops are listed for a while yet."""
    leaving = dict.fromkeys(("c1", "c2", "c3", "c4"), RETURNED)
    others = Others([remote(f"c{n}") for n in range(1, 6)], {**leaving, "c5": CLOSED})
    assert await ingress_to(others).open("agent", asked()) == CLOSED
    assert [key.connection_id for key in others.tried] == ["c1", "c2", "c3", "c4", "c5"]
    assert others.looked == 1
    others = Others([remote(name) for name in leaving], {**leaving})
    assert await ingress_to(others).open("agent", asked()) == RETURNED
    assert len(others.asked) == 4


async def test_where_nothing_else_is_listed_nothing_else_is_tried(autojump_clock: MockClock) -> None:
    others = Others([remote("c1")])
    assert await ingress_to(others).open("agent", asked()) == GONE
    assert len(others.asked) == 1


@pytest.mark.parametrize("result", [CLOSED, FORBIDDEN])
async def test_what_a_target_or_a_rule_says_is_final(autojump_clock: MockClock, result: OpenResult) -> None:
    others = Others([remote("c1"), remote("c2")], {"c1": result})
    assert await ingress_to(others).open("agent", asked()) == result
    assert len(others.asked) == 1


async def test_what_is_relayed_names_the_connection_and_the_agent_as_it_is_spelt(autojump_clock: MockClock) -> None:
    others = Others([remote("c1", epoch=2**63 - 1)], {"c1": CLOSED})
    await ingress_to(others).open("AGENT", attrs.evolve(asked(ECHO), metadata={"a": "b"}))
    [request] = others.asked
    assert others.tried == [ConnectionKey("agent", "c1", ConnEpoch(2**63 - 1))]
    assert (request.target_host, request.metadata) == (ECHO, {"a": "b"})
    assert request.trace_id


async def test_an_outage_costs_no_more_than_its_share_of_retries(autojump_clock: MockClock) -> None:
    """A list whose connections all break is not tried for ever, however many clients come."""
    others = Others([remote(f"c{n}") for n in range(10)], {f"c{n}": LOST for n in range(10)})
    ingress = ingress_to(others)
    for _ in range(200):
        assert await ingress.open("agent", asked()) == LOST
    assert len(others.asked) <= 200 + 10 + 20 + 1


async def test_a_registry_that_is_away_or_in_doubt(autojump_clock: MockClock) -> None:
    assert await ingress_to(Others(RegistryUnavailableError("away"))).open("agent", asked()) == UNLISTED
    assert await ingress_to(Others(AmbiguousAgentError(("a", "A")))).open("a", asked()) == AMBIGUOUS


async def test_the_rules_are_asked_of_the_agent_that_was_found(autojump_clock: MockClock) -> None:
    """However the client spells it, and whichever router has it; of one that nobody knows, as it was spelt."""
    others, judged = Others([remote("c1")], {"c1": CLOSED}), list[str]()

    def judge(agent_id: str) -> OpenResult | None:
        judged.append(agent_id)
        return None if agent_id == "agent" else FORBIDDEN

    ingress = ingress_to(others)
    assert await ingress.open("AGENT", asked(), judge) == CLOSED
    assert set(judged) == {"agent"}
    assert await ingress_to(Others([])).open("AGENT", asked(), judge) == FORBIDDEN
    assert await ingress_to(Others(RegistryUnavailableError("away"))).open("AGENT", asked(), judge) == FORBIDDEN
    assert judged[-2:] == ["AGENT", "AGENT"]
    others.asked.clear()
    assert await ingress.open("agent", asked(), lambda _: FORBIDDEN) == FORBIDDEN
    assert others.asked == []


async def test_a_list_is_good_for_a_second(autojump_clock: MockClock) -> None:
    others = Others([remote("c1")], {"c1": CLOSED})
    ingress = ingress_to(others)
    for _ in range(10):
        await ingress.open("agent", asked())
    assert others.looked == 1
    await trio.sleep(MAX_AGE)
    await ingress.open("agent", asked())
    assert others.looked == 2


# ── many routers that choose by what was so some time ago ──


def crowding(policy: RemotePolicy, seed: int) -> int:
    """Eight routers, none of which knows what the others do, send 100 streams each to 16 connections in the time in
    which nothing new is told of them. The most that one of the connections gets.
    """
    chance, counts = random.Random(seed), dict.fromkeys((f"c{n:02}" for n in range(16)), 0)
    told = dict(counts)
    for turn in range(800):
        if turn % 80 == 0:  # now and then it is told how many they have
            told = dict(counts)
        remotes = [remote(name, active_streams=told[name]) for name in counts]
        found = pick_remote(
            TraceRing(),
            remotes,
            protocol="tcp",
            limits=PoolLimits(),
            now=0.0,
            policy=policy,
            sample=lambda population, k: chance.sample(population, k),
        )
        assert isinstance(found, Remote)
        counts[found.connection_id] += 1
    return max(counts.values())


def test_two_drawn_at_random_spread_what_is_known_late() -> None:
    """Evenly it would be 50 each. The least loaded is chosen by all of them at once; of two drawn, not."""
    assert all(crowding(RemotePolicy.P2C, seed) <= 50 + 16 for seed in range(10))
    assert crowding(RemotePolicy.LOWEST, 0) >= 80
