"""The admin's interface: its door, bootstrap tokens, strict bodies."""

import hashlib
import re
from pathlib import Path
from typing import Any

import pytest

from tests.control_plane.plane import ADMIN_TOKEN, open_harness

ROUTES = [
    ("POST", "/admin/bootstrap-tokens"),
    ("GET", "/admin/bootstrap-tokens"),
    ("DELETE", "/admin/bootstrap-tokens/x"),
    ("GET", "/admin/enrollments"),
    ("POST", "/admin/enrollments/1/approve"),
    ("POST", "/admin/enrollments/1/reject"),
    ("GET", "/admin/policy"),
    ("PUT", "/policies"),
    ("POST", "/policies"),
    ("GET", "/admin/nodes"),
    ("GET", "/admin/routers"),
    ("POST", "/admin/revoke"),
    ("POST", "/admin/nodes/x/unban"),
    ("POST", "/admin/nodes/x/autonomous-recovery"),
]
WANTED = {"role": "node", "max_usages": 3, "ttl": 60, "description": "for the lab"}


async def test_auth_denial_paths(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as mesh:
        for method, path in ROUTES:
            for header in (
                "",
                f"Basic {ADMIN_TOKEN}",
                "Bearer",
                "Bearer wrong",
                f"Bearer {ADMIN_TOKEN}x",
                "Bearer \xe9",
            ):
                headers = {b"Authorization": header.encode("latin-1")}
                response = await mesh.http.request(method, path, headers=headers)
                assert response.status_code == 401, (method, path, header)


async def test_without_an_admin_token_nobody_is_an_admin(tmp_path: Path) -> None:
    async with open_harness(tmp_path, admin_token=None) as mesh:
        for method, path in ROUTES:
            for headers in ({}, {"Authorization": "Bearer "}, {"Authorization": "Bearer None"}):
                assert (await mesh.http.request(method, path, headers=headers)).status_code == 403, (method, path)


async def test_a_token_is_shown_once_and_stored_as_its_hash(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as mesh:
        response = await mesh.admin("POST", "/bootstrap-tokens", json=WANTED)
        assert (response.status_code, response.headers["cache-control"]) == (201, "no-store")
        made = response.json()
        value = made.pop("token")
        assert re.fullmatch(r"mesh-bt-[0-9a-f]{32}", value)
        assert made["id"] == hashlib.sha256(value.encode()).hexdigest()
        assert made == {
            "id": made["id"],
            "role": "mesh:role:node",
            "max_usages": 3,
            "usages": 0,
            "description": "for the lab",
            "created_at": "2027-01-15T08:00:00.000Z",
            "expires_at": "2027-01-15T08:01:00.000Z",
            "revoked_at": None,
            "owner": None,
            "autonomous_recovery": False,
        }
        assert (await mesh.admin("GET", "/bootstrap-tokens")).json() == {"bootstrap_tokens": [made]}


async def test_revoking_is_for_good_and_may_be_repeated(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as mesh:
        token_id = (await mesh.admin("POST", "/bootstrap-tokens", json=WANTED)).json()["id"]
        for _ in range(2):
            assert (await mesh.admin("DELETE", f"/bootstrap-tokens/{token_id}")).status_code == 204
        assert (await mesh.admin("DELETE", "/bootstrap-tokens/unknown")).status_code == 404
        (listed,) = (await mesh.admin("GET", "/bootstrap-tokens")).json()["bootstrap_tokens"]
        assert listed["revoked_at"] == "2027-01-15T08:00:00.000Z"


STRICT: list[tuple[dict[str, Any], str]] = [
    ({"role": "king"}, "there is no such role"),
    ({"role": 5}, "field role is of another type"),
    ({"max_usages": 0}, "max_usages is from 1"),
    ({"max_usages": 10**30}, "max_usages is from 1"),
    ({"max_usages": True}, "field max_usages is of another type"),
    ({"max_usages": 1.5}, "field max_usages is of another type"),
    ({"ttl": 0}, "ttl is above 0"),
    ({"ttl": -1}, "ttl is above 0"),
    ({"ttl": 1e12}, "ttl is above 0"),
    ({"ttl": "60s"}, "field ttl is of another type"),
    ({"description": "x" * 1001}, "description is longer"),
    ({"usages": 3}, "there is no field 'usages'"),
    ({"description": "\x00"}, "field description holds a control character"),
    ({"owner": "nobody"}, "there is no such user"),
    ({"autonomous_recovery": 1}, "field autonomous_recovery is of another type"),
]


async def test_bodies_are_strict(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as mesh:
        for changes, text in STRICT:
            response = await mesh.admin("POST", "/bootstrap-tokens", json=WANTED | changes)
            assert (response.status_code, text in response.text) == (400, True), response.text


@pytest.mark.parametrize("missing", ["role", "max_usages", "ttl"])
async def test_fields_that_are_needed(tmp_path: Path, missing: str) -> None:
    async with open_harness(tmp_path) as mesh:
        body = {name: value for name, value in WANTED.items() if name != missing}
        response = await mesh.admin("POST", "/bootstrap-tokens", json=body)
        assert (response.status_code, response.text) == (400, f"missing: {missing}\n")


@pytest.mark.parametrize(
    ("content", "status"), [(b"", 400), (b"[]", 400), (b"{", 400), (b"[" * 100_000, 400), (b"\xff", 400)]
)
async def test_bodies_are_json_objects(tmp_path: Path, content: bytes, status: int) -> None:
    async with open_harness(tmp_path) as mesh:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {ADMIN_TOKEN}"}
        response = await mesh.http.post("/admin/bootstrap-tokens", content=content, headers=headers)
        assert response.status_code == status


async def test_enrollments_are_listed_by_status(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as mesh:
        assert (await mesh.admin("GET", "/enrollments")).json() == {"enrollments": []}
        assert (await mesh.admin("GET", "/enrollments?status=rejected")).json() == {"enrollments": []}
        assert (await mesh.admin("GET", "/enrollments?status=lost")).status_code == 400


@pytest.mark.parametrize(("number", "status"), [("1", 404), (str(10**30), 404), ("x", 404)])
async def test_enrollments_that_are_not_there(tmp_path: Path, number: str, status: int) -> None:
    async with open_harness(tmp_path) as mesh:
        assert (await mesh.admin("POST", f"/enrollments/{number}/approve")).status_code == status


async def test_a_status_says_how_many_there_are_of_what(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as mesh:
        member, _ = await mesh.admitted()
        router, credential = await mesh.admitted("router")
        await mesh.post("/routers/lease", mesh.lease_request(router, credential, connected_peers=4))
        await mesh.plane.create_token("node")
        await mesh.ban(member)
        found = (await mesh.admin("GET", "/status")).json()
        assert found["nodes"] == {
            "mesh:role:node": {"admitted": 0, "expired": 0, "banned": 1},
            "mesh:role:router": {"admitted": 1, "expired": 0, "banned": 0},
        }
        assert found["bootstrap_tokens"] == {"active": 1, "revoked": 0, "expired": 0, "exhausted": 2}
        assert found["enrollments"] == {"pending": 0, "approved": 2, "rejected": 0}
        assert (found["routers"], found["connected_peers"], found["banned"], found["users"]) == (1, 4, 1, 0)
        assert (found["signing_keys"], found["retiring_key_expires_at"]) == (1, None)
        await mesh.ban(router)
        assert (await mesh.admin("GET", "/status")).json()["routers"] == 0
        await mesh.plane.authority.rotate(grace=60.0)
        found = (await mesh.admin("GET", "/status")).json()
        assert (found["signing_keys"], found["retiring_key_expires_at"]) == (2, "2027-01-15T08:01:00.000Z")
