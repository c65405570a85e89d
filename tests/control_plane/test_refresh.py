"""New credentials for old: only the last one issued is redeemed."""

from pathlib import Path
from typing import Any

import pytest
import trio

from agentmesh.identity import Identity
from agentmesh.wire.messages.mesh.v1 import TokenRefreshResponse
from tests.control_plane.plane import Harness, bearer, open_harness, sign


async def enrolled(mesh: Harness, identity: Identity, role: str = "node") -> bytes:
    answer = await mesh.enroll(mesh.enroll_request(identity, await mesh.plane.create_token(role)))
    return answer.biscuit_token


async def refresh(mesh: Harness, identity: Identity, credential: bytes, **changes: Any) -> tuple[int, bytes | str]:
    response = await mesh.post("/refresh", mesh.refresh_request(identity, **changes), **bearer(credential))
    if response.status_code != 200:
        return response.status_code, response.text
    assert response.headers["cache-control"] == "no-store"
    return 200, TokenRefreshResponse.parse(response.content).biscuit_token


async def test_token_refresh_and_reuse(tmp_path: Path) -> None:
    async with open_harness(tmp_path, biscuit_ttl=1000) as mesh:
        identity = Identity.generate()
        first = await enrolled(mesh, identity)
        mesh.clock.now += 500
        status, second = await refresh(mesh, identity, first)
        assert status == 200
        assert isinstance(second, bytes)
        assert mesh.plane.authority.verify(second, identity.peer).expires_at == mesh.clock.now + 1000
        mesh.clock.now += 1
        assert await refresh(mesh, identity, first) == (401, "the credential is not the last one issued to the peer\n")
        assert (await refresh(mesh, identity, second))[0] == 200


async def test_enrolling_again_supersedes(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as mesh:
        identity = Identity.generate()
        first = await enrolled(mesh, identity)
        mesh.clock.now += 1
        second = await enrolled(mesh, identity)
        assert (await refresh(mesh, identity, first))[0] == 401
        assert (await refresh(mesh, identity, second))[0] == 200


async def test_the_same_signed_request_again_gets_the_same_answer(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as mesh:
        identity = Identity.generate()
        first = await enrolled(mesh, identity)
        answers = {await refresh(mesh, identity, first) for _ in range(3)}
        assert len(answers) == 1
        assert answers.pop()[0] == 200


async def test_of_many_at_once_one_redeems(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as mesh:
        identity, codes = Identity.generate(), list[int]()
        credential = await enrolled(mesh, identity)

        async def redeem(at: int) -> None:
            signature = sign(identity, "refresh", at)
            codes.append(
                (await refresh(mesh, identity, credential, challenge_unix_ms=at, challenge_signature=signature))[0]
            )

        async with trio.open_nursery() as nursery:
            for number in range(12):
                nursery.start_soon(redeem, mesh.clock.ms + number)
        assert sorted(codes) == [200] + [401] * 11


async def test_an_expired_credential_is_not_redeemed(tmp_path: Path) -> None:
    async with open_harness(tmp_path, biscuit_ttl=100) as mesh:
        identity = Identity.generate()
        credential = await enrolled(mesh, identity)
        mesh.clock.now += 101
        assert await refresh(mesh, identity, credential) == (401, "the credential does not admit the peer: expired\n")


async def test_a_peer_that_the_database_does_not_know_is_not_enrolled(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as mesh:
        identity = Identity.generate()
        issue = mesh.plane.authority.issue(identity.peer, "mesh:role:node", {}, "")
        assert await refresh(mesh, identity, issue.credential) == (401, "the peer is not enrolled\n")


async def test_a_credential_of_another_peer_is_not_redeemed(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as mesh:
        identity, other = Identity.generate(), Identity.generate()
        await enrolled(mesh, identity)
        status, text = await refresh(mesh, identity, await enrolled(mesh, other))
        assert (status, text) == (401, "the credential does not admit the peer: wrong_peer\n")


async def test_a_credential_of_another_control_plane_is_not_redeemed(tmp_path: Path) -> None:
    identity = Identity.generate()
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    async with open_harness(tmp_path / "a") as here, open_harness(tmp_path / "b") as there:
        await enrolled(here, identity)
        status, text = await refresh(here, identity, await enrolled(there, identity))
        assert (status, text) == (401, "the credential does not admit the peer: untrusted\n")


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"peer_id": "nonsense"}, 400),
        ({"challenge_signature": bytes(64)}, 401),
        ({"challenge_unix_ms": 1}, 401),
        ({"peer_id": str(Identity.generate().peer)}, 401),
    ],
)
async def test_malformed_and_unproven_requests(tmp_path: Path, changes: dict[str, Any], status: int) -> None:
    async with open_harness(tmp_path) as mesh:
        identity = Identity.generate()
        credential = await enrolled(mesh, identity)
        assert (await refresh(mesh, identity, credential, **changes))[0] == status


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer %%%", "Basic QUJD", "Bearer QUJD"])
async def test_what_is_no_bearer_credential_is_unauthorized(tmp_path: Path, header: str) -> None:
    async with open_harness(tmp_path) as mesh:
        identity = Identity.generate()
        await enrolled(mesh, identity)
        response = await mesh.post("/refresh", mesh.refresh_request(identity), Authorization=header)
        assert response.status_code == 401
