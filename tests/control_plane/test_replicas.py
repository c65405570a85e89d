"""Two control planes on one database are one: what one of them was told, the other knows with its next answer."""

import sqlite3
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from sqlalchemy import Connection, Engine, event

from agentmesh.control_plane.config import Config
from agentmesh.control_plane.database import StoreError
from agentmesh.control_plane.info import InfoPage
from agentmesh.credentials import verify
from agentmesh.identity import Identity
from agentmesh.wire.messages.mesh.v1 import ControlPlaneInfoResponse, EnrollmentStatus
from tests.control_plane.plane import Harness, bearer, open_harness

AT_ONCE = 12


@attrs.frozen
class Pair:
    """Two replicas, with one clock."""

    one: Harness
    other: Harness


@asynccontextmanager
async def open_pair(folder: Path, dsn: str, **settings: Any) -> AsyncGenerator[Pair]:
    async with (
        open_harness(folder, db_dsn=dsn, **settings) as one,
        open_harness(folder, one.clock, db_dsn=dsn, **settings) as other,
    ):
        yield Pair(one, other)


async def info(mesh: Harness) -> ControlPlaneInfoResponse:
    response = await mesh.http.get("/info")
    assert response.status_code == 200
    return ControlPlaneInfoResponse.parse(response.content)


async def enroll_at_once(token: str, replicas: list[Harness]) -> Counter[EnrollmentStatus]:
    """AT_ONCE peers show one token at the same time; how they were answered."""
    answers = Counter[EnrollmentStatus]()

    async def enroll(mesh: Harness) -> None:
        answers[(await mesh.enroll(mesh.enroll_request(Identity.generate(), token))).status] += 1

    async with trio.open_nursery() as nursery:
        for number in range(AT_ONCE):
            nursery.start_soon(enroll, replicas[number % len(replicas)])
    return answers


@pytest.mark.parametrize("cap", [1, 5])
@pytest.mark.parametrize("replicas", [1, 2])
async def test_a_usage_cap_is_exact_under_concurrency(tmp_path: Path, dsn: str, replicas: int, cap: int) -> None:
    async with open_pair(tmp_path, dsn) as pair:
        token = await pair.one.plane.create_token("node", max_usages=cap)
        answers = await enroll_at_once(token, [pair.one, pair.other][:replicas])
        assert answers == {EnrollmentStatus.APPROVED: cap, EnrollmentStatus.REJECTED: AT_ONCE - cap}
        (kept,) = await pair.other.plane.store.tokens()
        assert kept.usages == cap == len(await pair.other.plane.store.enrollments())


async def test_approvals_at_two_replicas_do_not_spend_a_token_twice(tmp_path: Path, dsn: str) -> None:
    async with open_pair(tmp_path, dsn, auto_approve_enrollment=False) as pair:
        token = await pair.one.plane.create_token("node", max_usages=2)
        answers = await enroll_at_once(token, [pair.one, pair.other])
        assert answers == {EnrollmentStatus.PENDING: AT_ONCE}
        codes = Counter[int]()

        async def approve(mesh: Harness, number: int) -> None:
            codes[(await mesh.admin("POST", f"/enrollments/{number}/approve")).status_code] += 1

        waiting = [enrollment.id for enrollment in await pair.one.plane.store.enrollments()]
        async with trio.open_nursery() as nursery:
            for number in waiting:
                for mesh in (pair.one, pair.other):
                    nursery.start_soon(approve, mesh, number)
        assert (codes[204], codes[204] + codes[409] + codes[410]) == (2, 2 * AT_ONCE)
        (kept,) = await pair.one.plane.store.tokens()
        assert kept.usages == 2


async def test_a_token_is_known_and_revoked_everywhere(tmp_path: Path, dsn: str) -> None:
    async with open_pair(tmp_path, dsn) as pair:
        token = await pair.one.plane.create_token("node", max_usages=9)
        assert await enroll_at_once(token, [pair.other]) == {EnrollmentStatus.APPROVED: 9, EnrollmentStatus.REJECTED: 3}
        fresh = await pair.one.plane.create_token("node", max_usages=9)
        listed = (await pair.other.admin("GET", "/bootstrap-tokens")).json()["bootstrap_tokens"]
        (token_id,) = [listed_token["id"] for listed_token in listed if listed_token["usages"] == 0]
        assert (await pair.other.admin("DELETE", f"/bootstrap-tokens/{token_id}")).status_code == 204
        assert await enroll_at_once(fresh, [pair.one]) == {EnrollmentStatus.REJECTED: AT_ONCE}


async def test_leases_are_seen_and_withdrawn_everywhere(tmp_path: Path, dsn: str) -> None:
    async with open_pair(tmp_path, dsn) as pair:
        router = Identity.generate()
        token = await pair.one.plane.create_token("router")
        credential = (await pair.one.enroll(pair.one.enroll_request(router, token))).biscuit_token
        for taking, giving_up in ((pair.one, pair.other), (pair.other, pair.one)):
            loads = {"connections": 7, "connection_limit": 70}
            response = await taking.post("/routers/lease", taking.lease_request(router, credential, **loads))
            assert response.status_code == 200
            (listed,) = (await info(giving_up)).routers
            assert (listed.peer_id, listed.connections, listed.connection_limit) == (str(router.peer), 7, 70)
            withdrawal = giving_up.lease_request(router, credential, ttl=timedelta(0))
            assert (await giving_up.post("/routers/lease", withdrawal)).status_code == 200
            assert (await info(taking)).routers == []
        async with trio.open_nursery() as nursery:  # the same router at both, at once
            for mesh in (pair.one, pair.other) * 4:
                nursery.start_soon(mesh.post, "/routers/lease", mesh.lease_request(router, credential))
        assert len((await info(pair.one)).routers) == 1


async def test_a_ban_holds_everywhere_until_it_is_lifted_anywhere(tmp_path: Path, dsn: str) -> None:
    async with open_pair(tmp_path, dsn) as pair:
        one, other, router = pair.one, pair.other, Identity.generate()
        token = await one.plane.create_token("router", max_usages=9)
        credential = (await one.enroll(one.enroll_request(router, token))).biscuit_token
        assert (await one.post("/routers/lease", one.lease_request(router, credential))).status_code == 200
        assert (await info(other)).banned_peer_ids == []
        assert (await one.admin("POST", "/revoke", json={"peer_id": router.peer.dns_label})).status_code == 200
        seen = await info(other)
        assert (seen.banned_peer_ids, seen.routers) == ([str(router.peer)], [])
        assert (await other.enroll(other.enroll_request(router, token))).status is EnrollmentStatus.REJECTED
        assert (await other.post("/refresh", other.refresh_request(router), **bearer(credential))).status_code == 403
        assert (await other.post("/routers/lease", other.lease_request(router, credential))).status_code == 403
        assert (await other.status(router)).status_code == 401
        assert (await other.admin("POST", f"/nodes/{router.peer}/unban")).status_code == 204
        assert (await info(one)).banned_peer_ids == []
        assert (await one.post("/routers/lease", one.lease_request(router, credential))).status_code == 200
        assert len((await info(other)).routers) == 1


async def test_a_credential_is_redeemed_at_one_replica_only(tmp_path: Path, dsn: str) -> None:
    async with open_pair(tmp_path, dsn) as pair:
        member = Identity.generate()
        token = await pair.one.plane.create_token("node")
        credential = (await pair.one.enroll(pair.one.enroll_request(member, token))).biscuit_token
        codes = Counter[int]()

        async def refresh(mesh: Harness, number: int) -> None:
            mesh.clock.now += 0.001 * number  # each is a request of its own, and no resend
            message = mesh.refresh_request(member)
            codes[(await mesh.post("/refresh", message, **bearer(credential))).status_code] += 1

        async with trio.open_nursery() as nursery:
            for number in range(4):
                for mesh in (pair.one, pair.other):
                    nursery.start_soon(refresh, mesh, number + 1)
        assert codes == {200: 1, 401: 7}


async def test_multi_master_control_plane(tmp_path: Path, dsn: str) -> None:
    """A member that one replica enrolled is a member to all that trust the other's keys, and the other way round."""
    async with open_pair(tmp_path, dsn) as pair:
        for enrolling, trusting in ((pair.one, pair.other), (pair.other, pair.one)):
            member, token = Identity.generate(), await enrolling.plane.create_token("node")
            credential = (await enrolling.enroll(enrolling.enroll_request(member, token))).biscuit_token
            async with trusting.client(member) as client:
                trusted = await client.keys()
            assert verify(credential, peer=member.peer, trusted=trusted, now=pair.one.clock.now).peer == member.peer


async def test_info_is_encoded_once_per_change(tmp_path: Path, dsn: str) -> None:
    async with open_pair(tmp_path, dsn) as pair:
        page = InfoPage(pair.one.plane.store.mirror, pair.one.clock, Config())
        router = Identity.generate()
        token = await pair.other.plane.create_token("router")
        credential = (await pair.other.enroll(pair.other.enroll_request(router, token))).biscuit_token
        first = await page.encoded()
        assert await page.encoded() is first
        await pair.other.post("/routers/lease", pair.other.lease_request(router, credential))
        second = await page.encoded()
        assert second != first
        assert await page.encoded() is second
        pair.one.clock.now += 900  # the lease runs out, and nothing changes in the database
        assert await page.encoded() == first
        pair.one.clock.now -= 1
        assert await page.encoded() == second


async def test_a_look_that_fails_fails_for_all_who_wait_for_it_and_for_nobody_after(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as mesh:
        mirror, failed = mesh.plane.store.mirror, 0

        async def look() -> None:
            nonlocal failed
            with pytest.raises(StoreError):
                await mirror.look()
            failed += 1

        with closing(sqlite3.connect(tmp_path / "control-plane.db")) as breaker:
            breaker.execute("ALTER TABLE generations RENAME TO moved")
            async with trio.open_nursery() as nursery:
                for _ in range(20):
                    nursery.start_soon(look)
            breaker.execute("ALTER TABLE moved RENAME TO generations")
        assert failed == 20
        assert len((await mirror.look()).keys) == 1


async def test_many_readers_share_a_look_at_the_database(tmp_path: Path, dsn: str) -> None:
    async with open_pair(tmp_path, dsn) as pair:
        looks = 0
        mirror = pair.one.plane.store.mirror

        def counted(connection: Connection) -> None:
            nonlocal looks
            looks += 1

        event.listen(Engine, "begin", counted)
        try:
            async with trio.open_nursery() as nursery:
                for _ in range(100):
                    nursery.start_soon(mirror.look)
        finally:
            event.remove(Engine, "begin", counted)
        assert looks <= 2  # the first comer's, and one that began after all the others had come


async def test_an_enrollment_runs_few_statements(tmp_path: Path, dsn: str) -> None:
    """What one costs is mostly these; on PostgreSQL each is a round trip."""
    async with open_pair(tmp_path, dsn) as pair:
        token, statements = await pair.one.plane.create_token("node", max_usages=2), list[str]()
        await pair.one.enroll(pair.one.enroll_request(Identity.generate(), token))  # the policy is known by now

        def noted(*arguments: object) -> None:
            statements.append(str(arguments[2]).split()[0])

        event.listen(Engine, "before_cursor_execute", noted)
        try:
            await pair.one.enroll(pair.one.enroll_request(Identity.generate(), token))
        finally:
            event.remove(Engine, "before_cursor_execute", noted)
        counts = Counter(statements)
        assert (counts["SELECT"], counts["INSERT"] + counts["UPDATE"]) == (6, 4)
