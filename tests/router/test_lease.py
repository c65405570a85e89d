"""Keeping a lease, in virtual time against a control plane that is a value."""

import pytest
import trio
from trio.testing import MockClock

from agentmesh.control_plane.client import RouterLoad
from agentmesh.control_plane.errors import ControlPlaneUnavailableError, RequestRefusedError, UnauthorizedError
from agentmesh.identity import Identity
from agentmesh.membership import Enrollment, Membership
from agentmesh.router.lease import LAST_TIMEOUT, RETRY_WAIT, Lease, LeaseResult
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


def lease_of(membership: Membership, connections: int = 7, interval: float = INTERVAL) -> Lease:
    return Lease(membership, lambda: [address_of(membership)], lambda: RouterLoad(1, 0, connections, 100), interval)


async def keep(nursery: trio.Nursery, membership: Membership) -> Lease:
    lease = lease_of(membership)
    await nursery.start(lease.keep)
    return lease


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


@pytest.mark.parametrize(("ttl", "sent"), [(30.0, [None, 30.0]), (1.0, [None, 1.0]), (0.0, [None])])
async def test_router_close_withdraws_lease(autojump_clock: MockClock, ttl: float, sent: list[float | None]) -> None:
    """It sends just one last lease, of the time that it will be away; 0 sends none, and nothing is sent after it."""
    plane = Plane()
    membership = await member(plane)
    client = plane.client(membership.identity)
    async with open_background() as nursery:
        lease = await keep(nursery, membership)
        await lease.end(ttl)
        assert plane.lease_ttls == sent
        await trio.sleep(ttl / 2)
        assert len((await client.info()).routers) == 1
        await trio.sleep(10 * INTERVAL)
        assert plane.lease_ttls == sent
        assert len((await client.info()).routers) == (not ttl)


async def test_a_renewal_under_way_comes_before_the_last_lease(autojump_clock: MockClock) -> None:
    plane = Plane(patience=1.0)
    membership = await member(plane)
    async with open_background() as nursery:
        lease = await keep(nursery, membership)
        plane.is_away = True
        await trio.sleep(INTERVAL + 0.5)  # it asks, and waits for an answer
        plane.is_away = False
        await lease.end(30.0)
        assert plane.calls["renew_lease"] == 3
        assert plane.lease_ttls == [None, 30.0]


@pytest.mark.parametrize("patience", [0.0, 180.0])
async def test_a_router_stops_though_the_control_plane_is_away(autojump_clock: MockClock, patience: float) -> None:
    plane = Plane(patience=patience)
    membership = await member(plane)
    async with open_background() as nursery:
        lease = await keep(nursery, membership)
        plane.is_away = True
        began = trio.current_time()
        await lease.end(30.0)
        assert trio.current_time() - began == min(patience, LAST_TIMEOUT)


async def test_how_renewals_ended_is_counted(autojump_clock: MockClock) -> None:
    plane = Plane()
    membership = await member(plane)
    async with open_background() as nursery:
        lease = await keep(nursery, membership)
        assert lease.results == {"ok": 1, "unreachable": 0, "unauthorized": 0, "rejected": 0}
        plane.is_away = True
        await trio.sleep(INTERVAL + 1)
        plane.is_away = False
        plane.refuses.add(membership.identity.peer)
        await trio.sleep(RETRY_WAIT)
        assert lease.results == {"ok": 2, "unreachable": 1, "unauthorized": 1, "rejected": 0}
        assert LeaseResult.of(RequestRefusedError("no", 403)) is LeaseResult.REJECTED


async def test_a_load_that_changed_much_is_told_soon(autojump_clock: MockClock) -> None:
    plane = Plane()
    membership = await member(plane)
    load = [7]
    async with open_background() as nursery:
        lease = Lease(membership, lambda: [address_of(membership)], lambda: RouterLoad(1, 0, load[0], 100), INTERVAL)
        await nursery.start(lease.keep)
        for load[0] in (11, 3, 7, 12):  # noqa: B007 - what the lease is told
            await trio.sleep(1.1)
        assert plane.calls["renew_lease"] == 2  # at 12: five of a hundred
        (record,) = plane.routers.values()
        assert record.connections == 12
