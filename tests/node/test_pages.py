"""What operators see of a node."""

import re
import stat
from collections.abc import Mapping
from pathlib import Path

import httpx
import pytest
import trio
from trio.testing import MockClock

from agentmesh.local import LocalConfig, serve_local_api
from agentmesh.membership.pages import serve_pages
from agentmesh.node import Node
from agentmesh.node.pages import node_pages
from agentmesh.protocols.goaway import GoAway, Reason, send_goaway
from tests.node.fleet import open_fleet
from tests.node.loopback import app, open_loopback


async def get(node: Node, path: str) -> httpx.Response:
    transport = httpx.ASGITransport(node_pages(node, debug=True))
    async with httpx.AsyncClient(transport=transport, base_url="http://node") as client:
        return await client.get(path)


async def metrics(node: Node) -> Mapping[str, float]:
    text = (await get(node, "/metrics")).text
    found = re.findall(r"^agentmesh_node_([a-z_]+(?:\{.*\})?) (\S+)$", text, re.MULTILINE)
    return {name: float(value) for name, value in found}


async def test_a_node_without_a_router_says_so(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        node = await fleet.node("node", ready_timeout=0.0)
        found = dict(await metrics(node))
        asked = [name for name in found if name.startswith("directory_")]
        of_programs = [name for name in found if name.startswith(("agents_", "facade_", "request"))]
        assert [found.pop(name) for name in (*asked, *of_programs)] == [0.0] * (len(asked) + len(of_programs))
        for op in ("provide", "find_providers", "find_peer"):
            assert f'directory_requests_total{{op="{op}",result="ok"}}' in asked
            assert f'directory_request_seconds_bucket{{le="0.05",op="{op}"}}' in asked
        assert found == {
            "ready": 0,
            "mesh_connected": 0,
            "connected_peers": 0,
            "authenticated_peers": 0,
            "biscuit_expiry_timestamp_seconds": node.membership.credential.expires_at,
            **{f'services_registered{{type="{kind}"}}': 0 for kind in ("a2a", "egress", "http", "inference", "mcp")},
            'routers{state="attached"}': 0,
            'routers{state="wanted"}': 0,
            'router_candidates{match="selector"}': 0,
            'router_candidates{match="any"}': 0,
            **{f'router_goaway_received_total{{reason="{reason}"}}': 0 for reason in Reason},
        }
        assert [(await get(node, path)).status_code for path in ("/healthz", "/readyz")] == [200, 503]
        mesh = (await get(node, "/debug/mesh-info")).json()
        assert (mesh["attached_routers"], mesh["router_peer_id"]) == ([], None)


async def test_metrics_and_pages_follow_what_happens(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        near, far = await fleet.router("r0", labels={"site": "a"}), await fleet.router("r1")
        node = await fleet.node("node", router_selector={"site": "a"})
        other = await fleet.node("other", routers=2)
        await trio.sleep(1)
        async with node.serve("http", "app", "http://127.0.0.1:1"):
            found = await metrics(node)
        assert (found["ready"], found['services_registered{type="http"}']) == (1, 1)
        assert (found['routers{state="attached"}'], found['routers{state="wanted"}']) == (1, 1)
        assert (found['router_candidates{match="selector"}'], found['router_candidates{match="any"}']) == (1, 2)
        assert (await get(node, "/readyz")).status_code == 200
        mesh = (await get(node, "/debug/mesh-info")).json()
        assert mesh["peer_id"] == str(node.peer)
        assert mesh["attached_routers"] == mesh["connected_peers"] == [mesh["router_peer_id"]] == [str(near.peer)]
        network = (await get(node, "/debug/network-info")).json()
        assert network == {
            "listen_addresses": [],
            "announced_addresses": [str(address) for address in node.addresses],
            "directory_addresses": [str(address) for address in node.announcer.announced],
        }
        token = (await get(node, "/debug/token-info")).json()
        assert (token["has_token"], token["is_expired"], token["expires_in_seconds"] > 86000) == (True, False, True)
        way = (await get(node, f"/debug/connectivity?peer_id={other.peer}")).json()
        assert (way["ping_latency_ms"], way["router_latency_ms"], way["ping_error"]) == (0, 0, False)
        await send_goaway(near.host.open_stream, node.peer, GoAway(Reason.OVERLOADED, 300.0))
        assert (await metrics(node))['router_goaway_received_total{reason="OVERLOADED"}'] == 1
        assert far.peer not in node.routers


@pytest.mark.parametrize("peer", ["", "nobody"])
async def test_connectivity_to_what_is_no_peer_is_the_askers_fault(autojump_clock: MockClock, peer: str) -> None:
    async with open_fleet() as fleet:
        node = await fleet.node("node", ready_timeout=0.0)
        answer = await get(node, f"/debug/connectivity?peer_id={peer}")
        assert (answer.status_code, "peer_id" in answer.json()["error"]) == (400, True)
        unreachable = (await get(node, f"/debug/connectivity?peer_id={node.peer}")).json()
        assert (unreachable["ping_error"], unreachable["ping_latency_ms"]) == (True, None)


async def test_pages_for_debugging_on_a_port_are_for_whoever_has_the_token(tmp_path: Path) -> None:
    config = LocalConfig(bind_address="127.0.0.1:0", token_path=tmp_path / "token")
    async with (
        open_loopback(tmp_path / "mesh", "router") as mesh,
        await mesh.node() as node,
        serve_local_api(node, config) as url,
        httpx.AsyncClient(base_url=url or "") as client,
    ):
        shown = {"Authorization": f"Bearer {(tmp_path / 'token').read_text().strip()}"}
        for page in ("mesh-info", "network-info", "token-info", f"connectivity?peer_id={node.peer}"):
            path = f"/debug/{page}"
            assert (await client.get(path)).status_code == 401
            assert (await client.get(path, headers={"Authorization": "Bearer wrong"})).status_code == 403
            assert (await client.get(path, headers=shown)).status_code == 200
        assert [(await client.get(path)).status_code for path in ("/healthz", "/readyz", "/metrics")] == [
            200,
            200,
            401,
        ]
        assert (await client.get("/debug/mesh-info", headers=shown)).json()["local_api_socket"] is None


async def test_pages_on_a_port_and_on_a_socket_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "node.sock"
    async with open_loopback(tmp_path / "mesh", "router") as mesh, await mesh.node() as node:
        async with (
            node.serve("http", "app", app()),
            serve_pages(node_pages(node), "127.0.0.1:0") as url,
            serve_local_api(node, LocalConfig(path)),
        ):
            assert url is not None
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            async with httpx.AsyncClient() as client:
                assert (await client.get(f"{url}/readyz")).text == "ready\n"
                assert (await client.get(f"{url}/debug/mesh-info")).status_code == 404
            transport = httpx.AsyncHTTPTransport(uds=str(path))
            async with httpx.AsyncClient(transport=transport, base_url="http://node") as client:
                mesh_info = (await client.get("/debug/mesh-info")).json()
                assert (mesh_info["peer_id"], mesh_info["local_api_socket"]) == (str(node.peer), str(path))
        assert not path.exists()
        async with serve_pages(node_pages(node), None) as nothing, serve_local_api(node, LocalConfig()) as nowhere:
            assert (nothing, nowhere) == (None, None)
