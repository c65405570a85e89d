"""New keys for old: by one replica of several, seen by all at once, with time for members to follow."""

from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from agentmesh.control_plane.authority import Rotation
from agentmesh.control_plane.config import Config
from agentmesh.control_plane.database import StoreError
from agentmesh.control_plane.metrics import Metrics
from agentmesh.control_plane.tokens import token_id
from agentmesh.control_plane.upkeep import RETENTION_CHECK_INTERVAL, ROTATION_CHECK_INTERVAL, Upkeep
from agentmesh.credentials import TrustedKeys
from agentmesh.identity import Identity
from agentmesh.wire.messages.mesh.v1 import KeysResponse
from tests.control_plane.plane import Clock, Harness, bearer, open_harness

DAY, HOUR = 86400.0, 3600.0


async def listed(mesh: Harness) -> KeysResponse:
    response = await mesh.http.get("/keys")
    assert response.status_code == 200
    return KeysResponse.parse(response.content)


async def refreshed(mesh: Harness, identity: Identity, credential: bytes) -> int:
    response = await mesh.post("/refresh", mesh.refresh_request(identity), **bearer(credential))
    return response.status_code


async def test_key_rotation_integration(tmp_path: Path) -> None:
    """The old key vouches for the new one, and what it signed is good for as long as members need to follow."""
    async with open_harness(tmp_path) as mesh:
        identity, late = Identity.generate(), Identity.generate()
        token = await mesh.plane.create_token("node", max_usages=3, ttl=10 * DAY)
        credential = (await mesh.enroll(mesh.enroll_request(identity, token))).biscuit_token
        lagging = (await mesh.enroll(mesh.enroll_request(late, token))).biscuit_token
        (old,) = (await listed(mesh)).public_keys
        mesh.clock.now += DAY - 1
        await mesh.plane.upkeep.rotate_if_due()
        assert (await listed(mesh)).public_keys == [old]
        mesh.clock.now += 1
        await mesh.plane.upkeep.rotate_if_due()
        keys = await listed(mesh)
        assert keys.public_keys == [old, mesh.plane.authority.public_key]
        assert len(set(keys.signatures)) == 2
        async with mesh.client() as client:
            assert await client.keys(TrustedKeys(frozenset({old}))) == TrustedKeys(frozenset(keys.public_keys))
        assert mesh.plane.authority.trusted == TrustedKeys(frozenset(keys.public_keys))
        mesh.clock.now -= 60  # the credential is of a day ago
        assert await refreshed(mesh, identity, credential) == 200
        mesh.clock.now += 60 + HOUR
        assert (await listed(mesh)).public_keys == keys.public_keys[1:]
        assert await refreshed(mesh, late, lagging) == 401
        renewed = (await mesh.enroll(mesh.enroll_request(identity, token))).biscuit_token
        assert mesh.plane.authority.verify(renewed, identity.peer).peer == identity.peer


async def test_a_key_whose_time_is_over_is_forgotten_at_the_next_rotation(tmp_path: Path) -> None:
    async with open_harness(tmp_path, key_rotation_interval=HOUR, key_grace_period=2.5 * HOUR) as mesh:
        for _ in range(8):
            mesh.clock.now += HOUR
            await mesh.plane.upkeep.rotate_if_due()
        ring = (await mesh.plane.store.mirror.look()).keys
        assert [key.id for key in ring] == [6, 7, 8, 9]
        assert [key.expires_at is None for key in ring] == [False, False, False, True]


async def test_no_rotation_when_it_is_off(tmp_path: Path) -> None:
    async with open_harness(tmp_path, key_rotation_interval=0) as mesh:
        (old,) = (await listed(mesh)).public_keys
        mesh.clock.now += 1000 * DAY
        await mesh.plane.upkeep.rotate_if_due()
        assert (await listed(mesh)).public_keys == [old]


async def test_of_many_replicas_one_rotates_and_all_see_it(tmp_path: Path, dsn: str) -> None:
    clock = Clock()
    async with AsyncExitStack() as stack:
        replicas = [await stack.enter_async_context(open_harness(tmp_path, clock, db_dsn=dsn)) for _ in range(3)]
        identity = Identity.generate()
        token = await replicas[0].plane.create_token("node", max_usages=9, ttl=10 * DAY)
        for number in range(2, 5):
            clock.now += DAY
            async with trio.open_nursery() as nursery:
                for mesh in replicas * 3:
                    nursery.start_soon(mesh.plane.upkeep.rotate_if_due)
            assert [(await mesh.plane.store.mirror.look()).keys[-1].id for mesh in replicas] == [number] * 3
        await replicas[0].plane.authority.rotate(grace=HOUR)
        (keys, *others) = [(await listed(mesh)).public_keys for mesh in replicas]
        assert others == [keys, keys]
        await replicas[1].plane.authority.rotate(grace=HOUR)
        credential = (await replicas[1].enroll(replicas[1].enroll_request(identity, token))).biscuit_token
        assert await refreshed(replicas[2], identity, credential) == 200


async def test_a_credential_is_minted_with_the_newest_key_whichever_replica_made_it(tmp_path: Path, dsn: str) -> None:
    async with open_harness(tmp_path, db_dsn=dsn) as one, open_harness(tmp_path, one.clock, db_dsn=dsn) as other:
        identity, token = Identity.generate(), await one.plane.create_token("node")
        await one.plane.authority.rotate(grace=HOUR)
        answer = await other.enroll(other.enroll_request(identity, token))
        assert answer.control_plane_public_key == one.plane.authority.public_key
        one.clock.now += HOUR
        assert one.plane.authority.verify(answer.biscuit_token, identity.peer).peer == identity.peer


async def test_whoever_listens_is_told_of_a_rotation_by_the_replica_that_did_it(tmp_path: Path) -> None:
    told = list[Rotation]()

    async def rotated(rotation: Rotation) -> None:
        told.append(rotation)

    async with open_harness(tmp_path) as mesh:
        plane, old = mesh.plane, mesh.plane.authority.public_key
        metrics, config = Metrics(plane.store, mesh.clock), Config()
        upkeep = Upkeep(plane.store, plane.authority, metrics, config, mesh.clock, rotated)
        mesh.clock.now += DAY
        await plane.upkeep.rotate_if_due()
        mesh.clock.now += DAY
        await upkeep.rotate_if_due()
        await upkeep.rotate_if_due()
        (rotation,) = told
        assert rotation.current.public == plane.authority.public_key
        assert rotation.retired.public not in (old, rotation.current.public)
        assert rotation.at == mesh.clock.now


class FailingUpkeep(Upkeep):
    """One whose database does not answer at first."""

    rotations = forgettings = 0

    async def rotate_if_due(self) -> None:
        self.rotations += 1
        if self.rotations < 3:
            raise StoreError("the database does not answer")

    async def forget(self) -> None:
        self.forgettings += 1
        raise StoreError("the database does not answer")


async def test_upkeep_goes_on_when_the_database_does_not_answer(
    tmp_path: Path, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_harness(tmp_path) as mesh:
        metrics = Metrics(mesh.plane.store, mesh.clock)
        upkeep = FailingUpkeep(mesh.plane.store, mesh.plane.authority, metrics, Config(), mesh.clock)
        with trio.move_on_after(RETENTION_CHECK_INTERVAL + 1):
            await upkeep.run()
    assert (upkeep.rotations, upkeep.forgettings) == (RETENTION_CHECK_INTERVAL // ROTATION_CHECK_INTERVAL + 1, 2)
    assert caplog.text.count("upkeep failed, to be tried again") == 4


async def test_gc_expired_nodes_applies_retention(tmp_path: Path, dsn: str) -> None:
    async with open_harness(tmp_path, db_dsn=dsn, node_retention=30 * DAY, lease_duration=HOUR) as mesh:
        token = await mesh.plane.create_token("router", max_usages=2, ttl=DAY)
        early, late = Identity.generate(), Identity.generate()
        credential = (await mesh.enroll(mesh.enroll_request(early, token))).biscuit_token
        await mesh.post("/routers/lease", mesh.lease_request(early, credential))
        mesh.clock.now += HOUR
        await mesh.enroll(mesh.enroll_request(late, token))
        mesh.clock.now += 31 * DAY - HOUR  # credentials are good for a day
        await mesh.plane.upkeep.forget()
        assert await mesh.plane.store.node(early.peer) is not None
        mesh.clock.now += 1
        await mesh.plane.upkeep.forget()
        assert await mesh.plane.store.node(early.peer) is None
        assert await mesh.plane.store.node(late.peer) is not None
        assert [enrollment.peer for enrollment in await mesh.plane.store.enrollments()] == [late.peer]
        assert (await mesh.status(early)).status_code == 401
        text = (await mesh.http.get("/metrics")).text
        assert "agentmesh_control_plane_nodes_deleted_total 1.0" in text


async def test_who_was_turned_away_is_remembered_while_the_token_is_good(tmp_path: Path) -> None:
    async with open_harness(tmp_path, auto_approve_enrollment=False, node_retention=DAY) as mesh:
        token, short = [await mesh.plane.create_token("node", ttl=ttl) for ttl in (10 * DAY, HOUR)]
        for value in (token, short):
            await mesh.enroll(mesh.enroll_request(Identity.generate(), value))
        for listed in (await mesh.admin("GET", "/enrollments")).json()["enrollments"]:
            await mesh.admin("POST", f"/enrollments/{listed['id']}/reject")
        mesh.clock.now += 2 * DAY
        await mesh.plane.upkeep.forget()
        (kept,) = await mesh.plane.store.enrollments()
        assert kept.token_id == token_id(token)
