"""What people do who log in with their provider: see what is theirs, invite nodes of their own."""

from pathlib import Path
from typing import Any

import httpx

from agentmesh.identity import Identity
from tests.control_plane.plane import ADMIN_TOKEN
from tests.control_plane.test_register import HOUR, Site, open_site

WANTED: dict[str, Any] = {"role": "node", "max_usages": 2, "ttl": 60}


async def as_user(site: Site, method: str, path: str, user: str = "alice", **arguments: Any) -> httpx.Response:
    headers = {"Authorization": f"Bearer {site.provider.token(user, groups=['eng'])}"}
    return await site.mesh.http.request(method, f"/user{path}", headers=headers, **arguments)


async def invite(site: Site, user: str = "alice", **changes: Any) -> httpx.Response:
    return await as_user(site, "POST", "/bootstrap-tokens", user, json=WANTED | changes)


def identity_of(site: Site, user: str) -> str:
    return f"{site.provider.issuer}|{user}"


async def test_bootstrap_token_ownership(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        alice, bob = identity_of(site, "alice"), identity_of(site, "bob")
        assert (await invite(site)).json()["owner"] == alice
        assert (await invite(site, owner=alice)).status_code == 201
        assert (await invite(site, owner=bob)).status_code == 403
        assert (await invite(site, role="router")).status_code == 403
        assert (await invite(site, role="mesh:role:router")).status_code == 403
        assert (await invite(site, autonomous_recovery=True)).status_code == 403
        for path in ("/user/bootstrap-tokens", "/admin/bootstrap-tokens"):
            for owner, status in ((alice, 201), (bob, 400), ("nobody", 400)):
                made = await site.mesh.as_admin("POST", path, json=WANTED | {"owner": owner})
                assert made.status_code == status
            assert (await site.mesh.as_admin("POST", path, json=WANTED | {"role": "router"})).json()["owner"] is None
        assert (await site.mesh.http.post("/user/bootstrap-tokens", json=WANTED)).status_code == 401


async def test_user_bootstrap_token_ceilings(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        assert (await invite(site, ttl=168 * HOUR, max_usages=10)).status_code == 201
        for changes, text in (
            ({"ttl": 168 * HOUR + 1}, "ttl is at most 604800 seconds"),
            ({"max_usages": 11}, "max_usages is at most 10"),
            ({"max_usages": 0}, "max_usages is from 1"),
            ({"ttl": "1h"}, "field ttl is of another type"),
            ({"usages": 5}, "there is no field 'usages'"),
            ({"role": "king"}, "there is no such role"),
        ):
            refused = await invite(site, "alice", **changes)
            assert (refused.status_code, text in refused.text) == (400, True), refused.text
        wide = await site.mesh.as_admin("POST", "/user/bootstrap-tokens", json=WANTED | {"max_usages": 500, "ttl": 9e6})
        assert wide.status_code == 201


async def test_people_see_what_is_theirs(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        made = (await invite(site)).json()
        identity = Identity.generate()
        await site.mesh.enroll(site.mesh.enroll_request(identity, made["token"]))
        await site.registered(Identity.generate(), site.provider.token("bob"))
        status = (await as_user(site, "GET", "/status")).json()
        assert status["user"] == {"id": identity_of(site, "alice"), "issuer": site.provider.issuer, "email": ""}
        assert [node["peer_id"] for node in status["nodes"]] == [str(identity.peer)]
        assert [(token["id"], token["usages"]) for token in status["bootstrap_tokens"]] == [(made["id"], 1)]
        assert "token" not in status["bootstrap_tokens"][0]
        bob = (await as_user(site, "GET", "/status", "bob")).json()
        assert (len(bob["nodes"]), bob["bootstrap_tokens"]) == (1, [])


async def test_people_revoke_what_is_theirs(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        made = (await invite(site)).json()
        for user, token_id, status in (
            ("bob", made["id"], 404),
            ("alice", "0" * 64, 404),
            ("alice", "x\x00'; DROP TABLE users; --", 404),
            ("alice", made["id"], 204),
            ("alice", made["id"], 204),
        ):
            response = await as_user(site, "POST", "/revoke", user, params={"id": token_id})
            assert response.status_code == status
        (listed,) = (await as_user(site, "GET", "/status")).json()["bootstrap_tokens"]
        assert listed["revoked_at"] is not None
        answer = await site.mesh.enroll(site.mesh.enroll_request(Identity.generate(), made["token"]))
        assert answer.error_message == "the bootstrap token is revoked"


async def test_identity_ban_covers_user_surface_and_owned_tokens(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        made = (await invite(site)).json()
        node = Identity.generate()
        await site.mesh.enroll(site.mesh.enroll_request(node, made["token"]))
        await site.mesh.ban(node)
        for response in (
            await as_user(site, "GET", "/status"),
            await invite(site),
            await as_user(site, "POST", "/revoke", params={"id": made["id"]}),
        ):
            assert (response.status_code, response.text) == (403, "you are banned\n")
        answer = await site.mesh.enroll(site.mesh.enroll_request(Identity.generate(), made["token"]))
        assert answer.error_message == "the owner of the bootstrap token is banned"
        assert (await site.register(Identity.generate(), site.provider.token(groups=["eng"]))).status_code == 403
        assert (await as_user(site, "GET", "/status", "bob")).status_code == 200
        await site.mesh.unban(node)
        assert (await as_user(site, "GET", "/status")).status_code == 200


async def test_whoever_is_not_logged_in_is_nobody(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        expired = site.provider.token(exp=int(site.mesh.clock.now) - 100)
        for text in ("", "Bearer", "Bearer nonsense", f"Bearer {expired}", f"Basic {site.provider.token()}"):
            for method, path in (("GET", "/user/status"), ("POST", "/user/bootstrap-tokens"), ("POST", "/user/revoke")):
                response = await site.mesh.http.request(method, path, headers={"Authorization": text})
                assert response.status_code == 401, (path, text)
        admin = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
        assert (await site.mesh.http.get("/user/status", headers=admin)).status_code == 401  # an admin is no user
