"""A ban puts a member out of the mesh, at routers and at other members, and holds until it is lifted."""

from contextlib import suppress
from pathlib import Path

import httpx
import pytest
import trio
from trio.testing import MockClock

from agentmesh.control_plane.errors import RequestRefusedError
from agentmesh.errors import DialError, NotConnectedError
from agentmesh.membership.membership import INFO_RETRY_INTERVAL, INFO_SYNC_INTERVAL
from agentmesh.node import Node
from agentmesh.router import Router
from tests.node.fleet import call, open_fleet, wait_attached
from tests.node.loopback import app, open_loopback, url_of

LOOKED = 1.1 * INFO_SYNC_INTERVAL + 1  # by then everybody has


async def test_node_revocation_integration(tmp_path: Path) -> None:
    """A banned node is out at once at whoever has heard of it: its calls under way, its sessions, its renewals."""
    async with (
        open_loopback(tmp_path, "router") as mesh,
        await mesh.node() as alice,
        await mesh.node() as bob,
        bob.serve("http", "app", app()),
        alice.http_client(timeout=10) as client,
    ):
        router, _ = mesh.scopes["router"]
        async with client.stream("GET", url_of(bob, "endless")) as response:
            received = response.aiter_raw()
            await anext(received)
            await mesh.control_plane.herald.ban(alice.peer)
            await bob.membership.info()
            assert bob.host.session(alice.peer) is None
            with trio.fail_after(5), pytest.raises((httpx.ReadError, httpx.RemoteProtocolError)):
                async for _ in received:
                    pass
        await router.membership.info()
        assert router.host.session(alice.peer) is None
        assert alice.peer not in router.host.admissions
        with trio.fail_after(5):
            while alice.routers:  # noqa: ASYNC110 - seen from outside
                await trio.sleep(0.01)
        assert (await client.get(url_of(bob))).status_code in (502, 503)
        with pytest.raises(RequestRefusedError, match="banned"):
            await alice.membership.client.refresh(alice.membership.token())
        assert router.relay.statistics().circuits == 0


async def can_call(caller: Node, provider: Node) -> bool:
    with suppress(DialError, trio.BrokenResourceError):
        await call(caller, provider.peer)
        return True
    return False


async def test_a_banned_member_is_out_until_the_ban_is_lifted(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        routers = [await fleet.router(name) for name in ("r1", "r2")]
        alice, bob = await fleet.node("alice"), await fleet.node("bob")
        await wait_attached(alice, *routers)
        await call(alice, bob.peer)
        fleet.plane.banned.add(alice.peer)
        await trio.sleep(LOOKED)
        assert alice.routers == ()
        assert [router.host.session(alice.peer) for router in routers] == [None, None]
        assert bob.host.session(alice.peer) is None
        with pytest.raises(NotConnectedError):
            await call(alice, bob.peer)
        with pytest.raises(DialError, match="barred"):
            await call(bob, alice.peer)
        fleet.plane.banned.clear()
        await trio.sleep(LOOKED)
        await wait_attached(alice, *routers, within=600)
        await call(alice, bob.peer)
        assert await can_call(bob, alice)


async def test_a_router_that_starts_knows_who_is_banned_before_it_listens(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        await fleet.router("r1")
        alice = await fleet.node("alice")
        await fleet.stop("r1")
        fleet.plane.banned.add(alice.peer)
        fleet.plane.routers.clear()
        again: Router = await fleet.router("r2")
        await trio.sleep(300)
        assert alice.routers == ()
        assert again.host.connections.peers == ()


async def test_a_ban_holds_while_the_control_plane_is_away(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        router = await fleet.router("r1")
        alice = await fleet.node("alice")
        fleet.plane.banned.add(alice.peer)
        await router.membership.info()
        fleet.plane.is_away = True
        fleet.plane.banned.clear()
        await trio.sleep(2 * LOOKED)
        assert router.host.session(alice.peer) is None
        fleet.plane.is_away = False
        await trio.sleep(2 * INFO_RETRY_INTERVAL)
        assert alice.peer not in router.membership.bans


async def test_a_banned_member_says_so_in_its_log(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    async with open_fleet() as fleet:
        await fleet.router("r1")
        alice = await fleet.node("alice")
        fleet.plane.banned.add(alice.peer)
        await alice.membership.info()
    assert "this member is banned from the mesh" in caplog.text
