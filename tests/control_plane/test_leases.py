"""Leases: who may take one, how long it lasts, and what /info says of it."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmesh.control_plane.leases import MAX_ADDRESSES, lease_expiry
from agentmesh.identity import Identity
from agentmesh.wire.messages.mesh.v1 import ControlPlaneInfoResponse, RouterLeaseResponse
from tests.control_plane.plane import Harness, open_harness

LEASE = 900.0


async def router_of(mesh: Harness, identity: Identity, labels: dict[str, str] | None = None) -> bytes:
    token = await mesh.plane.create_token("router")
    return (await mesh.enroll(mesh.enroll_request(identity, token, labels=labels or {}))).biscuit_token


async def info(mesh: Harness) -> ControlPlaneInfoResponse:
    response = await mesh.http.get("/info")
    assert response.status_code == 200
    return ControlPlaneInfoResponse.parse(response.content)


async def lease(mesh: Harness, identity: Identity, credential: bytes, **changes: Any) -> float:
    response = await mesh.post("/routers/lease", mesh.lease_request(identity, credential, **changes))
    assert response.status_code == 200, response.text
    answer = RouterLeaseResponse.parse(response.content)
    assert answer.success
    assert answer.expire_time is not None
    return answer.expire_time.timestamp() - mesh.clock.now


async def test_router_lease_ttl(tmp_path: Path) -> None:
    """A ttl shortens, never lengthens; zero withdraws with that request; a negative one is malformed."""
    async with open_harness(tmp_path) as mesh:
        router = Identity.generate()
        credential = await router_of(mesh, router)
        assert await lease(mesh, router, credential) == LEASE
        assert await lease(mesh, router, credential, ttl=timedelta(seconds=30)) == 30
        mesh.clock.now += 29.9
        assert len((await info(mesh)).routers) == 1
        mesh.clock.now += 0.1
        assert (await info(mesh)).routers == []
        assert await lease(mesh, router, credential, ttl=timedelta(days=300)) == LEASE
        assert await lease(mesh, router, credential, ttl=timedelta(0)) == 0
        assert (await info(mesh)).routers == []
        negative = mesh.lease_request(router, credential, ttl=timedelta(seconds=-1))
        assert (await mesh.post("/routers/lease", negative)).status_code == 400


@given(st.floats(0, 1e9), st.floats(1, 1e6), st.none() | st.floats(0, 1e9))
def test_no_ttl_lengthens_a_lease(now: float, duration: float, ttl: float | None) -> None:
    assert now <= lease_expiry(now, duration, ttl) <= now + duration


@pytest.mark.parametrize("duration", [60.0, 3600.0])
async def test_how_long_leases_last_is_a_setting(tmp_path: Path, duration: float) -> None:
    async with open_harness(tmp_path, lease_duration=duration) as mesh:
        router = Identity.generate()
        assert await lease(mesh, router, await router_of(mesh, router)) == duration


async def test_info_lists_the_routers_that_are_up(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as mesh:
        routers = [Identity.generate() for _ in range(3)]
        for number, router in enumerate(routers):
            credential = await router_of(mesh, router, {"number": str(number)})
            loads = {"connections": 10 * number, "connection_limit": 100, "connected_peers": 9, "dht_size": 8}
            await lease(mesh, router, credential, ttl=timedelta(seconds=10 * number), **loads)
        answer = await info(mesh)
        assert [listed.peer_id for listed in answer.routers] == sorted(str(router.peer) for router in routers[1:])
        listed = next(listed for listed in answer.routers if listed.peer_id == str(routers[2].peer))
        assert (listed.labels, listed.connections, listed.connection_limit) == ({"number": "2"}, 20, 100)
        assert answer.router_addresses == [address for listed in answer.routers for address in listed.addresses]


async def test_addresses_are_listed_in_canonical_spelling(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as mesh:
        router = Identity.generate()
        credential = await router_of(mesh, router)
        await lease(mesh, router, credential, addresses=[f"/ip4/1.2.3.4/tcp/5/p2p/{router.peer.dns_label}"])
        assert (await info(mesh)).router_addresses == [f"/ip4/1.2.3.4/tcp/5/p2p/{router.peer}"]


@pytest.mark.parametrize(
    "addresses",
    [
        ["/ip4/10.0.0.1/tcp/4001"],
        [f"/ip4/10.0.0.1/tcp/4001/p2p/{Identity.generate().peer}"],
        ["nonsense"],
        [""],
        ["/ip4/1.2.3.4/tcp/5"] * (MAX_ADDRESSES + 1),
        ["/dns4/" + "a" * 2000],
    ],
)
async def test_addresses_end_in_the_routers_own_peer_id(tmp_path: Path, addresses: list[str]) -> None:
    async with open_harness(tmp_path) as mesh:
        router = Identity.generate()
        request = mesh.lease_request(router, await router_of(mesh, router), addresses=addresses)
        assert (await mesh.post("/routers/lease", request)).status_code == 400
        assert (await info(mesh)).routers == []


@pytest.mark.parametrize("field", ["connected_peers", "dht_size", "connections", "connection_limit"])
async def test_loads_are_not_negative(tmp_path: Path, field: str) -> None:
    async with open_harness(tmp_path) as mesh:
        router = Identity.generate()
        request = mesh.lease_request(router, await router_of(mesh, router), **{field: -1})
        assert (await mesh.post("/routers/lease", request)).status_code == 400


async def test_a_node_gets_no_lease(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as mesh:
        node = Identity.generate()
        answer = await mesh.enroll(mesh.enroll_request(node, await mesh.plane.create_token("node")))
        response = await mesh.post("/routers/lease", mesh.lease_request(node, answer.biscuit_token))
        assert (response.status_code, response.text) == (403, "the peer is not a router\n")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"biscuit": b""}, "does not admit"),
        ({"biscuit": bytes(200)}, "does not admit"),
        ({"challenge_signature": bytes(64)}, "not signed with the key"),
        ({"challenge_unix_ms": 5}, "stale or invalid challenge timestamp"),
    ],
)
async def test_without_proof_or_credential_there_is_no_lease(
    tmp_path: Path, changes: dict[str, Any], text: str
) -> None:
    async with open_harness(tmp_path) as mesh:
        router = Identity.generate()
        credential = await router_of(mesh, router)
        response = await mesh.post("/routers/lease", mesh.lease_request(router, credential, **changes))
        assert (response.status_code, text in response.text) == (401, True), response.text


async def test_an_expired_credential_gets_no_lease(tmp_path: Path) -> None:
    async with open_harness(tmp_path, biscuit_ttl=100) as mesh:
        router = Identity.generate()
        credential = await router_of(mesh, router)
        mesh.clock.now += 101
        assert (await mesh.post("/routers/lease", mesh.lease_request(router, credential))).status_code == 401


async def test_a_router_that_the_database_does_not_know_gets_no_lease(tmp_path: Path) -> None:
    """Its credential is good, but the database was set up anew around the old keys."""
    async with open_harness(tmp_path) as mesh:
        router = Identity.generate()
        issue = mesh.plane.authority.issue(router.peer, "mesh:role:router", {}, "")
        response = await mesh.post("/routers/lease", mesh.lease_request(router, issue.credential))
        assert (response.status_code, response.text) == (401, "the peer is not enrolled\n")
