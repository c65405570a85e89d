"""Keeping a lease, in virtual time against a control plane that is a value."""

import pytest
import trio
from trio.testing import MockClock

from agentmesh.control_plane.client import RouterLoad
from agentmesh.control_plane.errors import ControlPlaneUnavailableError, RequestRefusedError, UnauthorizedError
from agentmesh.identity import Identity
from agentmesh.membership import Enrollment, Membership
from agentmesh.router.lease import RETRY_WAIT, keep_lease
from agentmesh.runtime.nursery import open_background
from agentmesh.types import Address
from tests.membership.plane import NODE_TOKEN, ROUTER_TOKEN, Plane, wall_clock

INTERVAL = 300.0


async def member(plane: Plane, token: str = ROUTER_TOKEN) -> Membership:
    identity = Identity.generate()
    membership = Membership(
        identity, plane.client(identity), Enrollment(control_plane="http://cp", token=token), None, wall_clock
    )
    await membership.begin()
    return membership


def address_of(membership: Membership) -> Address:
    return Address.parse("/ip4/10.0.0.1/tcp/5001").with_peer(membership.identity.peer)


async def keep(nursery: trio.Nursery, membership: Membership, connections: int = 7) -> None:
    await nursery.start(
        keep_lease, membership, lambda: [address_of(membership)], lambda: RouterLoad(1, 0, connections, 100), INTERVAL
    )


async def test_the_router_is_listed_once_it_has_started_and_renews_in_time(autojump_clock: MockClock) -> None:
    plane = Plane()
    membership = await member(plane)
    async with open_background() as nursery:
        await keep(nursery, membership)
        (record,) = plane.routers.values()
        assert (record.addresses, record.connections, record.connection_limit) == ((address_of(membership),), 7, 100)
        await trio.sleep(10 * INTERVAL + 1)
        assert plane.calls["renew_lease"] == 11


async def test_a_renewal_that_failed_is_tried_again_soon(autojump_clock: MockClock) -> None:
    plane = Plane()
    membership = await member(plane)
    async with open_background() as nursery:
        await keep(nursery, membership)
        plane.is_away = True
        await trio.sleep(INTERVAL + 10 * RETRY_WAIT + 1)
        assert plane.calls["renew_lease"] == 12
        plane.is_away = False
        plane.routers.clear()
        await trio.sleep(RETRY_WAIT)
        assert len(plane.routers) == 1
        await trio.sleep(INTERVAL)
        assert plane.calls["renew_lease"] == 14


@pytest.mark.parametrize("at_start", [True, False])
async def test_a_credential_that_is_not_honoured_is_renewed_first(autojump_clock: MockClock, at_start: bool) -> None:
    plane = Plane()
    membership = await member(plane)
    async with open_background() as nursery:
        if at_start:
            plane.refuses.add(membership.identity.peer)
            await keep(nursery, membership)
        else:
            await keep(nursery, membership)
            plane.refuses.add(membership.identity.peer)
            plane.routers.clear()
            await trio.sleep(INTERVAL + 1)
        assert plane.calls["enroll"] == 2
        assert len(plane.routers) == 1


async def test_a_first_lease_that_is_refused_is_an_error(autojump_clock: MockClock) -> None:
    plane = Plane()
    for membership, fault, error in (
        (await member(plane, NODE_TOKEN), "", RequestRefusedError),
        (await member(plane), "away", ControlPlaneUnavailableError),
        (await member(plane), "forgotten", UnauthorizedError),
    ):
        if fault == "forgotten":
            plane.tokens.clear()
            plane.refuses.add(membership.identity.peer)
        plane.is_away = fault == "away"
        with pytest.raises(error):
            async with open_background() as nursery:
                await keep(nursery, membership)
    assert plane.routers == {}
