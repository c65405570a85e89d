"""Nodes and the directory: what they announce, what they find, and how they reach whom they found."""

from collections.abc import Sequence

import pytest
import trio
from trio.testing import MockClock

from agentmesh.errors import DialError, NotConnectedError
from agentmesh.identity import Identity
from agentmesh.node import Node
from agentmesh.node import announcer as module
from agentmesh.node.announcer import ANNOUNCE_INTERVAL, DEBOUNCE, FIRST_RETRY
from agentmesh.protocols.directory import Operation, Result, peer_key, service_key
from agentmesh.router import Router
from agentmesh.services import Target
from tests.node.fleet import Fleet, call, lone, open_fleet
from tests.node.loopback import app

SOON = DEBOUNCE + 1.0  # by then it is announced


def requests(router: Router, operation: Operation, result: Result = Result.OK) -> int:
    return router.directory.statistics().requests[operation, result]


async def providers(node: Node, type: str, name: str | None = None) -> list[object]:
    return [found.peer for found in await node.find_providers(type, name)]


async def test_a_service_is_found_while_it_is_served_and_its_node_while_it_is_up(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        routers = [await fleet.router(name) for name in ("r1", "r2")]
        alice, bob = await lone(fleet, "alice", routers[0]), await lone(fleet, "bob", routers[1])
        await trio.sleep(SOON)
        assert await providers(bob, "mcp") == []
        async with alice.serve("mcp", "calc", app()):
            await trio.sleep(SOON)
            (found,) = await bob.find_providers("mcp", "calc")
            assert (found.peer, found.addresses) == (alice.peer, alice.addresses)
            assert await providers(bob, "mcp") == await providers(bob, "mcp", "calc") == [alice.peer]
            assert [one.peer async for one in bob.discover("mcp")] == [alice.peer]
            async for one in bob.discover("mcp", "calc"):
                assert one == found
                break
            assert await providers(bob, "mcp", "other") == await providers(bob, "http") == []
        await trio.sleep(SOON)
        assert await providers(bob, "mcp") == []
        assert await bob.find_peer(alice.peer)
        assert alice.announcer.announced == alice.addresses
        await fleet.stop("alice")
        assert await bob.find_peer(alice.peer) is None
        with pytest.raises(ValueError, match="no service"):
            await bob.find_providers("", "x")


async def test_services_are_announced_first_and_all_is_withdrawn_on_stop(autojump_clock: MockClock) -> None:
    """Who finds the node by its own record finds its services too, and where it is; when it stops, nothing is found."""
    async with open_fleet() as fleet:
        router = await fleet.router("r1")
        alice, bob = await fleet.node("alice"), await fleet.node("bob")
        async with alice.serve("mcp", "calc", app()), alice.serve("http", "docs", app()):
            await trio.sleep(SOON)
            records = {one.key: one for one in router.directory.store if one.provider == alice.peer}
            own = records.pop(peer_key(alice.peer))
            assert set(records) == {
                service_key(*key) for key in (("mcp",), ("http",), ("mcp", "calc"), ("http", "docs"))
            }
            assert all(one.sequence < own.sequence and one.addresses == own.addresses for one in records.values())
            await fleet.stop("alice")
            for kind, name in (("mcp", "calc"), ("http", "docs")):
                assert await providers(bob, kind) == await providers(bob, kind, name) == []
            assert await bob.find_peer(alice.peer) is None


async def test_announcements_are_renewed_and_those_of_the_dead_are_forgotten(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        router = await fleet.router("r1")
        alice, bob = await fleet.node("alice"), await fleet.node("bob")
        async with alice.serve("mcp", "calc", app()):
            await trio.sleep(SOON)
            first = requests(router, Operation.PROVIDE)
            await trio.sleep(3 * 1.1 * ANNOUNCE_INTERVAL)
            assert requests(router, Operation.PROVIDE) >= first + 3 * 3
            assert await providers(bob, "mcp") == [alice.peer]
            fleet.network.freeze("alice")
            await trio.sleep(900 + 1)
            assert await providers(bob, "mcp") == []


async def test_a_router_that_is_gained_is_told_and_changes_come_in_heaps(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        await fleet.router("r1")
        alice = await fleet.node("alice", routers=2)
        await trio.sleep(SOON)
        assert len({address.circuit[0].peer for address in alice.announcer.announced if address.circuit}) == 1
        second = await fleet.router("r2")
        await trio.sleep(120)
        assert set(alice.announcer.announced) == set(alice.addresses)
        assert second.peer in {address.circuit[0].peer for address in alice.announcer.announced if address.circuit}
        before = sum(requests(router, Operation.PROVIDE) for router in (second,))
        for number in range(5):
            async with alice.serve("http", f"app{number}", app()):
                pass
        await trio.sleep(SOON)
        assert sum(requests(router, Operation.PROVIDE) for router in (second,)) - before <= 1


async def test_what_does_not_answer_is_not_announced_until_it_does(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    up = set[Target]()

    async def answers(target: Target) -> bool:
        await trio.lowlevel.checkpoint()
        return target in up

    monkeypatch.setattr(module, "answers", answers)
    async with open_fleet() as fleet:
        await fleet.router("r1")
        alice, bob = await fleet.node("alice"), await fleet.node("bob")
        url = "http://127.0.0.1:9"
        async with alice.serve("http", "docs", url):
            await trio.sleep(SOON)
            assert await providers(bob, "http") == []
            assert await bob.find_peer(alice.peer)  # the node itself is there
            up.add(url)
            await trio.sleep(1.1 * FIRST_RETRY)
            assert await providers(bob, "http", "docs") == [alice.peer]
            up.clear()
            await trio.sleep(1.1 * ANNOUNCE_INTERVAL + 1)
            assert await providers(bob, "http", "docs") == []


async def test_a_node_whose_clock_went_back_is_heard_all_the_same(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        router = await fleet.router("r1")
        alice, bob = await fleet.node("alice"), await fleet.node("bob")
        alice.announcer._sequence = 2**62  # pyright: ignore[reportPrivateUsage]
        async with alice.serve("mcp", "one", app()):
            await trio.sleep(SOON)
        await trio.sleep(SOON)
        alice.announcer._sequence = 0  # pyright: ignore[reportPrivateUsage]
        async with alice.serve("mcp", "one", app()):
            await trio.sleep(SOON)
            assert await providers(bob, "mcp") == [alice.peer]
        assert requests(router, Operation.PROVIDE, Result.OUTDATED) >= 1


async def test_one_router_after_the_other_is_asked(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        routers = [await fleet.router(name) for name in ("r1", "r2")]
        alice, bob = await fleet.node("alice"), await fleet.node("bob")
        await trio.sleep(120)
        assert len(bob.routers) == 2
        first = next(router for router in routers if router.peer == bob.routers[0])
        first.host.admissions.revoke(bob.peer)  # it will not answer any more
        assert await bob.find_peer(alice.peer)
        nobody = await fleet.node("nobody", ready_timeout=0.0)
        for router in routers:
            nobody.membership.bans.tell(router.peer, 2e9, 2e9)
        await trio.sleep(1)
        with pytest.raises(NotConnectedError):
            await nobody.find_providers("mcp")


async def apart(fleet: Fleet, names: Sequence[str]) -> list[tuple[Router, Node]]:
    found = list[tuple[Router, Node]]()
    for name in names:
        router = await fleet.router(name)
        found.append((router, await lone(fleet, f"of-{name}", router)))
    await trio.sleep(60)
    return found


async def test_caller_transits_the_router_it_shares(autojump_clock: MockClock) -> None:
    """A provider that holds two routers is called through the one that the caller holds, and no other is asked."""
    async with open_fleet() as fleet:
        (shared, alice), (other, _) = await apart(fleet, ["shared", "other"])
        provider = await fleet.node("provider", routers=2)
        await trio.sleep(SOON)
        assert set(provider.announcer.announced) == set(provider.addresses)
        await call(alice, provider.peer)
        assert alice.host.connections.peers == (shared.peer, provider.peer)
        assert other.host.session(alice.peer) is None


async def test_caller_transits_a_router_its_catalog_missed(autojump_clock: MockClock) -> None:
    """The caller's router does not hold the provider, and the caller has never heard of the one that does: what the
    provider announced says where it is, and there the caller is admitted and gets its circuit.
    """
    async with open_fleet() as fleet:
        (near, caller), (far, provider) = await apart(fleet, ["near", "far"])
        caller.attachments.catalogue.update([fleet.plane.routers[near.peer]])
        assert caller.attachments.catalogue.state(far.peer) is None
        found = await caller.find_peer(provider.peer)
        assert found is not None
        assert {address.circuit[0].peer for address in found.addresses if address.circuit} == {far.peer}
        assert requests(near, Operation.FIND_PEER) == 1
        await call(caller, provider.peer)
        assert set(caller.host.connections.peers) == {near.peer, far.peer, provider.peer}
        assert caller.routers == (near.peer,)


async def test_idle_nodes_hold_only_their_routers(autojump_clock: MockClock) -> None:
    """Whatever nodes announce and ask, they have sessions with the routers that they hold, and nothing else."""
    async with open_fleet() as fleet:
        routers = [await fleet.router(name) for name in ("r1", "r2", "r3", "r4")]
        nodes = [await fleet.node(f"n{number}", routers=2) for number in range(6)]
        await trio.sleep(3600)
        for node in nodes:
            await node.find_providers("mcp")
            assert set(node.host.connections.peers) == set(node.routers)
            assert len(node.routers) == 2
        assert sum(len(router.members.present) for router in routers) == 2 * len(nodes)


async def test_a_peer_that_nobody_knows_is_unreachable(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        router = await fleet.router("r1")
        alice = await fleet.node("alice")
        with pytest.raises(DialError):
            await call(alice, Identity.generate().peer)
        assert requests(router, Operation.FIND_PEER, Result.NOT_FOUND) == 1
        assert router.directory.store.get(peer_key(alice.peer), alice.peer, trio.current_time()) is None
