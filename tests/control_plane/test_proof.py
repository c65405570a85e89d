"""Every route that acts for a peer wants a proof of its key: for that purpose, of now, by that key."""

import base64
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import httpx
import pytest

from agentmesh.control_plane.proof import STALE
from agentmesh.identity import CHALLENGE_WINDOW, Identity, challenge_text
from tests.control_plane.plane import Harness, bearer
from tests.control_plane.test_register import HOUR, POLICY, open_site

PURPOSES = ("enroll", "enroll-status", "register", "refresh", "routers-lease", "policies", "revocations")
IN_HEADERS = ("enroll-status", "policies", "revocations")


@attrs.frozen
class Caller:
    """A peer, and what it asks of each route.

    Attributes:
        ask: of a purpose, with fields of the proof in the body, or headers with it.
    """

    mesh: Harness
    identity: Identity
    ask: Callable[..., Awaitable[httpx.Response]]

    async def asked(self, purpose: str, signer: Identity, signed_for: str, unix_ms: int) -> httpx.Response:
        """The answer of the route for `purpose` to a proof that may be wrong."""
        signature = signer.sign(challenge_text(signed_for, self.identity.peer, unix_ms))
        if purpose not in IN_HEADERS:
            return await self.ask(purpose, challenge_unix_ms=unix_ms, challenge_signature=signature)
        text = base64.urlsafe_b64encode(signature).decode().rstrip("=")
        return await self.ask(purpose, **{"X-Mesh-Challenge-Ts": str(unix_ms), "X-Mesh-Challenge-Sig": text})


@asynccontextmanager
async def open_caller(folder: Path) -> AsyncGenerator[Caller]:
    """A router, so that there is no route that it may not ask."""
    policy = {**POLICY, "bindings": [*POLICY["bindings"], {"role": "mesh:role:router", "members": ["user:alice"]}]}
    async with open_site(folder, biscuit_ttl=24 * HOUR) as site:
        mesh, jwt = site.mesh, site.provider.token(exp=int(site.mesh.clock.now + 9 * HOUR))
        assert (await mesh.put_policy(policy)).status_code == 200
        identity, credential = await mesh.admitted("router")
        token = await mesh.plane.create_token("router", max_usages=1000)

        async def ask(purpose: str, **proof: Any) -> httpx.Response:
            match purpose:
                case "enroll":
                    return await mesh.post("/enroll", mesh.enroll_request(identity, token, **proof))
                case "register":
                    message = mesh.register_request(identity, jwt, requested_role="router", **proof)
                    return await mesh.post("/register", message)
                case "refresh":
                    return await mesh.post("/refresh", mesh.refresh_request(identity, **proof), **bearer(credential))
                case "routers-lease":
                    return await mesh.post("/routers/lease", mesh.lease_request(identity, credential, **proof))
                case "enroll-status":
                    return await mesh.status(identity, **proof)
                case _:
                    return await mesh.member(identity, credential, f"/{purpose}", **proof)

        yield Caller(mesh, identity, ask)


@pytest.mark.parametrize("purpose", PURPOSES)
async def test_a_proof_is_for_one_purpose_and_by_one_key(tmp_path: Path, purpose: str) -> None:
    async with open_caller(tmp_path) as caller:
        now = caller.mesh.clock.ms
        for other in {*PURPOSES, "token-exchange", ""} - {purpose}:
            assert (await caller.asked(purpose, caller.identity, other, now)).status_code == 401, other
        assert (await caller.asked(purpose, Identity.generate(), purpose, now)).status_code == 401
        assert (await caller.asked(purpose, caller.identity, purpose, now)).status_code == 200


@pytest.mark.parametrize("purpose", PURPOSES)
async def test_a_proof_is_of_now_give_or_take_five_minutes(tmp_path: Path, purpose: str) -> None:
    async with open_caller(tmp_path) as caller:
        now, window = caller.mesh.clock.ms, round(CHALLENGE_WINDOW * 1000)
        for offset in (-window - 1, window + 1, -now):
            refused = await caller.asked(purpose, caller.identity, purpose, now + offset)
            assert (refused.status_code, STALE in refused.text, "date" in refused.headers) == (401, True, True)
        assert (await caller.asked(purpose, caller.identity, purpose, now + window)).status_code == 200
