"""What a router relays, under libp2p's names."""

from collections.abc import Mapping

import trio
from trio.testing import MockClock

from agentmesh.router import Router
from agentmesh.router.relay_metrics import relay_families
from tests.node.fleet import call, open_fleet


def shown(router: Router) -> Mapping[tuple[str, ...], float]:
    return {
        (family.name, str(label)): value
        for family in relay_families(router.relay)
        if isinstance(family.value, Mapping)
        for label, value in family.value.items()
    }


async def test_reservations_and_circuits_open_and_close(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        router = await fleet.router("router")
        alice, bob = await fleet.node("alice", routers=1), await fleet.node("bob", routers=1)
        await trio.sleep(1)
        await call(bob, alice.peer)
        found = shown(router)
        assert (found["reservations", "opened"], found["reservations", "closed"]) == (2, 0)
        assert (found["connections", "opened"], found["connections", "closed"]) == (1, 0)
        assert found["connection_request_response_status", "ok"] == 1
        assert found["reservation_request_response_status", "ok"] == 2
        await trio.sleep(7200)
        found = shown(router)
        assert found["reservations", "renewed"] > 0
        await fleet.stop("alice")
        await trio.sleep(10)
        found = shown(router)
        assert (found["reservations", "opened"], found["reservations", "closed"]) == (2, 1)
        assert found["connections", "opened"] == found["connections", "closed"] == 1
