"""What operators see of a router, over HTTP in this process."""

import re
from collections.abc import Mapping
from typing import Any

import httpx
import pytest
import trio
from trio.testing import MockClock

from agentmesh.protocols.directory import Operation, Placement
from agentmesh.protocols.directory import Result as DirectoryResult
from agentmesh.router import Router
from agentmesh.router.pages import router_pages
from agentmesh.runtime.config import ConnectionLimits, HostConfig
from agentmesh.testing import Conditions
from tests.node.fleet import call, open_fleet

SMALL = HostConfig(connections=ConnectionLimits(high_watermark=20))


async def get(router: Router, path: str) -> httpx.Response:
    transport = httpx.ASGITransport(router_pages(router))
    async with httpx.AsyncClient(transport=transport, base_url="http://router") as client:
        return await client.get(path)


async def metrics(router: Router) -> Mapping[str, float]:
    text = (await get(router, "/metrics")).text
    return {name: float(value) for name, value in re.findall(r"^([a-z_]+(?:\{.*\})?) (\S+)$", text, re.MULTILINE)}


def of(name: str, **labels: str) -> str:
    pairs = ",".join(f'{key}="{value}"' for key, value in labels.items())
    return f"agentmesh_router_{name}" + (f"{{{pairs}}}" if pairs else "")


async def test_every_metric_is_there_from_the_start(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        router = await fleet.router("router", host=SMALL)
        found = await metrics(router)
        refusals = ("per_ip_limit", "rate_limit", "scope_limit", "other")
        results = ("ok", "banned", "rate_limited", "read_failed", "invalid_frame", "unauthorized")
        goaways = [
            (reason, result) for reason in ("DRAINING", "OVERLOADED") for result in ("ok", "unsupported", "failed")
        ]
        expected = {
            of("info", peer_id=str(router.peer)): 1.0,
            **{of(name): 0.0 for name in ("draining", "authenticated_peers", "connected_peers", "banned_peers")},
            of("ready"): 1.0,
            of("dht_routing_table_size"): 0.0,
            of("biscuit_expiry_timestamp_seconds"): router.membership.credential.expires_at,
            of("conns_per_source_ip_limit"): 5.0,
            **{of("connections", direction=direction): 0.0 for direction in ("inbound", "outbound")},
            of("connection_watermark", level="low"): 17.0,
            of("connection_watermark", level="high"): 20.0,
            of("relay_limit", limit="reservations"): 20.0,
            of("relay_limit", limit="reservations_per_ip"): 5.0,
            of("relay_limit", limit="circuits_per_peer"): 1024.0,
            **{of("auth_handshakes_total", result=result): 0.0 for result in results},
            of("lease_renewals_total", result="ok"): 1.0,
            **{of("lease_renewals_total", result=r): 0.0 for r in ("unreachable", "unauthorized", "rejected")},
            **{of("inbound_connections_refused_total", reason=reason): 0.0 for reason in refusals},
            **{
                of("directory_requests_total", op=op, result=result): 0.0
                for op in Operation
                for result in DirectoryResult
            },
            **{of("directory_placements_total", result=result): 0.0 for result in Placement},
            **{of("goaway_sent_total", reason=reason, result=result): 0.0 for reason, result in goaways},
        }
        assert {name: found.get(name) for name in expected} == expected
        for op in Operation:
            timing = "directory_request_seconds"
            assert [found[of(f"{timing}_bucket", le=le, op=op)] for le in ("0.001", "5.0", "+Inf")] == [0, 0, 0]
            assert (found[of(f"{timing}_count", op=op)], found[of(f"{timing}_sum", op=op)]) == (0, 0)


async def test_how_long_requests_to_the_directory_take(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        router = await fleet.router("router", labels={"site": "a"})
        fleet.network.set_conditions("router", "other", Conditions(latency=0.02))
        await fleet.router("other")
        node = await fleet.node("node", router_selector={"site": "a"})
        await trio.sleep(10)
        await node.find_providers("mcp")
        found = await metrics(router)
        took = [found[of("directory_request_seconds_bucket", le=le, op="find_providers")] for le in ("0.025", "0.1")]
        assert took == [0, 1]
        assert found[of("directory_request_seconds_count", op="find_providers")] == 1
        assert 0.04 <= found[of("directory_request_seconds_sum", op="find_providers")] < 0.1


async def test_metrics_follow_what_happens(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        router = await fleet.router("router", host=SMALL)
        await fleet.router("other")
        alice, bob = await fleet.node("alice", routers=1), await fleet.node("bob", routers=2)
        await trio.sleep(1)
        await call(bob, alice.peer)
        held = [node for node in (alice, bob) if router.peer in node.routers]
        found = await metrics(router)
        assert found[of("authenticated_peers")] == 1 + len(router.members.present)
        assert found[of("relay_reservations")] == len(held)
        assert found[of("dht_routing_table_size")] == 1
        assert found[of("connections", direction="inbound")] == router.host.statistics().connections.inbound
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fleet.stop, "router")
            await trio.sleep(0.5)
            found = await metrics(router)
            assert (found[of("draining")], found[of("ready")]) == (1, 0)
            assert found[of("goaway_sent_total", reason="DRAINING", result="ok")] == len(held)
            assert found[of("lease_renewals_total", result="ok")] >= 2
            assert (await get(router, "/readyz")).status_code == 503
            assert (await get(router, "/healthz")).status_code == 200


async def test_a_router_whose_lease_has_run_out_is_not_ready(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        router = await fleet.router("router")
        assert (await get(router, "/readyz")).status_code == 200
        fleet.plane.is_away = True
        await trio.sleep(901)
        assert (await get(router, "/readyz")).status_code == 503


@pytest.mark.parametrize("leaving", [False, True])
async def test_members_and_strangers_are_shown(autojump_clock: MockClock, leaving: bool) -> None:
    async with open_fleet() as fleet:
        router, other = await fleet.router("router"), await fleet.router("other")
        node = await fleet.node("node", routers=2)
        await trio.sleep(1)
        if leaving:
            router.members.send_away([node.peer])
        shown: dict[str, Any] = {one["peer_id"]: one for one in (await get(router, "/debug/members")).json()}
        assert set(shown) == {str(node.peer), str(other.peer)}
        member = shown[str(node.peer)]
        assert (member["role"], member["leaving"], member["reserved"]) == ("member", leaving, True)
        assert (member["direction"], member["circuits"]) == ("inbound", 0)
        assert shown[str(other.peer)]["role"] == "router"
