"""The directory of real routers: what one is told, all can be asked; what a member may say of itself, and of others."""

from collections.abc import Sequence

import pytest
import trio
from trio.testing import MockClock

from agentmesh.errors import DialError, StreamResetError
from agentmesh.identity import Identity
from agentmesh.node import Node
from agentmesh.protocols.directory import (
    Announcement,
    Answer,
    FindPeer,
    FindProviders,
    Operation,
    Placement,
    Provide,
    Result,
    ask,
    service_key,
)
from agentmesh.protocols.directory.events import Request
from agentmesh.router import Router
from agentmesh.router.router import load_of
from agentmesh.types import Address
from tests.node.fleet import Fleet, open_fleet

KEY = service_key("http", "app")


def count(router: Router, operation: Operation, result: Result) -> int:
    return router.directory.statistics().requests[operation, result]


def records(router: Router) -> int:
    """Of KEY: nodes announce themselves besides."""
    return len(router.directory.store.find(KEY, 64, trio.current_time()))


async def asked(node: Node, request: Request) -> Answer:
    return await ask(node.host.open_stream, node.routers[0], request)


async def apart(fleet: Fleet, names: Sequence[str]) -> list[tuple[Router, Node]]:
    """Routers that have joined each other, and a member of each."""
    found = list[tuple[Router, Node]]()
    for name in names:
        router = await fleet.router(name)
        others, fleet.plane.routers = fleet.plane.routers, {router.peer: fleet.plane.routers[router.peer]}
        found.append((router, await fleet.node(f"of-{name}", routers=1)))
        fleet.plane.routers = others
    await trio.sleep(60)
    assert all(len(router.federation.peers) == len(names) - 1 for router, _ in found)
    return found


def told(node: Node, *addresses: Address, sequence: int = 2**60, ttl: float = 900.0) -> Announcement:
    return Announcement(KEY, addresses or node.addresses, sequence, ttl)


async def test_what_one_router_is_told_every_other_finds(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        mesh = await apart(fleet, [f"r{n}" for n in range(5)])
        (first, alice), *others = mesh
        answer = await asked(alice, Provide(told(alice)))
        assert answer.placed >= fleet.plane.replication
        for _, node in others:
            (found,) = (await asked(node, FindProviders(KEY))).found
            assert (found.peer, found.addresses) == (alice.peer, alice.addresses)
        held = [router for router, _ in mesh if records(router)]
        assert len(held) in (
            fleet.plane.replication,
            fleet.plane.replication + 1,
        )
        assert load_of(first.host, first.directory).directory_size == len(first.directory.store) > 0
        assert first.directory.statistics().placements[Placement.PLACED] >= answer.placed - 1


async def test_a_member_is_found_through_the_router_that_holds_it(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        (router, alice), (_, bob) = await apart(fleet, ["r1", "r2"])
        own = [address for address in alice.addresses if address.circuit is not None]
        (found,) = (await asked(alice, FindPeer(alice.peer))).found
        assert (list(found.addresses), found.sequence) == (own, 0)
        assert own[0].circuit is not None
        assert own[0].circuit[0].peer == router.peer
        assert (await asked(bob, FindPeer(Identity.generate().peer))).found == ()


async def test_nobody_is_served_before_the_handshake(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        router = await fleet.router("r1")
        node = await fleet.node("alice")
        router.host.admissions.revoke(node.peer)
        with pytest.raises(StreamResetError):
            await asked(node, FindProviders(KEY))


async def test_a_member_announces_itself_only_and_at_its_own_addresses(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        (router, alice), (_, bob) = await apart(fleet, ["r1", "r2"])
        for forged in (
            Provide(told(bob)),  # at addresses of another
            Provide(told(bob), provider=bob.peer),  # for another, as routers do
            Provide(told(alice), provider=alice.peer),
        ):
            with pytest.raises((StreamResetError, DialError)):
                await asked(alice, forged)
        assert records(router) == 0
        assert count(router, Operation.PLACE, Result.FORGED) == 2


async def test_who_is_banned_is_found_no_more(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        mesh = await apart(fleet, ["r1", "r2"])
        (_, alice), (_, bob) = mesh
        await asked(alice, Provide(told(alice)))
        fleet.plane.banned.add(alice.peer)
        await trio.sleep(60)  # routers look at the list every 30 s
        assert [records(router) for router, _ in mesh] == [0, 0]
        assert (await asked(bob, FindProviders(KEY))).found == ()


async def test_records_are_where_they_belong_when_a_router_leaves(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        mesh = await apart(fleet, [f"r{n}" for n in range(4)])
        await asked(mesh[3][1], Provide(told(mesh[3][1])))
        fleet.plane.routers = {router.peer: fleet.plane.routers[router.peer] for router, _ in mesh[1:]}
        await fleet.stop("r0")
        await trio.sleep(60)
        for _, node in mesh[1:]:
            assert [found.peer for found in (await asked(node, FindProviders(KEY))).found] == [mesh[3][1].peer]


async def test_a_record_says_nothing_when_its_time_is_over(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        ((router, alice),) = await apart(fleet, ["r1"])
        await asked(alice, Provide(told(alice, ttl=100.0)))
        await trio.sleep(101)
        assert (await asked(alice, FindProviders(KEY))).found == ()
        assert records(router) == 0
