"""What an operator sees of an agent's process."""

from pathlib import Path
from typing import Any

import httpx
from trio.testing import MockClock

from agentmesh.agent import AgentProcess, agent_pages
from agentmesh.pool.agent.config import ConnectionsConfig
from tests.agent.fleet import AGENT, open_agent_fleet, open_at, spread, wait_until
from tests.test_metric_names import AGENT as NAMES
from tests.test_metric_names import check


async def get(agent: AgentProcess, path: str) -> httpx.Response:
    transport = httpx.ASGITransport(agent_pages(agent))
    async with httpx.AsyncClient(transport=transport, base_url="http://agent") as client:
        return await client.get(path)


async def pool_of(agent: AgentProcess) -> dict[str, Any]:
    view: dict[str, Any] = (await get(agent, "/debug/pool")).json()
    return view


async def test_it_is_ready_while_a_router_has_a_connection(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with open_agent_fleet(tmp_path) as fleet:
        agent = await fleet.process()
        await wait_until(lambda: agent.pool.controller.count == 1)  # it has begun
        assert (await get(agent, "/healthz")).status_code == 200
        assert (await get(agent, "/readyz")).status_code == 503
        assert 'agentmesh_agent_connections{state="missing"} 1.0' in (await get(agent, "/metrics")).text
        router = await fleet.router("r1")
        await wait_until(lambda: agent.is_ready)
        assert (await get(agent, "/readyz")).status_code == 200
        metrics = (await get(agent, "/metrics")).text
        check(metrics, NAMES)
        for line in (
            'agentmesh_agent_connections{state="active"} 1.0',
            "agentmesh_agent_connections_limit 1.0",
            "agentmesh_agent_routers 1.0",
            "agentmesh_agent_streams 0.0",
            f'tunnelmesh_agent_connection_scale_decisions{{agent_id="{AGENT}",decision="scale_up",instance_id=',
        ):
            assert line in metrics
        stream = await open_at(router)
        assert "agentmesh_agent_streams 1.0" in (await get(agent, "/metrics")).text
        await stream.aclose()


async def test_each_decision_is_shown_with_what_it_was_made_on(autojump_clock: MockClock, tmp_path: Path) -> None:
    connections = ConnectionsConfig(min=1, max=2, high_watermark=3, evaluation_interval=5.0)
    async with open_agent_fleet(tmp_path) as fleet:
        router = await fleet.router("r1")
        agent = await fleet.process(connections=connections)
        await wait_until(lambda: spread(router) == [1])
        for _ in range(4):
            await open_at(router)
        await wait_until(lambda: spread(router) == [2])
        view = await pool_of(agent)
        assert (view["agentId"], view["ready"], view["ceiling"]) == (AGENT, True, 2)
        assert view["instanceIdKept"]
        (grown,) = [one for one in view["scaling"] if one["decision"] == "scale_up"]
        assert (grown["reason"], grown["connections"], grown["wanted"]) == ("high_streams", 1, None)
        assert grown["inputs"][0]["activeStreams"] == 4
        assert grown["at"].endswith("Z")
        waited = [one for one in view["scaling"] if one["decision"] == "rejected" and one["reason"] == "window"]
        assert [one["wanted"] for one in waited][:1] == ["high_streams"]
        assert sum(one["activeStreams"] for one in view["connections"] if one["state"] == "active") == 4
        assert {one["router"] for one in view["connections"]} == {str(router.peer)}
        assert 'decision="scale_up"' in (await get(agent, "/metrics")).text
