"""A router on the loopback: what the control plane and its members see of it."""

from pathlib import Path

import attrs
import pytest
import trio

from agentmesh.control_plane.errors import EnrollmentRejectedError
from agentmesh.credentials import ROLE_NODE, ROLE_ROUTER
from agentmesh.errors import AddressError
from agentmesh.identity import Identity
from agentmesh.membership import Enrollment
from agentmesh.protocols.goaway import Reason, Result
from agentmesh.router import RouterConfig, open_router
from agentmesh.runtime.config import ConnectionLimits, HostConfig
from agentmesh.runtime.host import open_host
from agentmesh.transports.h2 import H2Transport
from agentmesh.transports.websocket import WebSocketTransport
from agentmesh.types import Address
from tests.node.loopback import LISTEN, open_loopback
from tests.transports.certificates import Authority

TCP = LISTEN[:1]


async def test_a_router_is_listed_with_its_addresses_and_its_room(tmp_path: Path) -> None:
    limits = ConnectionLimits(high_watermark=50, low_watermark=40, max_per_source=10)
    async with open_loopback(tmp_path) as mesh:
        router = await mesh.router("router", host=HostConfig(connections=limits), lease_renew_interval=0.01)
        async with await mesh.node() as node:
            (listed,) = (await node.membership.client.info()).routers
            assert (listed.peer, listed.addresses) == (router.peer, router.addresses)
            assert {address.peer for address in listed.addresses} == {router.peer}
            assert listed.connection_limit == 50
            await mesh.wait_linked(node)
            with trio.fail_after(10):
                while listed.connections != 2:  # the node's, and the control plane's for its events
                    (listed,) = (await node.membership.client.info()).routers
        assert router.relay.book.limits.max_reservations == 50
        assert router.relay.book.limits.max_reservations_per_source == 10


async def test_a_router_tells_the_addresses_that_it_is_given(tmp_path: Path) -> None:
    outside = Address.parse("/dns4/r1.example/tcp/443/wss")
    async with open_loopback(tmp_path) as mesh:
        router = await mesh.router("router", external_addresses=(outside,))
        assert router.addresses == (outside.with_peer(router.peer),)
        async with await mesh.node(ready_timeout=0.0) as node:
            (listed,) = (await node.membership.client.info()).routers
            assert listed.addresses == router.addresses


async def test_a_router_that_listens_everywhere_tells_an_address_that_can_be_dialled(tmp_path: Path) -> None:
    async with open_loopback(tmp_path) as mesh:
        config = RouterConfig(
            enrollment=await mesh.enrollment(ROLE_ROUTER),
            state_dir=tmp_path / "router",
            listen=(Address.parse("/ip4/0.0.0.0/tcp/0"),),
        )
        async with open_router(config) as router, await mesh.node() as node:
            assert router.addresses[0].value("ip4") != "0.0.0.0"
            assert node.routers == (router.peer,)


@pytest.mark.parametrize("suffix", ["/tls/ws", "/tls/http"])
async def test_a_router_with_a_certificate_ends_tls_itself(tmp_path: Path, suffix: str) -> None:
    authority = Authority()
    authority.server_context(tmp_path, "127.0.0.1")
    async with open_loopback(tmp_path) as mesh:
        config = RouterConfig(
            enrollment=await mesh.enrollment(ROLE_ROUTER),
            state_dir=tmp_path / "router",
            listen=(Address.parse(f"/ip4/127.0.0.1/tcp/0{suffix}"),),
        )
        with pytest.raises(AddressError, match="no transport here listens"):
            async with open_router(config):
                raise AssertionError("unreachable")
        trusting = authority.client_context
        transports = [WebSocketTransport(client_context=trusting()), H2Transport(client_context=trusting())]
        async with (
            open_router(attrs.evolve(config, tls_certificate=tmp_path / "127.0.0.1.pem")) as router,
            open_host(identity=Identity.generate(), transports=transports) as member,
        ):
            assert (await member.connect(router.peer, router.addresses)).peer == router.peer


async def test_a_router_that_is_started_again_is_the_same_and_spends_no_token(tmp_path: Path) -> None:
    async with open_loopback(tmp_path) as mesh:
        enrollment = await mesh.enrollment(ROLE_ROUTER)
        config = RouterConfig(enrollment=enrollment, state_dir=tmp_path / "router", listen=TCP)
        async with open_router(config) as router:
            peer = router.peer
        config = attrs.evolve(config, enrollment=attrs.evolve(enrollment, token=None))
        async with open_router(config) as router:
            assert router.peer == peer
            assert router.membership.credential.role == ROLE_ROUTER


async def test_a_token_for_nodes_makes_no_router(tmp_path: Path) -> None:
    async with open_loopback(tmp_path) as mesh:
        config = RouterConfig(enrollment=await mesh.enrollment(ROLE_NODE), state_dir=tmp_path / "router", listen=TCP)
        with pytest.raises(EnrollmentRejectedError, match="role"):
            async with open_router(config):
                raise AssertionError("unreachable")


async def test_an_address_that_is_taken_is_the_systems_error(tmp_path: Path) -> None:
    async with open_loopback(tmp_path, "first") as mesh:
        first, _ = mesh.scopes["first"]
        config = RouterConfig(
            enrollment=await mesh.enrollment(ROLE_ROUTER),
            state_dir=tmp_path / "second",
            listen=(first.addresses[0].without_peer(),),
        )
        with pytest.raises(OSError, match="in use"):
            async with open_router(config):
                raise AssertionError("unreachable")


def test_a_lease_that_is_never_renewed_is_none() -> None:
    with pytest.raises(ValueError, match="lease_renew_interval"):
        RouterConfig(enrollment=Enrollment(control_plane="http://cp"), lease_renew_interval=0.0)


async def test_the_control_plane_keeps_no_router_from_stopping(tmp_path: Path) -> None:
    """Its link for events is a session like others'; it ends when it is told that the router stops."""
    async with open_loopback(tmp_path) as mesh:
        config = RouterConfig(enrollment=await mesh.enrollment(ROLE_ROUTER), state_dir=tmp_path / "router", listen=TCP)
        async with open_router(config) as router:
            with trio.fail_after(20):
                while not router.floodsub.statistics().links:  # noqa: ASYNC110 - only looking tells
                    await trio.sleep(0.02)
        assert router.departures.sent[Reason.DRAINING, Result.OK] == 1
