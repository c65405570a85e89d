"""Enrollment through the whole app: proof, tokens, approval, resends."""

import base64
from pathlib import Path
from typing import Any

import pytest
import trio

from agentmesh.control_plane import client as client_module
from agentmesh.control_plane.members import NO_ENROLLMENT, TURNED_DOWN
from agentmesh.control_plane.records import Status
from agentmesh.identity import CHALLENGE_WINDOW, Identity
from agentmesh.wire.messages.mesh.v1 import BootstrapEnrollResponse, EnrollmentStatus
from tests.control_plane.plane import Clock, Harness, open_harness, sign

APPROVED, PENDING, REJECTED = EnrollmentStatus.APPROVED, EnrollmentStatus.PENDING, EnrollmentStatus.REJECTED


def cid_spelling(identity: Identity) -> str:
    """The CIDv1 base32 spelling of a peer ID, as other libp2p implementations print it."""
    return "b" + base64.b32encode(b"\x01\x72" + identity.peer.multihash).decode().lower().rstrip("=")


async def test_enrollment_workflow(tmp_path: Path) -> None:
    """A peer asks, waits, is approved by an admin, polls, and holds a credential for what it asked."""
    async with open_harness(tmp_path, auto_approve_enrollment=False) as mesh:
        identity = Identity.generate()
        token = await mesh.plane.create_token("node", max_usages=2)
        request = mesh.enroll_request(identity, token, labels={"region": "eu"}, requested_role="node")
        assert (await mesh.status(identity)).status_code == 401
        answer = await mesh.enroll(request)
        assert (answer.status, answer.poll_interval_seconds, answer.biscuit_token) == (PENDING, 30, b"")
        polled = BootstrapEnrollResponse.parse((await mesh.status(identity)).content)
        assert polled.status is PENDING

        (listed,) = (await mesh.admin("GET", "/enrollments?status=pending")).json()["enrollments"]
        assert (listed["peer_id"], listed["role"], listed["labels"]) == (
            str(identity.peer),
            "mesh:role:node",
            {"region": "eu"},
        )
        assert (await mesh.admin("POST", f"/enrollments/{listed['id']}/approve")).status_code == 204
        assert (await mesh.admin("POST", f"/enrollments/{listed['id']}/approve")).status_code == 409
        assert (await mesh.admin("POST", f"/enrollments/{listed['id']}/reject")).status_code == 409

        granted = BootstrapEnrollResponse.parse((await mesh.status(identity)).content)
        assert granted.status is APPROVED
        assert granted.control_plane_public_key == mesh.plane.authority.public_key
        credential = mesh.plane.authority.verify(granted.biscuit_token, identity.peer)
        assert (credential.role, dict(credential.labels)) == ("mesh:role:node", {"region": "eu"})
        assert granted.expire_time is not None
        assert granted.expire_time.timestamp() == credential.expires_at == mesh.clock.now + 24 * 3600
        again = BootstrapEnrollResponse.parse((await mesh.status(identity)).content)
        assert again.biscuit_token == granted.biscuit_token  # polling mints nothing


async def test_enroll_status_polling_collects_biscuit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "MIN_POLL_INTERVAL", 0.001)
    async with (
        open_harness(tmp_path, auto_approve_enrollment=False) as mesh,
        mesh.client(identity := Identity.generate()) as client,
    ):
        token = await mesh.plane.create_token("node")

        async def approve() -> None:
            while not await mesh.plane.store.enrollments(Status.PENDING):  # noqa: ASYNC110 - only looking tells
                await trio.lowlevel.checkpoint()
            assert (await mesh.admin("POST", "/enrollments/1/approve")).status_code == 204

        async with trio.open_nursery() as nursery:
            nursery.start_soon(approve)
            issued = await client.enroll(token, poll_interval=0.001)
        mesh.plane.authority.verify(issued.credential, identity.peer)


async def test_rejected_by_an_admin(tmp_path: Path) -> None:
    async with open_harness(tmp_path, auto_approve_enrollment=False) as mesh:
        identity = Identity.generate()
        token = await mesh.plane.create_token("node", max_usages=5)
        await mesh.enroll(mesh.enroll_request(identity, token))
        assert (await mesh.admin("POST", "/enrollments/1/reject")).status_code == 204
        polled = BootstrapEnrollResponse.parse((await mesh.status(identity)).content)
        assert (polled.status, polled.error_message) == (REJECTED, TURNED_DOWN)
        assert (await mesh.enroll(mesh.enroll_request(identity, token))).status is REJECTED
        other = await mesh.plane.create_token("node")
        assert (await mesh.enroll(mesh.enroll_request(identity, other))).status is PENDING


async def test_automatic_approval_is_a_setting(tmp_path: Path) -> None:
    async with open_harness(tmp_path, auto_approve_enrollment=True) as mesh:
        token = await mesh.plane.create_token("router")
        answer = await mesh.enroll(mesh.enroll_request(Identity.generate(), token))
        assert answer.status is APPROVED
        assert answer.biscuit_token


async def test_a_pending_request_is_approved_when_the_setting_changes(tmp_path: Path) -> None:
    identity = Identity.generate()
    async with open_harness(tmp_path, auto_approve_enrollment=False) as mesh:
        token = await mesh.plane.create_token("node")
        assert (await mesh.enroll(mesh.enroll_request(identity, token))).status is PENDING
    async with open_harness(tmp_path, auto_approve_enrollment=True) as mesh:
        assert (await mesh.enroll(mesh.enroll_request(identity, token))).status is APPROVED


@pytest.mark.parametrize("seconds", [5.0, 90.0])
async def test_how_long_to_wait_between_polls_is_a_setting(tmp_path: Path, seconds: float) -> None:
    async with open_harness(tmp_path, auto_approve_enrollment=False, poll_interval=seconds) as mesh:
        answer = await mesh.enroll(mesh.enroll_request(Identity.generate(), await mesh.plane.create_token("node")))
        assert answer.poll_interval_seconds == seconds


@pytest.mark.parametrize("seconds", [60.0, 7200.0])
async def test_how_long_credentials_are_valid_is_a_setting(tmp_path: Path, seconds: float) -> None:
    async with open_harness(tmp_path, biscuit_ttl=seconds) as mesh:
        answer = await mesh.enroll(mesh.enroll_request(Identity.generate(), await mesh.plane.create_token("node")))
        assert answer.expire_time is not None
        assert answer.expire_time.timestamp() == mesh.clock.now + seconds


async def test_bootstrap_token_usage_cap_holds_under_concurrency(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as mesh:
        token, statuses = await mesh.plane.create_token("node", max_usages=1), list[EnrollmentStatus]()

        async def enroll() -> None:
            statuses.append((await mesh.enroll(mesh.enroll_request(Identity.generate(), token))).status)

        async with trio.open_nursery() as nursery:
            for _ in range(12):
                nursery.start_soon(enroll)
        assert sorted(statuses) == [APPROVED] + [REJECTED] * 11


async def test_one_peer_that_asks_many_times_at_once_is_one_member(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as mesh:
        identity, answers = Identity.generate(), list[BootstrapEnrollResponse]()
        token = await mesh.plane.create_token("node", max_usages=20)

        async def enroll(number: int) -> None:
            at = mesh.clock.ms + number
            request = mesh.enroll_request(
                identity, token, challenge_unix_ms=at, challenge_signature=sign(identity, "enroll", at)
            )
            answers.append(await mesh.enroll(request))

        async with trio.open_nursery() as nursery:
            for number in range(12):
                nursery.start_soon(enroll, number)
        assert {answer.status for answer in answers} == {APPROVED}
        assert len({answer.biscuit_token for answer in answers}) == 12
        assert await used(mesh) == 12


async def used(mesh: Harness) -> int:
    (found,) = await mesh.plane.store.tokens()
    return found.usages


async def test_approve_rechecks_token_and_resolves_once(tmp_path: Path) -> None:
    async with open_harness(tmp_path, auto_approve_enrollment=False) as mesh:
        spent = await mesh.plane.create_token("node", max_usages=1)
        revoked = await mesh.plane.create_token("node")
        expired = await mesh.plane.create_token("node", ttl=5.0)
        for token in (spent, spent, revoked, expired):
            assert (await mesh.enroll(mesh.enroll_request(Identity.generate(), token))).status is PENDING
        tokens = (await mesh.admin("GET", "/bootstrap-tokens")).json()["bootstrap_tokens"]
        (revoked_id,) = {t["id"] for t in tokens if t["max_usages"] == 1} - {
            e["token_id"] for e in (await mesh.admin("GET", "/enrollments")).json()["enrollments"] if e["id"] != 3
        }
        assert (await mesh.admin("DELETE", f"/bootstrap-tokens/{revoked_id}")).status_code == 204
        mesh.clock.now += 5.0
        answers = [await mesh.admin("POST", f"/enrollments/{number}/approve") for number in (1, 2, 3, 4, 5)]
        assert [answer.status_code for answer in answers] == [204, 410, 410, 410, 404]
        assert [answer.text.strip() for answer in answers[1:4]] == [
            "the bootstrap token is used up",
            "the bootstrap token is revoked",
            "the bootstrap token has expired",
        ]
        assert (await mesh.admin("POST", "/enrollments/2/reject")).status_code == 204


async def test_two_admins_at_once_resolve_once(tmp_path: Path) -> None:
    async with open_harness(tmp_path, auto_approve_enrollment=False) as mesh:
        token, codes = await mesh.plane.create_token("node", max_usages=9), list[int]()
        await mesh.enroll(mesh.enroll_request(Identity.generate(), token))

        async def resolve(verb: str) -> None:
            codes.append((await mesh.admin("POST", f"/enrollments/1/{verb}")).status_code)

        async with trio.open_nursery() as nursery:
            for verb in ("approve", "reject") * 5:
                nursery.start_soon(resolve, verb)
        assert sorted(codes) == [204] + [409] * 9


async def test_enrolling_again_mints_anew(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as mesh:
        identity, clock = Identity.generate(), mesh.clock
        token = await mesh.plane.create_token("node", max_usages=2)
        first = await mesh.enroll(mesh.enroll_request(identity, token, labels={"region": "eu"}))
        clock.now += 100
        second = await mesh.enroll(mesh.enroll_request(identity, token, labels={"region": "us"}))
        assert second.status is APPROVED
        assert second.biscuit_token != first.biscuit_token
        credential = mesh.plane.authority.verify(second.biscuit_token, identity.peer)
        assert dict(credential.labels) == {"region": "eu"}  # they stay those of the first enrollment
        clock.now += 100
        third = await mesh.enroll(mesh.enroll_request(identity, token))
        assert (third.status, third.error_message) == (REJECTED, "the bootstrap token is used up")


async def test_a_member_enrolls_again_without_an_admin(tmp_path: Path) -> None:
    async with open_harness(tmp_path, auto_approve_enrollment=False) as mesh:
        identity, token = Identity.generate(), await mesh.plane.create_token("node", max_usages=2)
        await mesh.enroll(mesh.enroll_request(identity, token))
        await mesh.admin("POST", "/enrollments/1/approve")
        mesh.clock.now += 1
        assert (await mesh.enroll(mesh.enroll_request(identity, token))).status is APPROVED


async def test_the_same_signed_request_again_spends_nothing(tmp_path: Path) -> None:
    """Its answer was lost on the way, say: with one usage on the token the peer would be out for ever."""
    async with open_harness(tmp_path) as mesh:
        identity, token = Identity.generate(), await mesh.plane.create_token("node", max_usages=1)
        request = mesh.enroll_request(identity, token)
        answers = [await mesh.enroll(request) for _ in range(3)]
        assert {answer.biscuit_token for answer in answers} == {answers[0].biscuit_token}
        assert await used(mesh) == 1


async def test_too_many_that_wait_are_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentmesh.control_plane.queries.MAX_PENDING_PER_TOKEN", 1)
    async with open_harness(tmp_path, auto_approve_enrollment=False) as mesh:
        token = await mesh.plane.create_token("node", max_usages=9)
        assert (await mesh.enroll(mesh.enroll_request(Identity.generate(), token))).status is PENDING
        answer = await mesh.enroll(mesh.enroll_request(Identity.generate(), token))
        assert answer.status is REJECTED
        assert answer.error_message == "too many enrollments of this bootstrap token wait for approval"


async def test_a_member_keeps_its_role(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as mesh:
        identity = Identity.generate()
        await mesh.enroll(mesh.enroll_request(identity, await mesh.plane.create_token("node")))
        mesh.clock.now += 1
        answer = await mesh.enroll(mesh.enroll_request(identity, await mesh.plane.create_token("router")))
        assert (answer.status, answer.error_message) == (REJECTED, "the peer is enrolled as mesh:role:node")


@pytest.mark.parametrize("asked", ["router", "mesh:role:router"])
async def test_a_token_is_for_one_role(tmp_path: Path, asked: str) -> None:
    async with open_harness(tmp_path) as mesh:
        token = await mesh.plane.create_token("node")
        answer = await mesh.enroll(mesh.enroll_request(Identity.generate(), token, requested_role=asked))
        assert (answer.status, answer.error_message) == (REJECTED, "the bootstrap token is for mesh:role:node")


async def test_refused_tokens_are_answers_with_a_reason(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as mesh:
        token = await mesh.plane.create_token("node", ttl=10)
        unknown = await mesh.enroll(mesh.enroll_request(Identity.generate(), "mesh-bt-" + "0" * 32))
        assert (unknown.status, unknown.error_message) == (REJECTED, "unknown bootstrap token")
        mesh.clock.now += 10
        expired = await mesh.enroll(mesh.enroll_request(Identity.generate(), token))
        assert (expired.status, expired.error_message) == (REJECTED, "the bootstrap token has expired")


@pytest.mark.parametrize(
    ("changes", "status", "text"),
    [
        ({"peer_id": "nonsense"}, 400, "peer_id is not a peer ID"),
        ({"peer_id": ""}, 400, "peer_id is not a peer ID"),
        ({"peer_id": "QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N"}, 400, "not that of an Ed25519 key"),
        ({"peer_id": str(Identity.generate().peer)}, 400, "not that of public_key"),
        ({"public_key": b""}, 400, "not that of public_key"),
        ({"public_key": bytes(36)}, 400, "not that of public_key"),
        ({"labels": {"a b": "c"}}, 400, "label key 'a b'"),
        ({"requested_role": "king"}, 400, "there is no such role"),
        ({"challenge_signature": bytes(64)}, 401, "not signed with the key"),
        ({"challenge_signature": b""}, 401, "not signed with the key"),
        ({"challenge_unix_ms": 0}, 401, "stale or invalid challenge timestamp"),
        ({"challenge_unix_ms": 2**63 - 1}, 401, "stale or invalid challenge timestamp"),
        ({"challenge_unix_ms": -(2**63)}, 401, "stale or invalid challenge timestamp"),
    ],
)
async def test_malformed_and_unproven_requests(tmp_path: Path, changes: dict[str, Any], status: int, text: str) -> None:
    async with open_harness(tmp_path) as mesh:
        token = await mesh.plane.create_token("node")
        response = await mesh.post("/enroll", mesh.enroll_request(Identity.generate(), token, **changes))
        assert (response.status_code, text in response.text) == (status, True), response.text
        assert await used(mesh) == 0


@pytest.mark.parametrize(
    ("age", "taken"), [(0, True), (-CHALLENGE_WINDOW, True), (CHALLENGE_WINDOW, True), (-300.1, False), (300.1, False)]
)
async def test_a_challenge_is_taken_within_five_minutes(tmp_path: Path, age: float, taken: bool) -> None:
    async with open_harness(tmp_path) as mesh:
        identity, at = Identity.generate(), mesh.clock.ms + round(age * 1000)
        signature = sign(identity, "enroll", at)
        token = await mesh.plane.create_token("node")
        request = mesh.enroll_request(identity, token, challenge_unix_ms=at, challenge_signature=signature)
        assert (await mesh.post("/enroll", request)).status_code == (200 if taken else 401)


async def test_a_challenge_is_for_one_purpose(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as mesh:
        identity = Identity.generate()
        signature = sign(identity, "enroll-status", mesh.clock.ms)
        request = mesh.enroll_request(identity, await mesh.plane.create_token("node"), challenge_signature=signature)
        assert (await mesh.post("/enroll", request)).status_code == 401


async def test_enroll_status_reaches_the_record_through_an_alias(tmp_path: Path) -> None:
    async with open_harness(tmp_path, auto_approve_enrollment=False) as mesh:
        identity = Identity.generate()
        token = await mesh.plane.create_token("node")
        await mesh.enroll(mesh.enroll_request(identity, token, peer_id=cid_spelling(identity)))
        for spelling in (str(identity.peer), cid_spelling(identity), identity.peer.dns_label):
            response = await mesh.status(identity, spelling)
            assert response.status_code == 200
            assert BootstrapEnrollResponse.parse(response.content).status is PENDING
        (listed,) = (await mesh.admin("GET", "/enrollments")).json()["enrollments"]
        assert listed["peer_id"] == str(identity.peer)


async def test_every_failure_of_enroll_status_looks_the_same(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as mesh:
        member, stranger = Identity.generate(), Identity.generate()
        await mesh.enroll(mesh.enroll_request(member, await mesh.plane.create_token("node")))
        old = str(mesh.clock.ms - 301_000)
        failures = [
            await mesh.status(stranger),
            await mesh.status(stranger, str(member.peer)),
            await mesh.status(member, "nonsense"),
            await mesh.status(member, **{"X-Mesh-Challenge-Ts": old}),
            await mesh.status(member, **{"X-Mesh-Challenge-Ts": "soon"}),
            await mesh.status(member, **{"X-Mesh-Challenge-Sig": "%%%"}),
            await mesh.http.get("/enroll/status"),
        ]
        assert {(failure.status_code, failure.text) for failure in failures} == {(401, NO_ENROLLMENT + "\n")}
        assert (await mesh.status(member)).status_code == 200


async def test_credentials_are_not_to_be_cached(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as mesh:
        identity = Identity.generate()
        token = await mesh.plane.create_token("node")
        response = await mesh.post("/enroll", mesh.enroll_request(identity, token))
        assert response.headers["cache-control"] == "no-store"
        assert (await mesh.status(identity)).headers["cache-control"] == "no-store"


async def test_answers_name_the_routers_that_are_up(tmp_path: Path) -> None:
    async with open_harness(tmp_path, clock=Clock()) as mesh:
        router, member = Identity.generate(), Identity.generate()
        admitted = await mesh.enroll(mesh.enroll_request(router, await mesh.plane.create_token("router")))
        lease = mesh.lease_request(router, admitted.biscuit_token)
        assert (await mesh.post("/routers/lease", lease)).status_code == 200
        answer = await mesh.enroll(mesh.enroll_request(member, await mesh.plane.create_token("node")))
        assert answer.router_addresses == lease.addresses
        polled = BootstrapEnrollResponse.parse((await mesh.status(member)).content)
        assert polled.router_addresses == lease.addresses


async def test_a_secret_is_nowhere_but_with_its_holder(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    async with open_harness(tmp_path) as mesh:
        token = await mesh.plane.create_token("node", max_usages=3)
        answer = await mesh.enroll(mesh.enroll_request(Identity.generate(), token))
        await mesh.post("/enroll", mesh.enroll_request(Identity.generate(), token, challenge_signature=b"x"))
        await mesh.enroll(mesh.enroll_request(Identity.generate(), token + "0"))
        listed = (await mesh.admin("GET", "/bootstrap-tokens")).text
        seen = caplog.text + listed + repr(mesh.plane)
    assert token not in seen
    files = [await trio.Path(path).read_bytes() for path in await trio.Path(tmp_path).iterdir()]
    assert files
    assert token.encode() not in b"".join(files)
    assert answer.biscuit_token.hex() not in seen
    assert base64.b64encode(answer.biscuit_token).decode()[:40] not in seen
