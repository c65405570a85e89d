"""Nodes that have their routers find out whether they can be dialled, in virtual time."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio
from trio.testing import MockClock

from agentmesh.abc import Transport
from agentmesh.membership import Enrollment
from agentmesh.node import Node, NodeConfig, Reachability
from agentmesh.node.reachability import CHECK_INTERVAL, RETRY_INTERVAL
from agentmesh.protocols.dialback.machine import ANSWER_TIMEOUT
from agentmesh.router import RouterConfig
from agentmesh.router.dialbacks import make_dial_back
from agentmesh.runtime.nursery import open_background
from agentmesh.runtime.tls import TlsContext
from agentmesh.testing import MemoryNetwork
from agentmesh.types import Address
from tests.membership.plane import Plane
from tests.node.fleet import Fleet, call
from tests.node.internet import EVERYWHERE, Internet, ip_address
from tests.node.loopback import LISTEN, open_loopback

AUTO = Reachability.AUTO
SETTLED = 10.0  # seconds in which a dial-back is over, and what it found announced


@attrs.frozen
class Online(Fleet):
    """A fleet whose hosts have IP addresses."""

    internet: Internet = attrs.Factory(lambda self: Internet(self.network), takes_self=True)

    def transport(self, name: str) -> Transport:
        return self.internet.transport(name)

    def listen_address(self, name: str) -> Address:
        return ip_address(self.network.ip(name), 0)


@asynccontextmanager
async def online() -> AsyncGenerator[Online]:
    async with open_background() as nursery:
        yield Online(MemoryNetwork(seed=1), Plane(), nursery)


def direct(node: Node) -> list[Address]:
    return [address.without_peer() for address in node.addresses if address.circuit is None]


def listening(node: Node) -> list[Address]:
    return [address.without_peer() for address in node.host.addresses if address.circuit is None]


def outside(fleet: Online, name: str, node: Node) -> list[Address]:
    """Where the node listens, as others see it."""
    return [ip_address(fleet.network.ip(name), address.value("tcp") or "") for address in listening(node)]


def is_direct(caller: Node, peer: Node) -> bool:
    """Whether the session to use for a peer goes through no router."""
    session = caller.host.session(peer.peer)
    assert session is not None
    assert session.address is not None
    return session.address.circuit is None


async def test_a_node_that_can_be_dialled_says_so_and_is_dialled(autojump_clock: MockClock) -> None:
    async with online() as fleet:
        router = await fleet.router("router")
        bob = await fleet.node("bob", listen=(EVERYWHERE,), reachability=AUTO)
        alice = await fleet.node("alice", reachability=AUTO)
        await trio.sleep(SETTLED)
        assert direct(bob) == outside(fleet, "bob", bob)
        assert any(address.circuit for address in bob.addresses)
        assert {*bob.announcer.announced} == {*bob.addresses}
        await call(alice, bob.peer)
        assert is_direct(alice, bob)
        assert router.relay.statistics().opened == 0


async def test_a_node_behind_a_nat_is_reached_by_its_router(autojump_clock: MockClock) -> None:
    async with online() as fleet:
        router = await fleet.router("router")
        fleet.internet.hidden.add("bob")
        bob = await fleet.node("bob", listen=(EVERYWHERE,), reachability=AUTO)
        alice = await fleet.node("alice", reachability=AUTO)
        await trio.sleep(SETTLED)
        assert ("router", str(*outside(fleet, "bob", bob))) in fleet.internet.dials
        assert direct(bob) == []
        assert bob.announcer.announced == bob.addresses
        await call(alice, bob.peer)
        assert not is_direct(alice, bob)
        assert router.relay.statistics().opened == 1


async def test_a_node_that_cannot_be_dialled_any_more_is_reached_by_its_router(autojump_clock: MockClock) -> None:
    """Before its routers have found out: the direct attempt has a moment, then a circuit is tried beside it."""
    async with online() as fleet:
        await fleet.router("router")
        bob = await fleet.node("bob", listen=(EVERYWHERE,), reachability=AUTO)
        alice = await fleet.node("alice", reachability=AUTO)
        await trio.sleep(SETTLED)
        fleet.internet.hidden.add("bob")
        began = trio.current_time()
        await call(alice, bob.peer)
        assert trio.current_time() - began < 1
        assert not is_direct(alice, bob)
        assert ("alice", str(*outside(fleet, "bob", bob))) in fleet.internet.dials


async def test_what_routers_find_is_found_again_every_quarter_of_an_hour(autojump_clock: MockClock) -> None:
    async with online() as fleet:
        await fleet.router("router")
        bob = await fleet.node("bob", listen=(EVERYWHERE,), reachability=AUTO)
        await trio.sleep(SETTLED)
        for is_hidden in (True, False, True):
            (fleet.internet.hidden.add if is_hidden else fleet.internet.hidden.remove)("bob")
            await trio.sleep(1.1 * CHECK_INTERVAL + SETTLED)
            assert direct(bob) == ([] if is_hidden else outside(fleet, "bob", bob))
            assert {*bob.announcer.announced} == {*bob.addresses}


async def test_a_new_address_is_tried_at_once_and_an_old_one_is_gone_at_once(autojump_clock: MockClock) -> None:
    async with online() as fleet:
        await fleet.router("router")
        bob = await fleet.node("bob", reachability=AUTO)
        await trio.sleep(SETTLED)
        assert direct(bob) == []
        async with bob.host.listening(EVERYWHERE):
            await trio.sleep(SETTLED)
            assert direct(bob) == outside(fleet, "bob", bob) != []
            assert {*bob.announcer.announced} == {*bob.addresses}
        assert direct(bob) == []
        await trio.sleep(SETTLED)
        assert {*bob.announcer.announced} == {*bob.addresses}


async def test_one_router_that_gets_through_is_enough_for_as_long_as_it_is_held(autojump_clock: MockClock) -> None:
    async with online() as fleet:
        for name in ("r1", "r2"):
            await fleet.router(name)
        bob = await fleet.node("bob", listen=(EVERYWHERE,), reachability=AUTO)
        await trio.sleep(SETTLED)
        fleet.internet.hidden.add("bob")
        await fleet.stop("r1")
        await trio.sleep(SETTLED)
        assert direct(bob) == outside(fleet, "bob", bob)  # r2 has not looked again
        await fleet.stop("r2")
        assert direct(bob) == []


async def test_a_router_that_does_not_answer_is_asked_again_a_minute_later(autojump_clock: MockClock) -> None:
    async with online() as fleet:
        await fleet.router("router")
        bob = await fleet.node("bob", reachability=AUTO)
        await trio.sleep(SETTLED)
        fleet.network.freeze("router")
        async with bob.host.listening(EVERYWHERE):
            await trio.sleep(ANSWER_TIMEOUT + 1)
            fleet.network.thaw("router")
            await trio.sleep(RETRY_INTERVAL - 2)
            assert direct(bob) == []
            await trio.sleep(0.1 * RETRY_INTERVAL + SETTLED)
            assert direct(bob) == outside(fleet, "bob", bob)


async def test_a_private_node_asks_nobody_and_dials_by_its_routers(autojump_clock: MockClock) -> None:
    async with online() as fleet:
        await fleet.router("router")
        bob = await fleet.node("bob", listen=(EVERYWHERE,), reachability=AUTO)
        alice = await fleet.node("alice", listen=(EVERYWHERE,))
        await trio.sleep(2 * CHECK_INTERVAL)
        assert direct(alice) == listening(alice)
        assert ("router", str(*outside(fleet, "alice", alice))) not in fleet.internet.dials
        await call(alice, bob.peer)
        assert not is_direct(alice, bob)


async def test_a_member_that_has_not_announced_itself_yet_is_called_by_a_circuit(autojump_clock: MockClock) -> None:
    async with online() as fleet:
        router = await fleet.router("router")
        bob = await fleet.node("bob", listen=(EVERYWHERE,), reachability=AUTO)
        alice = await fleet.node("alice", reachability=AUTO)
        router.directory.forget(bob.peer)
        await call(alice, bob.peer)
        assert not is_direct(alice, bob)


async def test_every_transport_over_sockets(tmp_path: Path) -> None:
    async with open_loopback(tmp_path) as mesh:
        await mesh.router("router")
        async with await mesh.node(listen=LISTEN, reachability=AUTO) as bob:
            found = trio.Event()
            bob.direct.on_change(found.set)
            if not direct(bob):
                with trio.fail_after(10):
                    await found.wait()
            assert direct(bob) == listening(bob)
            assert len(direct(bob)) == len(LISTEN)


def test_a_mode_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="public"):
        NodeConfig(enrollment=Enrollment(control_plane="http://cp"), reachability="public")


@pytest.mark.parametrize(
    ("listen", "external", "is_local"),
    [
        ("/ip4/127.0.0.1/tcp/0", None, True),
        ("/ip4/0.0.0.0/tcp/0", None, False),
        ("/ip4/127.0.0.1/tcp/0", "/dns4/r1.example/tcp/443/wss", False),
        ("/memory/1", None, False),
    ],
)
async def test_a_router_dials_the_loopback_where_it_is_reached_there_alone(
    listen: str, external: str | None, is_local: bool
) -> None:
    told = (Address.parse(external),) if external else ()
    config = RouterConfig(
        enrollment=Enrollment(control_plane="http://cp"), listen=(Address.parse(listen),), external_addresses=told
    )
    assert make_dial_back(config, [], TlsContext).is_local is is_local
