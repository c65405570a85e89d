"""Nodes that call each other through real routers on the loopback: what a user of the library does, and sees."""

import hashlib
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import httpx2
import pytest
import trio
from starlette.applications import Starlette

from agentmesh.abc import Transport
from agentmesh.control_plane.errors import ControlPlaneUnavailableError, EnrollmentRejectedError
from agentmesh.credentials import ROLE_NODE
from agentmesh.errors import AddressError
from agentmesh.identity import Identity
from agentmesh.membership import Enrollment
from agentmesh.node import NodeConfig, open_node, run_node
from agentmesh.testing import leaves_nothing
from agentmesh.transports.h2 import H2Transport
from agentmesh.transports.tcp import TcpTransport
from agentmesh.transports.websocket import WebSocketTransport
from tests.node.loopback import LISTEN, app, open_loopback, url_of

BIG = 16 * 1024 * 1024


async def test_a_call_goes_through_the_router_and_says_who_calls(tmp_path: Path) -> None:
    async with open_loopback(tmp_path, "router") as mesh, await mesh.node() as alice, await mesh.node() as bob:
        async with bob.serve("http", "app", app()), alice.http_client() as client:
            response = await client.get(url_of(bob))
        assert (response.status_code, response.text) == (200, f"hello {alice.peer}")
        async with bob.serve("http", "app", app()), alice.http_client2(timeout=30) as client2:
            second = await client2.get(url_of(bob))
            assert isinstance(second, httpx2.Response)
            assert (second.status_code, second.text) == (200, f"hello {alice.peer}")
        router, _ = mesh.scopes["router"]
        assert router.relay.statistics().opened == 1
        assert alice.routers == bob.routers == (router.peer,)


async def test_a_service_is_there_for_as_long_as_its_block(tmp_path: Path) -> None:
    events = list[str]()

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        events.append("started")
        yield
        events.append("stopped")

    async with (
        open_loopback(tmp_path, "router") as mesh,
        await mesh.node() as alice,
        await mesh.node() as bob,
        alice.http_client() as client,
    ):

        async def status(service: str = "http/app") -> tuple[int, str | None]:
            response = await client.get(url_of(bob, service=service))
            return response.status_code, response.headers.get("x-mesh-error")

        assert await status() == (404, "unknown-service")
        async with bob.serve("http", "app", Starlette(lifespan=lifespan)):
            assert events == ["started"]
            assert await status() == (404, None)  # the application's own
            assert await status("http/other") == (404, "unknown-service")
            assert await status("nonsense/app") == (400, "malformed")
            with pytest.raises(ValueError, match="served already"):
                async with bob.serve("http", "app", app()):
                    raise AssertionError("unreachable")
        assert events == ["started", "stopped"]
        assert await status() == (404, "unknown-service")


async def test_the_url_of_a_server_is_served_like_an_application(tmp_path: Path) -> None:
    async with (
        open_loopback(tmp_path, "router") as mesh,
        await mesh.node() as alice,
        await mesh.node() as bob,
        bob.serve("http", "app", mesh.control_plane.url),
        alice.http_client() as client,
    ):
        response = await client.get(url_of(bob, "healthz"))
        assert (response.status_code, response.text) == (200, "ok\n")


async def test_a_large_body_goes_both_ways_whole(tmp_path: Path) -> None:
    async with open_loopback(tmp_path, "router") as mesh, await mesh.node() as alice, await mesh.node() as bob:
        piece = os.urandom(256 * 1024)

        async def body() -> AsyncGenerator[bytes]:
            for _ in range(BIG // len(piece)):
                yield piece

        received, size = hashlib.sha256(), 0
        async with (
            bob.serve("http", "app", app()),
            alice.http_client(timeout=60) as client,
            client.stream("POST", url_of(bob, "echo"), content=body()) as response,
        ):
            async for part in response.aiter_raw():
                received.update(part)
                size += len(part)
        assert size == BIG
        assert received.digest() == hashlib.sha256(piece * (BIG // len(piece))).digest()


async def test_a_credential_of_another_mesh_is_denied(tmp_path: Path) -> None:
    async with (
        open_loopback(tmp_path / "ours", "router") as ours,
        open_loopback(tmp_path / "theirs") as theirs,
        await ours.node(listen=LISTEN[:1]) as bob,
        await theirs.node(ready_timeout=0.0) as stranger,
        bob.serve("http", "app", app()),
        stranger.http_client() as client,
    ):
        await stranger.host.connect(bob.peer, bob.host.addresses)
        response = await client.get(url_of(bob))
        assert (response.status_code, response.headers["x-mesh-error"]) == (403, "denied")


async def test_a_peer_that_is_not_there_is_unreachable(tmp_path: Path) -> None:
    async with open_loopback(tmp_path, "router") as mesh, await mesh.node() as alice, alice.http_client() as client:
        async with await mesh.node() as bob, bob.serve("http", "app", app()):
            url = url_of(bob)
            assert (await client.get(url)).status_code == 200
        nobody = f"http://{Identity.generate().peer}.peer.mesh/http/app/"
        for gone in (url, nobody):
            response = await client.get(gone)
            assert (response.status_code, response.headers["x-mesh-error"]) == (502, "unreachable")


async def test_a_node_without_a_router_answers_that_it_is_not_connected(tmp_path: Path) -> None:
    async with open_loopback(tmp_path) as mesh, await mesh.node(ready_timeout=0.0) as alice:
        async with alice.http_client() as client:
            response = await client.get(url_of(alice))
            assert (response.status_code, response.headers["x-mesh-error"]) == (503, "not-connected")
        await mesh.router("router")
        with trio.fail_after(10):
            await alice.wait_ready()


@pytest.mark.parametrize(("transport", "part"), [(WebSocketTransport(), "ws"), (H2Transport(), "http")])
async def test_nodes_of_different_transports_call_each_other(tmp_path: Path, transport: Transport, part: str) -> None:
    async with (
        open_loopback(tmp_path, "router") as mesh,
        await mesh.node(transports=[TcpTransport()]) as tcp,
        await mesh.node(transports=[transport]) as other,
        tcp.serve("http", "app", app()),
        other.serve("http", "app", app()),
        tcp.http_client() as from_tcp,
        other.http_client() as from_other,
    ):
        for client, node in ((from_tcp, other), (from_other, tcp)):
            response = await client.post(url_of(node, "echo"), content=b"x" * 1_000_000)
            assert (response.status_code, len(response.content)) == (200, 1_000_000)
        (over_tcp,) = (session.address for session in tcp.host.connections if session.peer == tcp.routers[0])
        (over_http,) = (session.address for session in other.host.connections if session.peer == tcp.routers[0])
        assert over_tcp is not None
        assert over_http is not None
        assert (part in over_tcp.names, part in over_http.names) == (False, True)


async def test_two_nodes_that_call_each_other_at_once(tmp_path: Path) -> None:
    async with (
        open_loopback(tmp_path, "router") as mesh,
        await mesh.node() as alice,
        await mesh.node() as bob,
        alice.serve("http", "app", app()),
        bob.serve("http", "app", app()),
        alice.http_client() as from_alice,
        bob.http_client() as from_bob,
    ):
        statuses = list[int]()

        async def get(client: httpx.AsyncClient, url: str) -> None:
            statuses.append((await client.get(url)).status_code)

        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(get, from_alice, url_of(bob))
                nursery.start_soon(get, from_bob, url_of(alice))
        assert statuses == [200] * 20


async def test_a_node_that_is_started_again_is_the_same_and_spends_no_token(tmp_path: Path) -> None:
    async with open_loopback(tmp_path, "router") as mesh:
        token = await mesh.control_plane.create_token(ROLE_NODE)  # good for one enrollment
        async with open_node(mesh.control_plane.url, token, state_dir=tmp_path / "alice") as alice:
            peer = alice.peer
        async with open_node(mesh.control_plane.url, state_dir=str(tmp_path / "alice"), routers=1) as alice:
            assert alice.peer == peer
            assert len(alice.routers) == 1
        with pytest.raises(EnrollmentRejectedError, match="token"):
            async with open_node(mesh.control_plane.url, token):
                raise AssertionError("unreachable")


async def test_the_next_call_goes_through_the_other_router_when_one_is_killed(tmp_path: Path) -> None:
    async with (
        open_loopback(tmp_path, "r0", "r1") as mesh,
        await mesh.node() as alice,
        await mesh.node() as bob,
        bob.serve("http", "app", app()),
        alice.http_client(timeout=30) as client,
    ):
        async with client.stream("GET", url_of(bob, "endless")) as response:
            received = response.aiter_raw()
            for _ in range(20):
                await anext(received)
            (carrier,) = (name for name, (router, _) in mesh.scopes.items() if router.relay.statistics().circuits)
            mesh.kill(carrier)
            with trio.fail_after(10), pytest.raises((httpx.ReadError, httpx.RemoteProtocolError)):
                async for _ in received:
                    pass
        with trio.fail_after(10):
            response = await client.get(url_of(bob))
        assert (response.status_code, response.text) == (200, f"hello {alice.peer}")
        ((left, _),) = mesh.scopes.values()
        assert left.relay.statistics().circuits == 1


async def test_a_node_leaves_nothing_behind(tmp_path: Path) -> None:
    async with open_loopback(tmp_path, "router") as mesh, await mesh.node() as bob:
        (router,) = await mesh.wait_linked(bob)
        others, left = router.host.connections.peers, trio.Event()
        router.host.on_disconnect(lambda _: left.set())
        async with bob.serve("http", "app", app()):
            config = await mesh.config()
            async with leaves_nothing(), run_node(config) as alice, alice.http_client() as client:
                assert (await client.get(url_of(bob))).status_code == 200
        with trio.fail_after(10):
            await left.wait()
        assert router.relay.statistics().reservations == 1
        assert router.host.connections.peers == others
        assert bob.peer in others


@pytest.mark.parametrize("url", ["127.0.0.1:8080", "ftp://127.0.0.1", ""])
async def test_a_wrong_url_is_said_at_once(url: str) -> None:
    with pytest.raises(AddressError, match="no HTTP URL"):
        async with open_node(url, "token"):
            raise AssertionError("unreachable")


async def test_a_control_plane_that_is_down_is_said_when_the_time_for_it_is_over() -> None:
    enrollment = Enrollment(control_plane="http://127.0.0.1:1", token="token", retry_budget=0.1)
    with trio.fail_after(5), pytest.raises(ControlPlaneUnavailableError, match="http://127.0.0.1:1.*does not answer"):
        async with run_node(NodeConfig(enrollment=enrollment)):
            raise AssertionError("unreachable")
