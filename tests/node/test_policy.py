"""What a policy says, and what calls between real members come to by it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trio

from agentmesh.control_plane.policy.document import parse_policy
from agentmesh.control_plane.policy.model import Policy
from agentmesh.control_plane.policy.open import OPEN_POLICY
from agentmesh.membership import rulebook
from agentmesh.node import Node
from tests.node.loopback import app, open_loopback, url_of

ANYBODY = ["mesh:system:authenticated"]


def policy_of(*roles: Mapping[str, Any]) -> Policy:
    """Roles that everybody has."""
    bindings = [{"role": role["name"], "members": ANYBODY} for role in roles]
    return parse_policy({"roles": list(roles), "bindings": bindings})


async def test_a_mesh_without_a_policy_denies_and_says_so(tmp_path: Path) -> None:
    async with (
        open_loopback(tmp_path, "router", policy=None) as mesh,
        await mesh.node() as alice,
        await mesh.node() as bob,
        bob.serve("http", "app", app()),
        alice.http_client() as client,
    ):
        response = await client.get(url_of(bob))
        assert (response.status_code, response.headers["x-mesh-error"]) == (403, "denied")
        assert "http://app is denied: the mesh has no policy" in response.text


async def test_a_role_grants_services_at_members_by_methods_and_paths(tmp_path: Path) -> None:
    narrowed = {"service": "http://app", "methods": ["GET"], "paths": ["/", "/below/*"]}
    policy = policy_of(
        {"name": "reader", "allowed_services": ["http://app"], "allowed_targets": ["*"], "http": [narrowed]},
        {"name": "open", "allowed_services": ["http://open.*"], "allowed_targets": ["node:*"]},
        {"name": "nowhere", "allowed_services": ["http://secret"]},
    )
    async with (
        open_loopback(tmp_path, "router", policy=policy) as mesh,
        await mesh.node() as alice,
        await mesh.node() as bob,
        bob.serve("http", "app", app()),
        bob.serve("http", "open.app", app()),
        bob.serve("http", "secret", app()),
        alice.http_client() as client,
    ):

        async def status(method: str, service: str, path: str = "") -> tuple[int, str | None]:
            response = await client.request(method, url_of(bob, path, f"http/{service}"))
            return response.status_code, response.headers.get("x-mesh-error")

        assert await status("GET", "app") == (200, None)
        assert await status("GET", "app", "below/x") == (404, None)  # the application's own
        assert await status("GET", "app", "echo") == (403, "denied")
        assert await status("POST", "app") == (403, "denied")
        assert await status("GET", "app", "below%2Fx") == (403, "denied")
        assert await status("GET", "open.app") == (200, None)
        assert await status("POST", "open.app", "echo") == (200, None)
        assert await status("GET", "secret") == (403, "denied")
        denied = await client.get(url_of(bob, "", "http/secret"))
        assert denied.text == (
            f"http://secret is denied: no role of {alice.peer} grants this call of http://secret here; "
            "whoever runs the mesh can grant it by a policy\n"
        )


async def test_a_new_policy_holds_for_credentials_that_were_there_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rulebook, "RULES_SYNC_INTERVAL", 0.1)
    async with (
        open_loopback(tmp_path, "router", policy=None) as mesh,
        await mesh.node() as alice,
        await mesh.node() as bob,
        bob.serve("http", "app", app()),
    ):
        assert await _status(alice, bob) == 403
        await mesh.control_plane.herald.put_policy(OPEN_POLICY)
        with trio.fail_after(10):
            while await _status(alice, bob) != 200:  # noqa: ASYNC110 - seen from outside
                await trio.sleep(0.05)


async def _status(caller: Node, provider: Node) -> int:
    async with caller.http_client() as client:
        return (await client.get(url_of(provider))).status_code
