"""Agents and whole routers, in virtual time: which routers a process holds, and what befalls its connections."""

import itertools
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from agentmesh.agent import AgentProcess
from agentmesh.agent.ways import LIST_AGE
from agentmesh.errors import CredentialError, SessionClosedError
from agentmesh.pool.agent.config import ConnectionsConfig
from agentmesh.protocols.auth import Result
from agentmesh.protocols.pool import Code, OpenResult
from agentmesh.router import Router
from tests.agent.fleet import AGENT, TWO, AgentFleet, held_by, ids_at, open_agent_fleet, open_at, spread, wait_until
from tests.node.fleet import ANY
from tests.pool.worlds import asked, say

SIX = ConnectionsConfig(min=6, max=6)
LIFE = 600.0  # seconds of a credential, where it matters


async def two_routers(fleet: AgentFleet) -> tuple[Router, Router]:
    return await fleet.router("r1"), await fleet.router("r2")


async def test_without_a_server_it_spreads_over_the_meshs_routers(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with open_agent_fleet(tmp_path) as fleet:
        routers = await two_routers(fleet)
        agent = await fleet.process(connections=SIX)
        await wait_until(lambda: spread(*routers) == [3, 3])
        assert held_by(agent) == {router.peer for router in routers}
        for router in routers:
            assert await say(await open_at(router)) == b"hello"


async def test_with_a_server_it_dials_that_until_it_has_met_both_routers(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with open_agent_fleet(tmp_path) as fleet:
        routers = await two_routers(fleet)
        first, second = (router.addresses[0].without_peer() for router in routers)
        behind = iter([first, first, first, *itertools.repeat(second, 3)])
        agent = await fleet.process(connections=TWO, behind=behind.__next__)
        await wait_until(lambda: spread(*routers) == [1, 1])
        assert held_by(agent) == {router.peer for router in routers}


async def test_every_connection_shows_the_credential_itself(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with open_agent_fleet(tmp_path) as fleet:
        router = await fleet.router("r1")
        await fleet.process(connections=SIX)
        await wait_until(lambda: spread(router) == [6])
        # three more were made, to see whether another router would answer; each of them showed it, too
        assert router.handshakes.results[Result.OK] == fleet.sessions_made("agent") == 6 + 3
        claims = [one.claim for pool in router.agents.service.table for one in pool.connections]
        assert len({claim.token_id for claim in claims}) == 1
        assert len({claim.connection_id for claim in claims}) == 6


async def test_more_connections_at_once_than_a_router_takes_handshakes_come_a_little_later(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with open_agent_fleet(tmp_path) as fleet:
        router = await fleet.router("r1")
        await fleet.process(connections=ConnectionsConfig(min=40, max=40))
        await wait_until(lambda: spread(router) == [40], within=30)
        assert router.handshakes.results[Result.RATE_LIMITED] > 0
        assert fleet.sessions_made("agent") == 40 + 3  # it cost no connection


async def test_connections_outlast_many_renewals_on_both_sides(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with open_agent_fleet(tmp_path) as fleet:
        fleet.plane.ttl = LIFE
        routers = await two_routers(fleet)
        agent = await fleet.process(connections=TWO)
        await wait_until(lambda: spread(*routers) == [1, 1])
        before, stream = ids_at(*routers), await open_at(routers[0])
        await trio.sleep(3 * LIFE + 60)
        assert ids_at(*routers) == before
        assert await say(stream) == b"hello"
        for router in routers:
            assert await say(await open_at(router)) == b"hello"
            until = router.host.admissions.expires_at(agent.peer)
            assert until == agent.membership.credential.expires_at
            # at each of its renewals, and the few times that a router is asked for its next credential
            assert 7 <= router.handshakes.results[Result.OK] < 40


async def test_a_process_whose_credential_ends_ends(autojump_clock: MockClock, tmp_path: Path) -> None:
    with pytest.raises(ExceptionGroup) as caught:
        async with open_agent_fleet(tmp_path) as fleet:
            fleet.plane.ttl = LIFE
            router = await fleet.router("r1")
            agent = await fleet.process()
            await wait_until(lambda: spread(router) == [1])
            fleet.plane.refuses.add(agent.peer)
            fleet.plane.tokens = {token: role for token, role in fleet.plane.tokens.items() if "router" in role}
            await trio.sleep(2 * LIFE)
    assert caught.group_contains(CredentialError, match="has expired and is not renewed")


async def test_a_router_that_does_not_admit_it_again_is_left(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with open_agent_fleet(tmp_path) as fleet:
        fleet.plane.ttl = LIFE
        routers = await two_routers(fleet)
        agent = await fleet.process(connections=TWO)
        await wait_until(lambda: spread(*routers) == [1, 1])
        stays = ids_at(routers[1])
        routers[0].membership.bans.tell(agent.peer, 0.0, 0.0)  # it alone has heard of a ban
        await wait_until(lambda: spread(*routers) == [0, 2], within=2 * LIFE)
        assert stays < ids_at(routers[1])


async def test_a_router_whose_credential_ends_here_is_left(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with open_agent_fleet(tmp_path) as fleet:
        routers = await two_routers(fleet)
        agent = await fleet.process(connections=TWO)
        await wait_until(lambda: spread(*routers) == [1, 1])
        agent.host.admissions.revoke(routers[0].peer)
        await wait_until(lambda: held_by(agent) == {routers[1].peer} and spread(*routers) == [0, 2])
        assert await say(await open_at(routers[1])) == b"hello"


async def test_a_banned_router_is_left_for_another(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with open_agent_fleet(tmp_path) as fleet:
        routers = await two_routers(fleet)
        agent = await fleet.process(connections=TWO)
        await wait_until(lambda: spread(*routers) == [1, 1])
        fleet.plane.banned.add(routers[0].peer)
        await agent.membership.info()
        await wait_until(lambda: spread(*routers) == [0, 2])
        assert held_by(agent) == {routers[1].peer}


async def test_a_banned_process_is_out_and_the_others_stay(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with open_agent_fleet(tmp_path) as fleet:
        router = await fleet.router("r1")
        one, other = await fleet.process("one"), await fleet.process("other")
        await wait_until(lambda: spread(router) == [2])
        fleet.plane.banned.add(one.peer)
        await router.membership.info()
        await wait_until(lambda: spread(router) == [1])
        await trio.sleep(120)
        assert spread(router) == [1]
        assert not one.is_ready
        assert other.is_ready
        assert await say(await open_at(router)) == b"hello"


async def test_what_is_no_router_is_not_let_in(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with open_agent_fleet(tmp_path) as fleet:
        node = await fleet.node("node", listen=(ANY,), ready_timeout=0.0)
        (address,) = (one.without_peer() for one in node.host.addresses)
        agent = await fleet.process(behind=lambda: address)
        await trio.sleep(300)
        assert not agent.is_ready
        assert len(agent.host.admissions) == 0
        assert agent.host.session(node.peer) is None


async def test_a_router_that_stops_is_replaced_before_it_is_gone(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with open_agent_fleet(tmp_path) as fleet:
        routers = await two_routers(fleet)
        agent = await fleet.process()
        await wait_until(lambda: sum(spread(*routers)) == 1)
        going, staying = routers if spread(routers[0]) == [1] else routers[::-1]
        name = "r1" if going is routers[0] else "r2"
        stream = await open_at(going)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fleet.stop, name)
            await wait_until(lambda: spread(staying) == [1])
            assert agent.is_ready
            assert await say(stream) == b"hello"  # what is open on the old one goes on
            await stream.aclose()
        assert agent.is_ready
        assert held_by(agent) == {staying.peer}
        assert await say(await open_at(staying)) == b"hello"


async def test_a_router_that_dies_takes_its_streams_and_no_others(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with open_agent_fleet(tmp_path) as fleet:
        routers = await two_routers(fleet)
        agent = await fleet.process(connections=TWO)
        await wait_until(lambda: spread(*routers) == [1, 1])
        lost, kept = await open_at(routers[0]), await open_at(routers[1])
        fleet.network.freeze("r1")
        with pytest.raises(SessionClosedError):
            await lost.receive_some()
        await wait_until(lambda: spread(routers[1]) == [2])
        assert agent.is_ready
        assert await say(kept) == b"hello"


async def test_a_control_plane_that_is_away_is_not_needed_to_dial(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with open_agent_fleet(tmp_path) as fleet:
        routers = await two_routers(fleet)
        agent = await fleet.process(connections=TWO)
        await wait_until(lambda: spread(*routers) == [1, 1])
        await trio.sleep(2 * LIST_AGE)
        fleet.plane.is_away, fleet.plane.patience = True, 3600.0
        before = ids_at(routers[0])
        for session in agent.host.connections.sessions_of(routers[0].peer):
            session.abort("the cable")
        await wait_until(lambda: spread(*routers) == [1, 1] and not ids_at(routers[0]) & before)


async def test_with_no_router_it_waits_for_one(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with open_agent_fleet(tmp_path) as fleet:
        agent = await fleet.process()
        await trio.sleep(600)
        assert not agent.is_ready
        router = await fleet.router("r1")
        await wait_until(lambda: spread(router) == [1])


async def test_a_restart_keeps_the_instance_and_changes_the_connections(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with open_agent_fleet(tmp_path) as fleet:
        router = await fleet.router("r1")
        first = await fleet.process()
        await wait_until(lambda: spread(router) == [1])
        before = ids_at(router)
        await fleet.stop("agent")
        await wait_until(lambda: spread(router) == [0])
        again = await fleet.process()
        await wait_until(lambda: spread(router) == [1])
        assert _instance(again) == _instance(first)
        assert again.pool.settings.instance.boot != first.pool.settings.instance.boot
        assert not ids_at(router) & before
        other = await fleet.process("other")
        assert _instance(other) != _instance(first)


def _instance(agent: AgentProcess) -> str:
    return agent.pool.settings.instance.instance_id


async def test_leaving_waits_for_what_is_open_and_takes_nothing_more(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with open_agent_fleet(tmp_path) as fleet:
        router = await fleet.router("r1")
        await fleet.process()
        await wait_until(lambda: spread(router) == [1])
        stream, began = await open_at(router), trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fleet.stop, "agent")
            await trio.sleep(5)
            assert await say(stream) == b"hello"
            refused = await router.agents.service.opener.open(AGENT, asked())
            assert isinstance(refused, OpenResult)
            assert refused.code is Code.AGENT_OFFLINE
            await stream.aclose()
        assert trio.current_time() - began < 10
        assert spread(router) == [0]


async def test_leaving_is_bounded(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with open_agent_fleet(tmp_path) as fleet:
        router = await fleet.router("r1")
        await fleet.process()
        await wait_until(lambda: spread(router) == [1])
        stream, began = await open_at(router), trio.current_time()
        await fleet.stop("agent")
        assert 25 < trio.current_time() - began < 40
        with pytest.raises(trio.BrokenResourceError):
            await say(stream)


@pytest.mark.parametrize(
    ("labels", "text"),
    [({}, 'lacks the label agent=devbox.*add "agent=\\*" to allowed_labels'), ({"agent": "other"}, "agent other's")],
)
async def test_a_credential_that_is_not_the_agents(
    autojump_clock: MockClock, tmp_path: Path, labels: dict[str, str], text: str
) -> None:
    with pytest.raises(CredentialError, match=text):
        async with open_agent_fleet(tmp_path) as fleet:
            await fleet.process(labels=labels)


async def test_an_agent_that_loses_its_label_is_told_so_and_refused(
    autojump_clock: MockClock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_agent_fleet(tmp_path) as fleet:
        fleet.plane.ttl = LIFE
        router = await fleet.router("r1")
        agent = await fleet.process()
        await wait_until(lambda: spread(router) == [1])
        fleet.plane.labels[agent.peer] = {}
        await trio.sleep(LIFE)
        assert spread(router) == [0]
        assert not agent.is_ready
        assert "not this agent any more" in caplog.text
