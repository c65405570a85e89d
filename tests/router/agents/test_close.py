"""An operator closes a connection: this life of it and no other, here or at its router, once."""

import pytest
import trio
from trio.testing import MockClock

from agentmesh.pool.agent.config import ConnectionsConfig
from agentmesh.pool.registry import MemoryRegistry, NewConnection, Registered
from agentmesh.pool.router.audit import Action
from agentmesh.pool.router.claims import ConnectionKey
from agentmesh.protocols.pool import MAX_EPOCH, Closing, ConnEpoch
from agentmesh.router import Router
from agentmesh.router.agents.api import CLOSE_TIMEOUT
from tests.pool.registry.faulty import Fault, FaultyRegistry
from tests.pool.worlds import say
from tests.router.agents.agency import AGENT, dialled, open_agency, wait_joined
from tests.router.agents.operators import api_of, ask, open_hearing

TWO = ConnectionsConfig(min=2, max=2)


def keys(router: Router) -> list[ConnectionKey]:
    pool = router.agents.service.table.get(AGENT)
    return [one.key for one in pool.connections] if pool else []


def path_of(key: ConnectionKey, epoch: int | str | None = None) -> str:
    return f"/{key.agent_id}/connections/{key.connection_id}?connectionEpoch={key.epoch if epoch is None else epoch}"


async def test_one_life_of_one_connection_is_closed_and_its_streams_have_time(autojump_clock: MockClock) -> None:
    async with open_agency() as agency:
        router = await agency.router("r1")
        await agency.agent("i1", connections=TWO)
        client, app = await agency.client("c", router), api_of(router)
        first, second = await dialled(client), await dialled(client)
        key, other = keys(router)
        answer = await ask(app, path_of(key), "DELETE")
        assert (answer.status_code, answer.json()) == (
            200,
            {
                "agentId": AGENT,
                "connectionId": key.connection_id,
                "connectionEpoch": key.epoch,
                "connectionEpochDecimal": str(key.epoch),
                "status": "closing",
            },
        )
        assert (await ask(app, path_of(key), "DELETE")).json()["status"] == "closing"  # once more: nothing else
        assert await say(first) == await say(second) == b"hello"
        await first.aclose()
        await second.aclose()
        with trio.fail_after(60):
            while key in keys(router):  # noqa: ASYNC110 - seen from outside
                await trio.sleep(0.1)
        assert other in keys(router)
        answer = await ask(app, path_of(key).replace(AGENT, AGENT.upper(), 1), "DELETE")
        assert (answer.status_code, answer.json()["status"]) == (200, "gone")


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("", "epoch_missing"),
        ("?connectionEpoch=", "no_number"),
        ("?connectionEpoch=-1", "no_number"),
        ("?connectionEpoch=1.0", "no_number"),
        ("?connectionEpoch=1e3", "no_number"),
        ("?connectionEpoch=%C2%B9", "no_number"),
        (f"?connectionEpoch={MAX_EPOCH + 1}", "no_number"),
        (f"?connectionEpoch={'1' * 5000}", "no_number"),
    ],
)
async def test_which_life_has_to_be_said(autojump_clock: MockClock, query: str, code: str) -> None:
    async with open_agency() as agency:
        router = await agency.router("r1")
        await agency.agent("i1")
        [key] = keys(router)
        answer = await ask(api_of(router), f"/{AGENT}/connections/{key.connection_id}{query}", "DELETE")
        assert (answer.status_code, answer.json()["code"], keys(router)) == (400, code, [key])


@pytest.mark.parametrize("difference", [-1, 1, MAX_EPOCH])
async def test_another_life_is_left_alone_and_told(autojump_clock: MockClock, difference: int) -> None:
    async with open_agency() as agency:
        near, far = await agency.router("r1"), await agency.router("r2")
        await wait_joined(near, far)
        await agency.agent("i1", far)
        [key] = keys(far)
        for router in (near, far):
            wanted = max(0, min(key.epoch + difference, MAX_EPOCH))
            answer = await ask(api_of(router), path_of(key, wanted), "DELETE")
            assert (answer.status_code, answer.json()["code"]) == (409, "stale_epoch")
            assert answer.json()["currentEpoch"] == key.epoch
            assert answer.json()["currentEpochDecimal"] == str(key.epoch)
        assert keys(far) == [key]


async def test_the_router_of_a_connection_closes_it(autojump_clock: MockClock) -> None:
    async with open_agency() as agency:
        near, far = await agency.router("r1"), await agency.router("r2")
        await wait_joined(near, far)
        await agency.agent("i1", far)
        [key] = keys(far)
        async with open_hearing(api_of(far)) as hearing:
            await hearing.block()
            answer = await ask(api_of(near), path_of(key), "DELETE")
            assert (answer.status_code, answer.json()["status"]) == (200, "closing")
            names = [(await hearing.event())[0] for _ in range(2)]
            assert names == [Action.DRAINING, Action.CLOSED_BY_ADMIN]


async def test_a_router_that_cannot_be_reached_keeps_its_connection(autojump_clock: MockClock) -> None:
    async with open_agency() as agency:
        router = await agency.router("r1")
        new = NewConnection(agent_id=AGENT, connection_id="far", instance_id="i9", server_node_id="n9")
        registered = await agency.registry.register_connection(new, 90.0)
        assert isinstance(registered, Registered)
        key = ConnectionKey(AGENT, "far", registered.fence.epoch)
        async with open_hearing(api_of(router)) as hearing:
            await hearing.block()
            answer = await ask(api_of(router), path_of(key), "DELETE")
            assert (answer.status_code, answer.json()["code"]) == (503, "owner_unreachable")
            assert int(answer.headers["retry-after"]) > 0
            name, data = await hearing.event()
            assert (name, data["connectionId"], data["reason"]) == (Action.CLOSE_FAILED, "far", "owner_unreachable")
        assert len(await agency.registry.list_active_by_agent(AGENT)) == 1


@pytest.mark.parametrize("fault", [Fault.AWAY, Fault.SILENT])
async def test_without_the_registry_nobody_knows_who_has_it(autojump_clock: MockClock, fault: Fault) -> None:
    faulty = FaultyRegistry(MemoryRegistry(clock=trio.current_time))
    async with open_agency(faulty) as agency:
        router = await agency.router("r1")
        await agency.agent("i1")
        [key] = keys(router)
        faulty.fault = fault
        began = trio.current_time()
        answer = await ask(api_of(router), path_of(ConnectionKey(AGENT, "far", ConnEpoch(7))), "DELETE")
        assert (answer.status_code, "retry-after" in answer.headers) == (503, True)
        assert trio.current_time() - began <= 2 * CLOSE_TIMEOUT
        answer = await ask(api_of(router), path_of(key), "DELETE")  # what is here can be closed all the same
        assert (answer.status_code, answer.json()["status"]) == (200, Closing.BEGUN.value)
