"""What a router opens for another: everything has to be right, and any one thing that is not is enough."""

from itertools import product

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from agentmesh.abc import Admission, Session
from agentmesh.protocols.pool import RELAY_ID, Code, ConnEpoch, Open, OpenResult, Stage, open_target
from agentmesh.runtime.host import Host
from tests.pool.relays import Relays, open_relays
from tests.pool.worlds import HELD
from tests.router.agents.agency import AGENT

RIGHT, WRONG = True, False
FACTORS = ("is a router", "is admitted", "the agent", "the connection", "its epoch")


def session_of(host: Host, world: Relays) -> Session:
    session = host.session(world.routers[1].peer)
    assert session is not None
    return session


async def ask(world: Relays, is_router: bool, agent: bool, connection: bool, epoch: bool) -> OpenResult:
    [one, _] = world.connections(1)
    [other, _] = world.connections(2)
    request = Open(
        AGENT if agent else AGENT.upper(),  # who is relayed to is not looked up in any case: it is named
        "tcp",
        HELD,
        22,
        target_connection_id=one.connection_id if connection else other.connection_id,
        target_connection_epoch=ConnEpoch(one.epoch if epoch else one.epoch + 1),
    )
    host = world.routers[0].host if is_router else world.clients[1].host
    opening = await open_target(session_of(host, world), request, protocol=RELAY_ID)
    if opening.stream is not None:
        opening.stream.reset()
        await wait_all_tasks_blocked()
    return opening.result


async def test_any_one_thing_that_is_wrong_is_enough(autojump_clock: MockClock) -> None:
    async with open_relays() as world:
        owner, reached = world.routers[1].host, 0
        for is_router, is_admitted, agent, connection, epoch in product([RIGHT, WRONG], repeat=len(FACTORS)):
            peer = world.routers[0].peer if is_router else world.clients[1].peer
            level, expires_at = owner.admissions.level(peer), owner.admissions.expires_at(peer)
            assert expires_at is not None
            if not is_admitted:
                owner.admissions.admit(peer, Admission.ANYONE, expires_at)
            result = await ask(world, is_router, agent, connection, epoch)
            owner.admissions.admit(peer, level, expires_at)
            if is_router and is_admitted and agent and connection and epoch:
                assert result.code is Code.OK
                reached += 1
            elif is_router and is_admitted:
                assert (result.stage, result.code) == (Stage.RELAY, Code.AGENT_OFFLINE)
            else:
                assert (result.stage, result.code) == (Stage.AUTHORIZATION, Code.FORBIDDEN)
            assert len(world.agency.targets.held) == reached == 1
        await trio.sleep(1)
        assert not +world.load()
