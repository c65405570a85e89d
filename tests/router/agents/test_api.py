"""What operators see of agents and do to their connections: each path, each status."""

from collections import Counter
from http import HTTPStatus

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from agentmesh.pool.agent.config import ConnectionsConfig
from agentmesh.pool.agent.scaling import Decision
from agentmesh.pool.metrics import router_samples
from agentmesh.pool.registry import MemoryRegistry, NewConnection, Registered
from agentmesh.pool.router.selection import cheapest, is_online
from agentmesh.pool.router.table import PoolTable
from agentmesh.router import Router
from agentmesh.router.agents.lookup import REGISTRY_TIMEOUT
from tests.pool.registry.faulty import Fault, FaultyRegistry
from tests.router.agents.agency import AGENT, dialled, open_agency, wait_joined
from tests.router.agents.operators import api_of, ask, shown

TWO = ConnectionsConfig(min=2, max=2)


def table_of(router: Router) -> PoolTable:
    return router.agents.service.table


async def test_a_page_of_agents_and_what_all_come_to(autojump_clock: MockClock) -> None:
    async with open_agency() as agency:
        router = await agency.router("r1")
        app = api_of(router)
        assert await shown(app) == {
            "serverNodeId": str(router.peer),
            "agents": [],
            "nextCursor": None,
            "summary": {"agents": 0, "online": 0, "instances": 0, "connections": 0, "activeStreams": 0},
        }
        for name in ("c", "a", "b"):
            await agency.agent(f"i-{name}", agent_id=f"agent-{name}", connections=TWO)
        page = await shown(app, "?limit=2")
        assert [one["agentId"] for one in page["agents"]] == ["agent-a", "agent-b"]
        assert {one["online"] for one in page["agents"]} == {True}
        summary = {"agents": 3, "online": 3, "instances": 3, "connections": 6, "activeStreams": 0}
        assert (page["nextCursor"], page["summary"]) == ("agent-b", summary)
        rest = await shown(app, f"?limit=2&cursor={page['nextCursor']}")
        assert [one["agentId"] for one in rest["agents"]] == ["agent-c"]
        assert (rest["nextCursor"], rest["summary"]) == (None, summary)  # whatever is on the page
        assert rest["agents"][0]["connectionCount"] == rest["agents"][0]["healthyConnectionCount"] == 2


async def test_an_agent_with_connections_here_and_elsewhere(autojump_clock: MockClock) -> None:
    async with open_agency() as agency:
        near, far = await agency.router("r1"), await agency.router("r2")
        await wait_joined(near, far)
        await agency.agent("i1", near, connections=TWO)
        await agency.agent("i2", far)
        client = await agency.client("c", near)
        streams = [await dialled(client) for _ in range(3)]
        await trio.sleep(40)
        for name in (AGENT, AGENT.upper()):
            view = await shown(api_of(near), f"/{name}")
            assert (view["agentId"], view["online"], view["registry"]) == (AGENT, True, "available")
            assert (view["instanceCount"], view["connectionCount"], view["activeStreams"]) == (2, 3, 3)
        local = {one["instanceId"]: one["local"] for one in view["instances"]}
        assert local == {"i1": True, "i2": False}
        listed = await shown(api_of(near), f"/{AGENT}/connections")
        assert listed["connections"] == view["connections"]
        leases = {lease.connection_id: lease for lease in await agency.registry.list_active_by_agent(AGENT)}
        for one in listed["connections"]:
            lease = leases[one["connectionId"]]
            assert one["connectionEpoch"] == lease.connection_epoch == int(one["connectionEpochDecimal"])
            assert one["serverNodeId"] == lease.server_node_id
            assert one["local"] == (lease.server_node_id == str(near.peer))
            assert (one["healthy"], one["healthScore"]) == (True, 100)
            assert one["leaseExpiresAt"] is not None
            assert (one["lastHeartbeatAt"] is not None) == one["local"]
            if one["local"]:
                assert 0 <= one["sinceHeartbeatSeconds"] <= 10
        assert len({one["connectionId"] for one in listed["connections"]}) == 3
        keys = [set(one) for one in listed["connections"]]
        assert keys[0] == keys[1] == keys[2]  # a program finds each field, wherever the connection is
        for stream in streams:
            await stream.aclose()


async def test_without_the_registry_what_is_here_is_shown(autojump_clock: MockClock) -> None:
    faulty = FaultyRegistry(MemoryRegistry(clock=trio.current_time))
    async with open_agency(faulty) as agency:
        router = await agency.router("r1")
        await agency.agent("i1")
        for fault in (Fault.AWAY, Fault.SILENT):
            faulty.fault = fault
            began = trio.current_time()
            for path in ("", "/connections", "/metadata"):
                view = await shown(api_of(router), f"/{AGENT}{path}")
                assert view["registry"] == "unavailable"
            assert trio.current_time() - began <= 3 * REGISTRY_TIMEOUT
            view = await shown(api_of(router), f"/{AGENT}/connections")
            assert [(one["local"], one["leaseExpiresAt"]) for one in view["connections"]] == [(True, None)]
            assert (await shown(api_of(router), "/nobody"))["online"] is False


async def test_a_router_that_knows_no_other(autojump_clock: MockClock) -> None:
    async with open_agency() as agency:
        router = await agency.fleet.router("r1")
        await agency.agent("i1")
        view = await shown(api_of(router), f"/{AGENT}")
        assert (view["registry"], view["online"], view["connections"][0]["leaseExpiresAt"]) == ("none", True, None)


async def test_an_agent_that_is_not_there_is_offline_and_no_error(autojump_clock: MockClock) -> None:
    async with open_agency() as agency:
        app = api_of(await agency.router("r1"))
        view = await shown(app, "/nobody")
        assert (view["agentId"], view["online"], view["connections"], view["instances"]) == ("nobody", False, [], [])
        assert (await shown(app, "/nobody/connections"))["connections"] == []
        assert await shown(app, "/nobody/metadata") == {
            "agentId": "nobody",
            "items": [],
            "instances": [],
            "registry": "available",
        }
        assert (await shown(app, "/nobody/traces"))["traces"] == []
        assert await shown(app, "/nobody/scaling") == {"agentId": "nobody", "instances": []}


async def test_two_agents_in_two_spellings_are_a_question(autojump_clock: MockClock) -> None:
    async with open_agency() as agency:
        router = await agency.router("r1")
        app = api_of(router)
        await agency.agent("i1", agent_id="Box")
        await agency.agent("i2", agent_id="box")
        refused = await ask(app, "/BOX/connections")
        assert (refused.status_code, refused.json()["code"]) == (409, "ambiguous_agent")
        assert refused.json()["agentIds"] == ["Box", "box"]
        for name, instance in (("Box", "i1"), ("box", "i2")):  # but who is named exactly is meant
            view = await shown(app, f"/{name}")
            assert (view["agentId"], [one["instanceId"] for one in view["connections"]]) == (name, [instance])


async def test_spellings_that_only_the_registry_knows(autojump_clock: MockClock) -> None:
    async with open_agency() as agency:
        app = api_of(await agency.router("r1"))

        async def far(agent_id: str) -> None:
            new = NewConnection(agent_id=agent_id, connection_id="far", instance_id="i9", server_node_id="n9")
            assert isinstance(await agency.registry.register_connection(new, 90.0), Registered)

        await far("Box")
        assert (await shown(app, "/bOX"))["agentId"] == "Box"
        await far("BOX")
        assert (await ask(app, "/box")).json()["agentIds"] == ["BOX", "Box"]
        assert (await shown(app, "/BOX"))["agentId"] == "BOX"
        await agency.agent("i1", agent_id="box")
        assert (await ask(app, "/bOx")).status_code == 409
        assert [one["local"] for one in (await shown(app, "/box"))["connections"]] == [True]
        for lease in await agency.registry.list_active_by_agent("box", exact=True):
            await agency.registry.release_connection(lease.fence)
        assert [one["local"] for one in (await shown(app, "/box"))["connections"]] == [True]  # listed or not


async def test_what_processes_tell_of_themselves(autojump_clock: MockClock) -> None:
    async with open_agency() as agency:
        near, far = await agency.router("r1"), await agency.router("r2")
        await wait_joined(near, far)
        await agency.agent("i1", near, connections=TWO)
        await agency.agent("i2", far)
        view = await shown(api_of(near), f"/{AGENT}/metadata")
        assert [(one["instanceId"], one["connectionCount"], one["local"]) for one in view["instances"]] == [
            ("i1", 2, True),
            ("i2", 1, False),
        ]
        assert {type(one["items"]) for one in view["instances"]} == {list} == {type(view["items"])}


async def test_why_a_connection_was_chosen(autojump_clock: MockClock) -> None:
    async with open_agency() as agency:
        router = await agency.router("r1")
        await agency.agent("i1", connections=TWO)
        client, app = await agency.client("c", router), api_of(router)
        streams = [await dialled(client) for _ in range(3)]
        found = await shown(app, f"/{AGENT}/traces")
        assert (len(found["traces"]), found["chosen"], found["none"]["local"]) == (3, {"local": 3, "remote": 0}, 0)
        for one in found["traces"]:
            scores = {each["connectionId"]: each["score"] for each in one["considered"]}
            assert scores[one["chosen"]] == min(scores.values())
        latest = found["traces"][0]
        assert (await shown(app, f"/{AGENT}/traces?limit=1"))["traces"] == [latest]
        assert (await shown(app, f"/{AGENT}/traces?traceId={latest['traceId']}"))["traces"] == [latest]
        assert (await shown(app, f"/{AGENT}/traces?traceId=none"))["traces"] == []
        assert latest["at"] >= found["traces"][-1]["at"]
        for stream in streams:
            await stream.aclose()


async def test_what_was_decided_on_the_number_of_connections(autojump_clock: MockClock) -> None:
    async with open_agency() as agency:
        router = await agency.router("r1")
        agent = await agency.agent("i1", connections=ConnectionsConfig(min=1, max=4, high_watermark=2, low_watermark=1))
        client = await agency.client("c", router)
        streams = [await dialled(client) for _ in range(4)]
        await trio.sleep(60)
        [told] = (await shown(api_of(router), f"/{AGENT}/scaling"))["instances"]
        assert (told["instanceId"], told["connections"], told["capacity"]) == ("i1", len(agent.connections), 4)
        assert told["scaleUps"] == agent.pool.controller.scaler.counts[Decision.SCALE_UP] >= 1
        assert {told["decision"], told["reason"]} & {"scale_up", "rejected"}
        assert (await shown(api_of(router), f"/{AGENT}"))["scaling"] == told
        for stream in streams:
            await stream.aclose()


async def agrees(router: Router) -> bool:
    """Whether pages, metrics and the choice of connections say the same of the agent; and whether it is online."""
    await wait_all_tasks_blocked()
    app, table, now = api_of(router), table_of(router), trio.current_time()
    one = await shown(app, f"/{AGENT}")
    page = {agent["agentId"]: agent for agent in (await shown(app))["agents"]}.get(AGENT, one)
    for name in ("online", "connectionCount", "activeStreams", "instanceCount", "healthyConnectionCount"):
        assert page[name] == one[name], name
    assert one["online"] == is_online(table.get(AGENT), table.limits, now)
    counts = Counter[str]()
    for sample in router_samples(table):
        counts[sample.metric.name] += int(sample.value)
    assert counts["tunnelmesh_agent_connections"] == one["connectionCount"]
    assert counts["tunnelmesh_agent_active_streams"] == one["activeStreams"]
    assert (await ask(app, "/debug/invariants")).json() == []
    pool = table.get(AGENT)
    assert one["online"] == (pool is not None and cheapest(pool, "tcp", table.limits, now) is not None)
    return bool(one["online"])


async def test_all_that_is_shown_agrees(autojump_clock: MockClock) -> None:
    async with open_agency() as agency:
        router = await agency.router("r1")
        client = await agency.client("c", router)
        assert not await agrees(router)
        agent = await agency.agent("i1", connections=TWO)
        streams = [await dialled(client) for _ in range(3)]
        for stream in streams:
            assert await agrees(router)
            await stream.aclose()
        agent.pool.drain()
        for _ in range(3):
            await agrees(router)
            await trio.sleep(2)
        assert not await agrees(router)


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/api", 404, "no_such_path"),
        ("GET", "/", 404, "no_such_path"),
        ("GET", f"/{AGENT}/", 404, "no_such_path"),
        ("GET", f"/{AGENT}/nothing", 404, "no_such_path"),
        ("POST", "", 405, "wrong_method"),
        ("POST", "/events", 405, "wrong_method"),
        ("DELETE", f"/{AGENT}", 405, "wrong_method"),
        ("GET", f"/{AGENT}/connections/c1", 405, "wrong_method"),
        ("GET", "?limit=0", 400, "no_number"),
        ("GET", "?limit=1001", 400, "no_number"),
        ("GET", "?limit=", 400, "no_number"),
        ("GET", "?limit=%C2%B2", 400, "no_number"),
        ("GET", f"/{AGENT}/traces?limit=257", 400, "no_number"),
        ("GET", "/no%20agent", 400, "no_identifier"),
        ("GET", f"/{'a' * 129}/metadata", 400, "no_identifier"),
    ],
)
async def test_what_cannot_be_asked(autojump_clock: MockClock, method: str, path: str, status: int, code: str) -> None:
    async with open_agency() as agency:
        answer = await ask(api_of(await agency.router("r1")), path, method)
        assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
        body = answer.json()
        assert (body["status"], body["code"], body["title"]) == (status, code, HTTPStatus(status).phrase)
        assert ("allow" in answer.headers) == (status == 405)


async def test_only_the_head_of_an_answer(autojump_clock: MockClock) -> None:
    async with open_agency() as agency:
        app = api_of(await agency.router("r1"))
        for path in ("", "/nobody", "/events"):
            assert (await ask(app, path, "HEAD")).status_code == 200
        assert (await ask(app, "/events", "HEAD")).headers["content-type"].startswith("text/event-stream")
