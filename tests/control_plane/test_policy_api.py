"""The policy over HTTP: written strictly, served to members, in the credentials that are issued under it."""

from pathlib import Path
from typing import Any

import pytest

from agentmesh.authorization import Authorizer, Call, MeshRules
from agentmesh.control_plane.policy.compile import rules
from agentmesh.control_plane.policy.document import parse_policy, policy_document
from agentmesh.control_plane.policy.open import OPEN_POLICY
from agentmesh.credentials import Credential
from agentmesh.errors import CredentialError
from agentmesh.identity import Identity
from agentmesh.wire.messages.mesh.v1 import (
    HttpGrant,
    PolicyBinding,
    PolicyConfig,
    PolicyConfigGetResponse,
    PolicyRole,
    RevocationsResponse,
    TokenRefreshResponse,
)
from tests.control_plane.plane import PROTOBUF, Harness, bearer, open_harness

DOCUMENT: dict[str, Any] = {
    "roles": [
        {
            "name": "mesh:role:node",
            "allowed_services": ["mcp://calc"],
            "allowed_targets": ["*"],
            "allowed_labels": ["site=*"],
            "http": [{"service": "mcp://calc", "methods": ["POST"]}],
        },
        {"name": "mesh:role:router", "allowed_labels": ["zone=a"]},
    ],
    "bindings": [{"role": "mesh:role:node", "members": ["group:eng"]}],
}


async def test_a_policy_is_written_and_read_in_json(tmp_path: Path) -> None:
    async with open_harness(tmp_path, policy=None) as mesh:
        empty = await mesh.admin("GET", "/policy", headers={"Accept": "application/json"})
        assert (empty.status_code, empty.json()) == (200, {})
        for method in ("PUT", "POST"):
            written = await mesh.as_admin(method, "/policies", json=DOCUMENT)
            assert (written.status_code, written.json()) == (200, {"success": True})
        read = await mesh.admin("GET", "/policy", headers={"Accept": "application/json"})
        assert read.json() == DOCUMENT


async def test_a_policy_is_written_and_read_in_protobuf(tmp_path: Path) -> None:
    role = PolicyRole(name="dev", allowed_services=["http://x"], http=[HttpGrant(service="http://x", paths=["/a"])])
    policy = PolicyConfig(roles=[role], bindings=[PolicyBinding(role="dev", members=["group:eng"])])
    async with open_harness(tmp_path, policy=None) as mesh:
        written = await mesh.as_admin("PUT", "/policies", content=bytes(policy), headers=PROTOBUF)
        assert (written.status_code, written.content) == (200, b"\x08\x01")
        assert PolicyConfig.parse((await mesh.admin("GET", "/policy")).content) == policy


FAULTY: list[tuple[object, str]] = [
    ({"role": []}, "the body is no PolicyConfig: there is no field 'role'; the fields are roles, bindings"),
    ({"roles": [{"name": "a", "services": []}]}, "roles[0]: there is no field 'services'"),
    ({"egress": []}, "there is no field 'egress'"),
    ({"roles": [{"name": "a", "allowed_services": ["calc"]}]}, "roles[0].allowed_services[0]: a service is"),
    ({"roles": [{"allowed_services": []}]}, "roles[0].name: a text is needed"),
    ({"bindings": [{"role": "dev", "members": ["group:a"]}]}, "bindings[0].role: there is no such role"),
    (
        {"roles": [{"name": "a", "allowed_services": [f"mcp://s{n}.*" for n in range(701)]}]},
        "roles[0]: 701 facts, and a credential has room for 700",
    ),
]


async def test_a_policy_is_taken_whole_or_not_at_all(tmp_path: Path) -> None:
    async with open_harness(tmp_path, policy=None) as mesh:
        await mesh.put_policy(DOCUMENT)
        for body, text in FAULTY:
            refused = await mesh.put_policy(body)
            assert (refused.status_code, text in refused.text) == (400, True), refused.text
        assert policy_document(await mesh.plane.store.access.policy()) == DOCUMENT


async def test_the_first_policy_is_a_setting_that_a_later_one_outlives(tmp_path: Path) -> None:
    async with open_harness(tmp_path, policy=OPEN_POLICY) as mesh:
        assert await mesh.plane.store.access.policy() == OPEN_POLICY
        await mesh.put_policy(DOCUMENT)
    async with open_harness(tmp_path, policy=OPEN_POLICY) as mesh:
        assert policy_document(await mesh.plane.store.access.policy()) == DOCUMENT


def allowed(mesh: Harness, caller: Credential, provider: Credential, call: Call, *served: str) -> bool:
    try:
        Authorizer(MeshRules(served)).check(caller, provider, call, mesh.plane.authority.trusted)
    except CredentialError:
        return False
    return True


async def test_what_is_granted_is_in_the_credential_and_in_the_rules(tmp_path: Path) -> None:
    async with open_harness(tmp_path, policy=parse_policy(DOCUMENT)) as mesh:
        (caller, shown), (provider, own) = await mesh.admitted(), await mesh.admitted()
        asking = mesh.plane.authority.verify(shown, caller.peer)
        serving = mesh.plane.authority.verify(own, provider.peer)
        post, get = Call("mcp", "calc", "POST", "/mcp"), Call("mcp", "calc", "GET", "/mcp")
        assert [allowed(mesh, asking, serving, call) for call in (post, get)] == [True, False]

        await mesh.put_policy(
            {"roles": [{"name": "mesh:role:node", "allowed_services": ["*"], "allowed_targets": ["*"]}]}
        )
        served = PolicyConfigGetResponse.parse((await mesh.member(provider, own, "/policies")).content).datalog_rules
        assert served == rules(await mesh.plane.store.access.policy())
        assert allowed(mesh, asking, serving, get, *served)

        await mesh.put_policy({})
        renewed = await mesh.post("/refresh", mesh.refresh_request(caller), **bearer(shown))
        token = TokenRefreshResponse.parse(renewed.content).biscuit_token
        assert not allowed(mesh, mesh.plane.authority.verify(token, caller.peer), serving, post)


@pytest.mark.parametrize("path", ["/policies", "/revocations"])
async def test_members_and_only_they_are_served(tmp_path: Path, path: str) -> None:
    async with open_harness(tmp_path) as mesh:
        identity, credential = await mesh.admitted()
        assert (await mesh.member(identity, credential, path)).status_code == 200
        assert (await mesh.member(identity, credential, path, Accept="application/json")).json() is not None
        other = Identity.generate()
        for response, text in (
            (await mesh.http.get(path), "a credential is needed"),
            (await mesh.http.get(path, headers=bearer(credential)), "a proof of the key is needed"),
            (await mesh.member(identity, b"nonsense", path), "the credential admits nobody: malformed"),
            (await mesh.member(other, credential, path), "the challenge is not signed"),
            (await mesh.member(identity, credential, path, Authorization="Bearer ?"), "the credential is no base64"),
            (await mesh.member(identity, credential, path, **{"X-Mesh-Challenge-Ts": "1" * 400}), "a proof of the key"),
            (await mesh.member(identity, credential, path, **{"X-Mesh-Challenge-Ts": "1000"}), "stale or invalid"),
        ):
            assert (response.status_code, text in response.text) == (401, True), response.text
        mesh.clock.now += 301
        stale = mesh.challenge(identity, path.removeprefix("/"))
        mesh.clock.now += 301
        assert (await mesh.http.get(path, headers={**bearer(credential), **stale})).status_code == 401


async def test_revocations_name_who_is_banned_and_are_not_for_the_banned(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as mesh:
        (identity, credential), (banned, other) = await mesh.admitted(), await mesh.admitted()
        await mesh.ban(banned)
        answer = RevocationsResponse.parse((await mesh.member(identity, credential, "/revocations")).content)
        assert answer.banned_peer_ids == [str(banned.peer)]
        assert (await mesh.member(banned, other, "/revocations")).status_code == 403
        assert (await mesh.member(banned, other, "/policies")).status_code == 403


async def test_labels_are_those_that_the_policy_allows(tmp_path: Path) -> None:
    async with open_harness(tmp_path, policy=parse_policy(DOCUMENT)) as mesh:
        await mesh.admitted(labels={"site": "b"})
        await mesh.admitted("router", labels={"zone": "a"})
        for role, labels, refused in (
            ("node", {"zone": "a", "site": "b", "area": "c"}, "area=c"),
            ("router", {"zone": "b"}, "zone=b"),
        ):
            request = mesh.enroll_request(Identity.generate(), await mesh.plane.create_token(role), labels=labels)
            for _ in range(3):
                assert (await mesh.enroll(request)).error_message == f"the policy does not allow the label {refused}"


async def test_a_label_that_is_not_allowed_any_more_is_dropped_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_harness(tmp_path) as mesh:
        identity, credential = await mesh.admitted("router", labels={"zone": "a", "site": "b"})
        await mesh.post("/routers/lease", mesh.lease_request(identity, credential))
        await mesh.put_policy(DOCUMENT)
        mesh.clock.now += 1
        renewed = await mesh.post("/refresh", mesh.refresh_request(identity), **bearer(credential))
        token = TokenRefreshResponse.parse(renewed.content).biscuit_token
        assert dict(mesh.plane.authority.verify(token, identity.peer).labels) == {"zone": "a"}
        (warning,) = [record for record in caplog.records if "does not allow the label any more" in record.message]
        assert (vars(warning)["label"], vars(warning)["peer"]) == ("site=b", identity.peer)
        await mesh.post("/routers/lease", mesh.lease_request(identity, token))
        (router,) = (await mesh.admin("GET", "/routers")).json()["routers"]
        assert router["labels"] == {"zone": "a"}
        mesh.clock.now += 1
        again = await mesh.enroll(mesh.enroll_request(identity, await mesh.plane.create_token("router")))
        assert dict(mesh.plane.authority.verify(again.biscuit_token, identity.peer).labels) == {"zone": "a"}


async def test_approval_goes_by_the_policy_of_then(tmp_path: Path) -> None:
    async with open_harness(tmp_path, auto_approve_enrollment=False) as mesh:
        token = await mesh.plane.create_token("node", max_usages=5)
        await mesh.enroll(mesh.enroll_request(Identity.generate(), token, labels={"zone": "a"}))
        await mesh.put_policy(DOCUMENT)
        refused = await mesh.admin("POST", "/enrollments/1/approve")
        assert (refused.status_code, refused.text) == (403, "the policy does not allow the label zone=a\n")
        await mesh.put_policy(policy_document(OPEN_POLICY))
        assert (await mesh.admin("POST", "/enrollments/1/approve")).status_code == 204


async def test_more_than_a_credential_holds_is_refused_by_name(tmp_path: Path) -> None:
    """Each role fits a credential, two do not."""
    wide = [{"name": n, "allowed_services": [f"mcp://{n}{i}.*" for i in range(600)]} for n in ("a", "b")]
    everybody = [{"role": name, "members": ["mesh:system:authenticated"]} for name in ("a", "b")]
    async with open_harness(tmp_path, auto_approve_enrollment=False) as mesh:
        token = await mesh.plane.create_token("node", max_usages=5)
        await mesh.enroll(mesh.enroll_request(Identity.generate(), token))
        assert (await mesh.put_policy({"roles": wide, "bindings": everybody})).status_code == 200
        text = "the policy gives this peer 1210 facts, and a credential holds 900"
        assert (await mesh.enroll(mesh.enroll_request(Identity.generate(), token))).error_message == text
        refused = await mesh.admin("POST", "/enrollments/1/approve")
        assert (refused.status_code, refused.text) == (403, f"{text}\n")
