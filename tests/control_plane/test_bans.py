"""Who is banned is out of everything, however it is spelt, until the ban is lifted."""

from pathlib import Path

from agentmesh.control_plane.records import TokenOwner, User
from agentmesh.control_plane.tokens import create_token
from agentmesh.identity import Identity
from agentmesh.wire.messages.mesh.v1 import ControlPlaneInfoResponse, EnrollmentStatus
from tests.control_plane.plane import Harness, bearer, open_harness
from tests.control_plane.test_enroll import cid_spelling

ALICE = "https://idp.example|alice"


async def owned_token(mesh: Harness, owner: str = ALICE, role: str = "node", max_usages: int = 5) -> str:
    user = User(owner, owner.partition("|")[0], "a@example.com", mesh.clock.now)
    await mesh.plane.store.access.put_user(user)
    sent = {"role": role, "max_usages": max_usages, "ttl": 600, "owner": owner}
    return str((await mesh.admin("POST", "/bootstrap-tokens", json=sent)).json()["token"])


async def banned_on_info(mesh: Harness) -> list[str]:
    return ControlPlaneInfoResponse.parse((await mesh.http.get("/info")).content).banned_peer_ids


async def test_token_refresh_and_revocation(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as mesh:
        router, credential = await mesh.admitted("router")
        mesh.clock.now += 1
        await mesh.ban(router)
        refused = await mesh.post("/refresh", mesh.refresh_request(router), **bearer(credential))
        assert (refused.status_code, refused.text) == (403, "the peer is banned\n")
        assert (await mesh.post("/routers/lease", mesh.lease_request(router, credential))).status_code == 403
        assert await banned_on_info(mesh) == [str(router.peer)]
        await mesh.unban(router)
        assert (await mesh.post("/refresh", mesh.refresh_request(router), **bearer(credential))).status_code == 200
        assert await banned_on_info(mesh) == []


async def test_a_banned_router_leaves_the_list_at_once(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as mesh:
        router, credential = await mesh.admitted("router")
        await mesh.post("/routers/lease", mesh.lease_request(router, credential))
        assert (await mesh.admin("GET", "/routers")).json()["routers"] != []
        await mesh.ban(router)
        assert (await mesh.admin("GET", "/routers")).json()["routers"] == []


async def test_a_banned_peer_does_not_enroll_again(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as mesh:
        identity, _ = await mesh.admitted()
        request = mesh.enroll_request(identity, await mesh.plane.create_token("node"))
        await mesh.ban(identity)
        answer = await mesh.enroll(request)
        assert (answer.status, answer.error_message) == (EnrollmentStatus.REJECTED, "the peer is banned")
        assert (await mesh.status(identity)).status_code == 401
        await mesh.unban(identity)
        assert (await mesh.enroll(request)).status is EnrollmentStatus.APPROVED


async def test_a_resend_is_not_answered_to_the_banned(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as mesh:
        identity = Identity.generate()
        request = mesh.enroll_request(identity, await mesh.plane.create_token("node"))
        assert (await mesh.enroll(request)).biscuit_token
        await mesh.ban(identity)
        assert not (await mesh.enroll(request)).biscuit_token


async def test_revoke_bans_the_identity_not_the_spelling(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as mesh:
        identity, credential = await mesh.admitted()
        for spelt in (cid_spelling(identity), identity.peer.dns_label):
            await mesh.ban(identity, spelt)
            assert await banned_on_info(mesh) == [str(identity.peer)]
            mesh.clock.now += 1
            refused = await mesh.post("/refresh", mesh.refresh_request(identity), **bearer(credential))
            assert refused.status_code == 403
            await mesh.unban(identity)


async def test_who_was_never_here_can_be_banned(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as mesh:
        stranger = Identity.generate()
        await mesh.ban(stranger)
        request = mesh.enroll_request(stranger, await mesh.plane.create_token("node"), peer_id=cid_spelling(stranger))
        assert (await mesh.enroll(request)).error_message == "the peer is banned"
        refused = await mesh.admin("POST", "/revoke", json={"peer_id": "nobody"})
        assert (refused.status_code, refused.text) == (400, "peer_id is not a peer ID\n")


async def test_bootstrap_token_owner_propagates_to_node(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as mesh:
        identity, token = Identity.generate(), await owned_token(mesh)
        await mesh.enroll(mesh.enroll_request(identity, token))
        (node,) = (await mesh.admin("GET", "/nodes")).json()["nodes"]
        assert (node["peer_id"], node["owner"], node["enrolled_by"]) == (str(identity.peer), ALICE, "bootstrap")
        (listed,) = (await mesh.admin("GET", "/bootstrap-tokens")).json()["bootstrap_tokens"]
        assert listed["owner"] == ALICE


async def test_a_ban_reaches_all_that_the_owner_has(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as mesh:
        token = await owned_token(mesh)
        mine = [Identity.generate() for _ in range(3)]
        for identity in mine:
            await mesh.enroll(mesh.enroll_request(identity, token))
        other, _ = await mesh.admitted()
        await mesh.ban(mine[1])
        assert await banned_on_info(mesh) == sorted(str(identity.peer) for identity in mine)
        answer = await mesh.enroll(mesh.enroll_request(Identity.generate(), token))
        assert answer.error_message == "the owner of the bootstrap token is banned"
        assert not {node["peer_id"]: node["banned"] for node in await nodes(mesh)}[str(other.peer)]
        await mesh.unban(mine[2])  # of any of them: it is the owner's
        assert await banned_on_info(mesh) == [str(mine[1].peer)]


async def nodes(mesh: Harness, after: str = "") -> list[dict[str, object]]:
    found: list[dict[str, object]] = (await mesh.admin("GET", f"/nodes?after={after}")).json()["nodes"]
    return found


async def test_a_pending_enrollment_of_a_banned_owner_is_not_approved(tmp_path: Path) -> None:
    async with open_harness(tmp_path, auto_approve_enrollment=False) as mesh:
        identity, token = Identity.generate(), await owned_token(mesh)
        await mesh.enroll(mesh.enroll_request(identity, token))
        await mesh.ban(identity)
        assert (await mesh.admin("POST", "/enrollments/1/approve")).status_code == 403
        await mesh.unban(identity)
        await mesh.plane.store.access.ban(identity.peer, mesh.clock.now)
        assert (await mesh.admin("POST", "/enrollments/1/approve")).status_code == 403


async def test_nodes_are_listed_a_page_at_a_time(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as mesh:
        peers = sorted([str((await mesh.admitted(labels={"n": str(n)}))[0].peer) for n in range(3)])
        found = await nodes(mesh)
        assert [node["peer_id"] for node in found] == peers
        assert {key: found[0][key] for key in ("role", "banned", "owner", "autonomous_recovery")} == {
            "role": "mesh:role:node",
            "banned": False,
            "owner": None,
            "autonomous_recovery": False,
        }
        assert [node["peer_id"] for node in await nodes(mesh, after=peers[0])] == peers[1:]
        assert (await mesh.admin("GET", "/nodes?after=x")).status_code == 400


async def test_recovery_by_itself_is_for_nodes_that_may(tmp_path: Path) -> None:
    """A node that was away for longer than its credential lasts: the last one issued, and its key, are enough."""
    async with open_harness(tmp_path, biscuit_ttl=100) as mesh:
        identity, credential = await mesh.admitted()
        path = f"/nodes/{identity.peer}/autonomous-recovery"
        mesh.clock.now += 101
        request = mesh.refresh_request(identity)
        assert (await mesh.post("/refresh", request, **bearer(credential))).status_code == 401
        assert (await mesh.admin("POST", path, json={"enabled": True})).status_code == 204
        assert (await mesh.post("/refresh", request, **bearer(credential + b"x"))).status_code == 401
        assert (await mesh.post("/refresh", request, **bearer(credential))).status_code == 200
        mesh.clock.now += 101
        assert (await mesh.post("/refresh", mesh.refresh_request(identity), **bearer(credential))).status_code == 401
        for body, status in (({"enabled": 1}, 400), ({}, 400), ({"enable": True}, 400), ({"enabled": False}, 204)):
            assert (await mesh.admin("POST", path, json=body)).status_code == status
        stranger = f"/nodes/{Identity.generate().peer}/autonomous-recovery"
        assert (await mesh.admin("POST", stranger, json={"enabled": True})).status_code == 404


async def test_a_token_may_say_that_its_nodes_recover(tmp_path: Path) -> None:
    async with open_harness(tmp_path, biscuit_ttl=100) as mesh:
        sent = {"role": "node", "max_usages": 1, "ttl": 60, "autonomous_recovery": True}
        token = (await mesh.admin("POST", "/bootstrap-tokens", json=sent)).json()["token"]
        identity = Identity.generate()
        credential = (await mesh.enroll(mesh.enroll_request(identity, token))).biscuit_token
        mesh.clock.now += 101
        assert (await mesh.post("/refresh", mesh.refresh_request(identity), **bearer(credential))).status_code == 200


async def test_an_owner_stays_with_the_first_token(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as mesh:
        identity, credential = await mesh.admitted()
        other = TokenOwner(ALICE)
        value, _ = await create_token(mesh.plane.store, mesh.clock, role="node", max_usages=1, ttl=60, owner=other)
        mesh.clock.now += 1
        assert (await mesh.enroll(mesh.enroll_request(identity, value))).biscuit_token != credential
        (node,) = await nodes(mesh)
        assert node["owner"] is None
