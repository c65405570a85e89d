"""The store on both kinds of database: what is promised of each change, also when many come at once."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial

import attrs
import pytest
import trio

from agentmesh.control_plane import queries
from agentmesh.control_plane.database import RacedError, StoreError
from agentmesh.control_plane.keyring import StoredKey
from agentmesh.control_plane.queries import TooManyPendingError
from agentmesh.control_plane.records import BootstrapToken, EnrollmentRequest, Issue, Lease, Status
from agentmesh.control_plane.store import MAX_RACES, Store, open_store, until_settled
from agentmesh.types import Address, PeerId

NODE, ROUTER = "mesh:role:node", "mesh:role:router"
NOW = 1_800_000_000.25


def peer(number: int) -> PeerId:
    return PeerId.from_ed25519(number.to_bytes(32, "big"))


def token(token_id: str = "t", max_usages: int = 1, role: str = NODE) -> BootstrapToken:
    return BootstrapToken(token_id, role, max_usages, created_at=NOW, expires_at=NOW + 60, description="for tests")


def request(number: int = 1, token_id: str = "t", role: str = NODE) -> EnrollmentRequest:
    return EnrollmentRequest(peer(number), token_id, role, {"region": "eu"})


def issue(text: bytes = b"credential", name: str = "r") -> Issue:
    return Issue(text, NOW + 3600, name)


async def count_granted(calls: Sequence[Callable[[], Awaitable[None]]]) -> int:
    """Run all at once; how many were not raced."""
    granted = 0

    async def run(call: Callable[[], Awaitable[None]]) -> None:
        nonlocal granted
        try:
            await call()
        except RacedError:
            return
        granted += 1

    async with trio.open_nursery() as nursery:
        for call in calls:
            nursery.start_soon(run, call)
    return granted


async def test_everything_survives_reopening(dsn: str) -> None:
    async with open_store(dsn) as store:
        await store.add_token(token(max_usages=2))
        await store.grant(request(), None, issue(), NOW)
        lease = Lease(peer(1), (Address.parse(f"/ip4/10.0.0.1/tcp/1/p2p/{peer(1)}"),), NOW, NOW + 9, 1, 2, 3, 4)
        await store.renew_lease(lease)
        await store.mirror.first_key(b"first", NOW)
    async with open_store(dsn) as store:
        known = await store.look_up(peer(1), "t")
        found, enrollment, node = known.token, known.enrollment, known.node
        assert found == attrs.evolve(token(max_usages=2), usages=1)
        assert enrollment is not None
        assert (enrollment.status, enrollment.labels, enrollment.resolved_at) == (
            Status.APPROVED,
            {"region": "eu"},
            NOW,
        )
        assert node is not None
        assert (node.issue, node.labels, node.enrolled_at) == (issue(), {"region": "eu"}, NOW)
        assert await store.live_leases(NOW) == (attrs.evolve(lease, labels={"region": "eu"}),)
        await store.mirror.first_key(b"second", NOW)
        assert [key.private_key for key in store.mirror.latest.keys] == [b"first"]


async def test_a_token_admits_no_more_than_its_usages_at_once(dsn: str) -> None:
    async with open_store(dsn) as store:
        await store.add_token(token(max_usages=3))
        calls = [partial(store.grant, request(n), None, issue(), NOW) for n in range(12)]
        assert await count_granted(calls) == 3
        (found,) = await store.tokens()
        assert found.usages == 3
        assert len(await store.enrollments()) == 3


async def test_a_refused_grant_leaves_nothing(dsn: str) -> None:
    async with open_store(dsn) as store:
        await store.add_token(token(max_usages=5))
        await store.hold(request(1), None, NOW)
        with pytest.raises(RacedError):
            await store.grant(request(1), None, issue(), NOW)  # there is an enrollment by now
        known = await store.look_up(peer(1), "t")
        found, enrollment, node = known.token, known.enrollment, known.node
        assert found is not None
        assert found.usages == 0
        assert enrollment is not None
        assert enrollment.status is Status.PENDING
        assert node is None


@pytest.mark.parametrize("fault", ["revoked", "expired", "unknown"])
async def test_a_token_that_is_no_good_grants_nothing(dsn: str, fault: str) -> None:
    async with open_store(dsn) as store:
        await store.add_token(token())
        if fault == "revoked":
            assert await store.revoke_token("t", NOW)
        late = NOW + (60 if fault == "expired" else 0)
        with pytest.raises(RacedError, match="admits nobody"):
            await store.grant(request(token_id="u" if fault == "unknown" else "t"), None, issue(), late)
        assert await store.enrollments() == []


async def test_revoking_twice_keeps_the_first_instant(dsn: str) -> None:
    async with open_store(dsn) as store:
        await store.add_token(token())
        assert await store.revoke_token("t", NOW)
        assert await store.revoke_token("t", NOW + 5)
        assert not await store.revoke_token("unknown", NOW)
        (found,) = await store.tokens()
        assert found.revoked_at == NOW


async def test_an_enrollment_is_resolved_once(dsn: str) -> None:
    async with open_store(dsn) as store:
        await store.add_token(token(max_usages=100))
        await store.hold(request(), None, NOW)
        (seen,) = await store.enrollments(Status.PENDING)
        approvals = [partial(store.grant, request(), seen, issue(), NOW) for _ in range(6)]
        rejections = [partial(store.reject, seen, NOW) for _ in range(6)]
        assert await count_granted([*approvals, *rejections]) == 1
        (resolved,) = await store.enrollments()
        assert resolved.status in (Status.APPROVED, Status.REJECTED)
        (found,) = await store.tokens()
        assert found.usages == (resolved.status is Status.APPROVED)


async def test_pending_enrollments_of_a_token_are_bounded(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "MAX_PENDING_PER_TOKEN", 3)
    async with open_store(dsn) as store:
        for number in range(3):
            await store.hold(request(number), None, NOW)
        with pytest.raises(TooManyPendingError):
            await store.hold(request(3), None, NOW)
        await store.hold(request(4, token_id="other"), None, NOW)
        (seen,) = (await store.enrollment(1) or (None,))[:1]
        await store.hold(request(0), seen, NOW)  # who waits already may ask again


async def test_the_bound_on_pending_enrollments_is_exact(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "MAX_PENDING_PER_TOKEN", 3)
    held = 0

    async def hold(store: Store, number: int) -> None:
        nonlocal held
        with suppress(TooManyPendingError):
            await store.hold(request(number), None, NOW)
            held += 1

    async with open_store(dsn) as one, open_store(dsn) as other:
        await one.add_token(token(max_usages=100))
        async with trio.open_nursery() as nursery:
            for number in range(12):
                nursery.start_soon(hold, (one, other)[number % 2], number)
        assert held == len(await one.enrollments(Status.PENDING)) == 3


async def test_only_the_last_credential_is_redeemed(dsn: str) -> None:
    async with open_store(dsn) as store:
        await store.add_token(token())
        await store.grant(request(), None, issue(b"first"), NOW)
        calls = [partial(store.replace_issue, peer(1), b"first", issue(b"next %d" % n)) for n in range(8)]
        assert await count_granted(calls) == 1
        with pytest.raises(RacedError):
            await store.replace_issue(peer(2), b"first", issue())


async def test_leases_run_out(dsn: str) -> None:
    async with open_store(dsn) as store:
        await store.add_token(token(max_usages=2, role=ROUTER))
        for number in (1, 2):
            await store.grant(request(number, role=ROUTER), None, issue(), NOW)
            await store.renew_lease(Lease(peer(number), (), NOW, NOW + 10 * number))
        assert [lease.peer for lease in await store.live_leases(NOW + 10)] == [peer(2)]
        await store.renew_lease(Lease(peer(2), (), NOW, NOW))
        assert await store.live_leases(NOW) == (await store.live_leases(NOW + 9))
        assert [lease.peer for lease in await store.live_leases(NOW)] == [peer(1)]


async def test_the_census_counts_by_state(dsn: str) -> None:
    async with open_store(dsn) as store:
        for name in ("active", "revoked", "exhausted"):
            await store.add_token(token(name))
        await store.add_token(attrs.evolve(token("expired"), expires_at=NOW))
        await store.revoke_token("revoked", NOW)
        await store.grant(request(1, "exhausted"), None, issue(), NOW)
        await store.hold(request(2, "active"), None, NOW)
        await store.mirror.first_key(b"key", NOW)
        census = await store.census(NOW)
        assert census.tokens == {"active": 1, "revoked": 1, "exhausted": 1, "expired": 1}
        assert census.enrollments == {Status.APPROVED: 1, Status.PENDING: 1}
        assert census.nodes == {(NODE, "admitted"): 1}
        assert census.signing_keys == 1
        assert (await store.census(NOW + 3600)).nodes == {(NODE, "expired"): 1}


async def test_two_control_planes_on_one_database_agree(dsn: str) -> None:
    async with open_store(dsn) as one, open_store(dsn) as other:
        await one.mirror.first_key(b"of one", NOW)
        await other.mirror.first_key(b"of other", NOW)
        assert one.mirror.latest.keys == other.mirror.latest.keys == (StoredKey(1, b"of one", NOW),)
        await one.add_token(token())
        calls = [partial(s.grant, request(n), None, issue(), NOW) for n in range(6) for s in (one, other)]
        assert await count_granted(calls) == 1


async def test_giving_up_a_race_that_is_never_won() -> None:
    attempts = 0

    async def attempt() -> None:
        nonlocal attempts
        attempts += 1
        raise RacedError("again")

    with pytest.raises(StoreError):
        await until_settled(attempt)
    assert attempts == MAX_RACES


async def test_cancelling_a_call_leaves_the_store_whole(dsn: str) -> None:
    async with open_store(dsn) as store:
        await store.add_token(token(max_usages=100))
        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(store.grant, request(number), None, issue(), NOW)
            await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
        (found,) = await store.tokens()
        assert found.usages == len(await store.enrollments())
        await store.grant(request(99), None, issue(), NOW)
