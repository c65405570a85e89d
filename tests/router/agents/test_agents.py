"""Agents behind routers: clients' streams reach them through whichever router, and no other agent."""

import attrs
import pytest
import trio
from trio.testing import MockClock

from agentmesh.errors import DialError
from agentmesh.identity import Identity
from agentmesh.pool.agent.config import ConnectionsConfig
from agentmesh.pool.registry import NewConnection, Registered
from agentmesh.pool.router.claims import ConnectionKey
from agentmesh.pool.router.ingress import IngressConfig
from agentmesh.protocols.auth import AUTH_ID, authenticate
from agentmesh.protocols.pool import (
    POOL_ID,
    RELAY_ID,
    Ack,
    AgentSide,
    Closing,
    Code,
    ConnEpoch,
    ErrorName,
    Hello,
    Open,
    Stage,
    open_control,
    open_target,
)
from agentmesh.protocols.pool.events import Joined, Refused
from agentmesh.router import Router
from agentmesh.router.config import AgentsConfig
from agentmesh.router.departures import TUNNEL_GRACE
from tests.pool.worlds import REFUSED, say
from tests.router.agents.agency import AGENT, dial, dialled, open_agency, wait_connected, wait_joined

TWO = ConnectionsConfig(min=2, max=2)


def keys(router: Router, agent_id: str = AGENT) -> list[ConnectionKey]:
    pool = router.agents.service.table.get(agent_id)
    return [one.key for one in pool.connections] if pool else []


def streams(router: Router) -> int:
    pool = router.agents.service.table.get(AGENT)
    return pool.active_streams if pool else 0


async def test_a_client_reaches_an_agent_of_its_own_router(autojump_clock: MockClock) -> None:
    async with open_agency() as agency:
        router = await agency.router("r1")
        await agency.agent("i1", connections=TWO)
        client = await agency.client("c", router)
        async with await dialled(client, "DevBox") as stream:
            assert await say(stream) == b"hello"
            assert streams(router) == 1
            await stream.send_eof()
            assert await stream.receive_some() == b""
        await trio.sleep(1)
        assert (streams(router), agency.targets.open, agency.targets.cut) == (0, 0, 0)


async def test_a_stream_is_relayed_to_the_router_that_has_the_agent(autojump_clock: MockClock) -> None:
    async with open_agency() as agency:
        near, far = await agency.router("r1"), await agency.router("r2")
        await wait_joined(near, far)
        await agency.agent("i1", far, connections=TWO)
        client = await agency.client("c", near)
        first, second = await dialled(client), await dialled(client)
        pool = far.agents.service.table.get(AGENT)
        assert pool is not None
        assert [one.active_streams for one in pool.connections] == [1, 1]  # though the registry said 0 both times
        assert keys(near) == []
        data = bytes(range(256)) * 4096
        assert await say(first, data) == data
        await first.send_eof()
        assert await first.receive_some() == b""
        await second.aclose()
        await trio.sleep(1)
        assert (streams(far), agency.targets.open) == (0, 0)
        assert near.agents.streams.dialled[Code.OK] == far.agents.streams.relayed[Code.OK] == 2


async def test_what_is_connected_here_goes_first(autojump_clock: MockClock) -> None:
    async with open_agency() as agency:
        near, far = await agency.router("r1"), await agency.router("r2")
        await wait_joined(near, far)
        await agency.agent("i1", far)
        await agency.agent("i2", near)
        client = await agency.client("c", near)
        opened = [await dialled(client) for _ in range(3)]
        assert (streams(near), streams(far)) == (3, 0)
        for stream in opened:
            await stream.aclose()


async def test_a_busy_router_may_leave_streams_to_another(autojump_clock: MockClock) -> None:
    async with open_agency() as agency:
        near = await agency.router("r1", agents=AgentsConfig(ingress=IngressConfig(local_spill_score=12)))
        far = await agency.router("r2")
        await wait_joined(near, far)
        await agency.agent("i1", far)
        await agency.agent("i2", near)
        await trio.sleep(60)  # neither is new any more
        client = await agency.client("c", near)
        opened = [await dialled(client) for _ in range(14)]
        assert (streams(near), streams(far)) == (12, 2)
        for stream in opened:
            await stream.aclose()


async def test_a_connection_that_another_router_means_is_opened_on_or_none(autojump_clock: MockClock) -> None:
    async with open_agency() as agency:
        near, far = await agency.router("r1"), await agency.router("r2")
        await wait_joined(near, far)
        await agency.agent("i1", far, connections=TWO)
        session = near.host.session(far.peer)
        assert session is not None
        [key, _] = keys(far)
        for connection_id, epoch in ((key.connection_id, ConnEpoch(key.epoch + 1)), ("conn-other", key.epoch)):
            request = Open(AGENT, "tcp", "10.0.0.1", 22, target_connection_id=connection_id)
            request = attrs.evolve(request, target_connection_epoch=epoch)
            opening = await open_target(session, request, protocol=RELAY_ID)
            assert (opening.result.stage, opening.result.code) == (Stage.RELAY, Code.AGENT_OFFLINE)
        assert agency.targets.reached == []


async def test_a_member_is_no_router_and_relays_nothing(autojump_clock: MockClock) -> None:
    async with open_agency() as agency:
        router = await agency.router("r1")
        await agency.agent("i1")
        client = await agency.client("c", router)
        session = client.host.session(router.peer)
        assert session is not None
        [key] = keys(router)
        request = Open(AGENT, "tcp", "10.0.0.1", 22, target_connection_id=key.connection_id)
        opening = await open_target(session, request, protocol=RELAY_ID)
        assert (opening.result.stage, opening.result.code) == (Stage.AUTHORIZATION, Code.FORBIDDEN)


async def test_the_policy_decides_who_reaches_what_through_which_agent(autojump_clock: MockClock) -> None:
    async with open_agency() as agency:
        agency.fleet.plane.rules = ()
        near, far = await agency.router("r1"), await agency.router("r2")
        await wait_joined(near, far)
        await agency.agent("i1", far)
        for router in (near, far):
            client = await agency.client(f"c-{router.peer}", router)
            opening = await dial(client)
            assert (opening.result.stage, opening.result.code) == (Stage.AUTHORIZATION, Code.FORBIDDEN)
            assert not opening.result.retryable
        assert agency.targets.reached == []


async def test_a_router_that_has_not_read_the_policy_says_when_to_ask_again(autojump_clock: MockClock) -> None:
    async with open_agency() as agency:
        agency.fleet.plane.unanswered.add("rules")
        router = await agency.router("r1")
        await agency.agent("i1")
        client = await agency.client("c", router)
        opening = await dial(client)
        assert (opening.result.stage, opening.result.code) == (Stage.AUTHORIZATION, Code.INTERNAL_ERROR)
        assert (opening.result.retryable, opening.result.retry_after_ms) == (True, 1000)
        agency.fleet.plane.unanswered.clear()
        await trio.sleep(60)
        await (await dialled(client)).aclose()


async def test_the_agents_own_rules_hold_whichever_way_a_stream_comes(autojump_clock: MockClock) -> None:
    async with open_agency() as agency:
        near, far = await agency.router("r1"), await agency.router("r2")
        await wait_joined(near, far)
        await agency.agent("i1", far, policy=[{"ports": [443]}])
        for router in (near, far):
            opening = await dial(await agency.client(f"c-{router.peer}", router))
            assert (opening.result.stage, opening.result.code) == (Stage.POLICY, Code.FORBIDDEN)
        assert agency.targets.reached == []


@pytest.mark.parametrize("name", ["nobody", "a" * 200])
async def test_nobody_is_offline(autojump_clock: MockClock, name: str) -> None:
    async with open_agency() as agency:
        near, far = await agency.router("r1"), await agency.router("r2")
        await wait_joined(near, far)
        opening = await dial(await agency.client("c", near), name[:128])
        assert (opening.result.stage, opening.result.code) == (Stage.SELECTION, Code.AGENT_OFFLINE)
        assert len(near.agents.service.table.traces) == 0  # names that clients make up are not remembered


async def test_what_the_target_says_is_passed_on(autojump_clock: MockClock) -> None:
    async with open_agency() as agency:
        near, far = await agency.router("r1"), await agency.router("r2")
        await wait_joined(near, far)
        await agency.agent("i1", far, connections=TWO)
        opening = await dial(await agency.client("c", near), host=REFUSED)
        assert (opening.result.stage, opening.result.code) == (Stage.CONNECT, Code.CONNECTION_REFUSED)
        assert agency.targets.reached == [REFUSED]  # and tried once


async def test_a_router_that_stops_has_its_agents_elsewhere_first(autojump_clock: MockClock) -> None:
    async with open_agency() as agency:
        first, second = await agency.router("r1"), await agency.router("r2")
        await wait_joined(first, second)
        agent = await agency.agent("i1", connections=TWO)
        client = await agency.client("c", second)
        assert (len(keys(first)), len(keys(second))) == (1, 1)
        held = [await dialled(client), await dialled(client)]
        least = 2
        async with trio.open_nursery() as nursery:
            nursery.start_soon(agency.fleet.stop, "r1")
            for _ in range(40):
                least = min(least, len(agent.connections))
                await trio.sleep(0.25)
            assert least >= 1
            assert (len(keys(second)), len(agent.connections)) == (2, 2)
            for stream in held:
                assert await say(stream) == b"hello"
                await stream.aclose()


async def test_a_router_that_stops_leaves_tunnels_their_time(autojump_clock: MockClock) -> None:
    async with open_agency() as agency:
        near, far = await agency.router("r1"), await agency.router("r2")
        await wait_joined(near, far)
        await agency.agent("i1", far)
        client = await agency.client("c", near)
        stream = await dialled(client)
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(agency.fleet.stop, "r1")
            await trio.sleep(TUNNEL_GRACE - 2)
            assert await say(stream) == b"hello"
            await stream.aclose()
        assert trio.current_time() - began < TUNNEL_GRACE  # it waits for nothing else
        assert near.agents.streams.clients == {}


async def test_an_operators_word_reaches_the_router_that_has_the_connection(autojump_clock: MockClock) -> None:
    async with open_agency() as agency:
        near, far = await agency.router("r1"), await agency.router("r2")
        await wait_joined(near, far)
        agent = await agency.agent("i1", far)
        [key] = keys(far)
        assert await near.agents.close(attrs.evolve(key, epoch=ConnEpoch(key.epoch + 1))) is Closing.STALE
        assert await near.agents.close(key) is Closing.BEGUN
        await trio.sleep(20)
        assert key not in keys(far)
        assert await near.agents.close(key) is Closing.GONE
        await wait_connected(agent)
        [key] = keys(far)
        assert await near.agents.close(key) is Closing.BEGUN


@pytest.mark.parametrize("node_id", [str(Identity.generate().peer), "no-peer"], ids=["stranger", "nobody"])
async def test_a_router_that_cannot_be_reached_closes_nothing(autojump_clock: MockClock, node_id: str) -> None:
    async with open_agency() as agency:
        near = await agency.router("r1")
        new = NewConnection(agent_id=AGENT, connection_id="conn-1", instance_id="i", server_node_id=node_id)
        registered = await agency.registry.register_connection(new, 90.0)
        assert isinstance(registered, Registered)
        with pytest.raises(DialError, match="cannot be reached"):
            await near.agents.close(ConnectionKey(AGENT, "conn-1", registered.fence.epoch))
        opening = await dial(await agency.client("c", near))
        assert (opening.result.stage, opening.result.code) == (Stage.RELAY, Code.NETWORK_UNREACHABLE)
        assert len(await agency.registry.list_active_by_agent(AGENT)) == 1


async def test_each_connection_shows_a_credential_of_its_own(autojump_clock: MockClock) -> None:
    async with open_agency() as agency:
        router = await agency.router("r1")
        agent = await agency.agent("i1")
        hello = Hello(AGENT, "i1", "conn-2", epoch=ConnEpoch(1), revision=1)
        acks: list[Ack] = []
        for shows in (False, True):
            session = await agent.host.connect_anew(router.peer, router.addresses)
            if shows:
                async with await session.open_stream(AUTH_ID) as stream:
                    await authenticate(stream, token=agent.membership.token(), verify=agent.membership.verify)
            async with (
                await session.open_stream(POOL_ID) as stream,
                open_control(AgentSide(trio.current_time()), stream) as control,
            ):
                control.tell(lambda machine: machine.send_hello(hello, trio.current_time()))
                event = await control.next_event()
                assert isinstance(event, Joined | Refused)
                acks.append(event.ack)
            await session.aclose()
        assert [ack.registered for ack in acks] == [False, True]
        assert [problem.code for problem in acks[0].errors] == [ErrorName.FORBIDDEN]
