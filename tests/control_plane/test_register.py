"""Admission on an identity provider's word: a real provider on loopback, and the whole app."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import httpx
import pytest
from starlette.responses import Response

from agentmesh.control_plane.oidc.trust import Trust, TrustedIssuer
from agentmesh.control_plane.policy.document import parse_policy
from agentmesh.credentials import Credential
from agentmesh.identity import Identity
from agentmesh.wire.messages.mesh.v1 import ControlPlaneInfoResponse, EnrollResponse, TokenRefreshResponse
from tests.control_plane.oidc.provider import IdentityProvider, open_provider
from tests.control_plane.plane import Clock, Harness, bearer, open_harness
from tests.control_plane.test_enroll import cid_spelling

HOUR = 3600.0
POLICY: dict[str, Any] = {
    "roles": [
        {"name": "mesh:role:node", "allowed_labels": ["site=*"]},
        {"name": "mesh:role:router"},
        {"name": "dev", "allowed_services": ["mcp://*"], "allowed_targets": ["group:eng"]},
    ],
    "bindings": [
        {"role": "mesh:role:node", "members": ["group:eng", "user:bob", "email:*@x.y", "idp_role:lead", "user:ci"]},
        {"role": "mesh:role:router", "members": ["group:infra"]},
        {"role": "dev", "members": ["group:eng"]},
    ],
}


@attrs.frozen
class Site:
    """A control plane that believes a provider."""

    mesh: Harness
    provider: IdentityProvider

    async def register(self, identity: Identity, token: str, **changes: Any) -> httpx.Response:
        return await self.mesh.post("/register", self.mesh.register_request(identity, token, **changes))

    async def registered(self, identity: Identity, token: str, **changes: Any) -> Credential:
        response = await self.register(identity, token, **changes)
        assert response.status_code == 200, response.text
        answer = EnrollResponse.parse(response.content)
        credential = self.mesh.plane.authority.verify(answer.biscuit_token, identity.peer)
        assert answer.expire_time is not None
        assert answer.expire_time.timestamp() == credential.expires_at
        return credential

    async def refresh(self, identity: Identity, credential: Credential, **changes: Any) -> httpx.Response:
        self.mesh.clock.now += 1
        request = self.mesh.refresh_request(identity, **changes)
        return await self.mesh.post("/refresh", request, **bearer(credential.token))

    async def refreshed(self, identity: Identity, credential: Credential, **changes: Any) -> Credential:
        response = await self.refresh(identity, credential, **changes)
        assert response.status_code == 200, response.text
        token = TokenRefreshResponse.parse(response.content).biscuit_token
        return self.mesh.plane.authority.verify(token, identity.peer)


@asynccontextmanager
async def open_site(folder: Path, **settings: Any) -> AsyncGenerator[Site]:
    async with open_provider(clock := Clock()) as provider:
        trust = Trust(
            issuers=(TrustedIssuer(provider.issuer, **settings.pop("issuer", {})),), **settings.pop("trust", {})
        )
        settings = {"policy": parse_policy(POLICY), "trust": trust, **settings}
        async with open_harness(folder, clock, **settings) as mesh:
            yield Site(mesh, provider)


async def test_a_person_registers_a_node(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        identity = Identity.generate()
        token = site.provider.token(groups=["eng"], email="a@x.y", email_verified=True)
        credential = await site.registered(identity, token, labels={"site": "a"})
        assert (credential.role, set(credential.roles), dict(credential.labels)) == (
            "mesh:role:node",
            {"dev"},
            {"site": "a"},
        )
        assert credential.claims == {
            "user": frozenset({"alice"}),
            "email": frozenset({"a@x.y"}),
            "group": frozenset({"eng"}),
        }
        (node,) = (await site.mesh.admin("GET", "/nodes")).json()["nodes"]
        assert (node["enrolled_by"], node["owner"]) == ("oidc", f"{site.provider.issuer}|alice")
        again = await site.register(identity, token, labels={"site": "a"})  # sent again
        assert EnrollResponse.parse(again.content).biscuit_token == credential.token


async def test_policy_permutations(tmp_path: Path) -> None:
    """The role is bound by user, email, group, the provider's role or node; of all others it is refused."""
    named = Identity.generate()
    policy = {**POLICY, "bindings": [*POLICY["bindings"]]}
    policy["bindings"].append({"role": "mesh:role:node", "members": [f"node:{named.peer.dns_label}"]})
    async with open_site(tmp_path, policy=parse_policy(policy)) as site:
        bound: list[tuple[str, dict[str, Any]]] = [
            ("bob", {}),
            ("eve", {"email": "eve@x.y", "email_verified": True}),
            ("eve", {"groups": ["sales", "eng"]}),
            ("eve", {"roles": ["lead"]}),
        ]
        for sub, claims in bound:
            await site.registered(Identity.generate(), site.provider.token(sub, **claims))
        await site.registered(named, site.provider.token("eve"))
        for claims in ({}, {"email": "eve@x.y"}, {"groups": ["engineers"]}, {"groups": ["bob"]}, {"roles": ["eng"]}):
            refused = await site.register(Identity.generate(), site.provider.token("eve", **claims))
            text = "the policy does not bind mesh:role:node to this identity\n"
            assert (refused.status_code, refused.text) == (403, text), claims


async def test_resolve_roles_and_role_impersonation_protection(tmp_path: Path) -> None:
    """What a provider calls its roles makes nobody a router; a binding does."""
    async with open_site(tmp_path) as site:
        claims: dict[str, Any] = {"groups": ["eng", "mesh:role:router"], "roles": ["mesh:role:router", "dev"]}
        token = site.provider.token("mesh:role:router", **claims)
        refused = await site.register(Identity.generate(), token, requested_role="router")
        assert (refused.status_code, "does not bind mesh:role:router" in refused.text) == (403, True)
        credential = await site.registered(Identity.generate(), token)
        assert (credential.role, set(credential.roles)) == ("mesh:role:node", {"dev"})
        assert credential.claims["idp_role"] == {"mesh:role:router", "dev"}
        infra = site.provider.token("carol", groups=["infra"])
        assert (await site.registered(Identity.generate(), infra, requested_role="router")).role == "mesh:role:router"
        assert (await site.register(Identity.generate(), infra)).status_code == 403
        both = Identity.generate()
        await site.registered(both, site.provider.token(groups=["eng"]))
        refused = await site.register(both, infra, requested_role="router")
        assert (refused.status_code, refused.text) == (403, "the peer is enrolled as mesh:role:node\n")


async def test_auth_denial_paths(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        identity, good = Identity.generate(), site.provider.token(groups=["eng"])
        other = Identity.generate()
        for response, status, text in (
            (await site.register(identity, "nonsense"), 401, "not a token"),
            (await site.register(identity, ""), 401, "not a token"),
            (await site.register(identity, site.provider.token(aud="x")), 401, "for another audience"),
            (await site.register(identity, site.provider.token(iss="https://x.y")), 401, "issuer that is not trusted"),
            (await site.register(identity, good, challenge_signature=b""), 401, "the challenge is not signed"),
            (await site.register(identity, good, challenge_unix_ms=5), 401, "stale or invalid challenge timestamp"),
            (await site.register(identity, good, public_key=other.public_key_bytes), 400, "not that of public_key"),
            (await site.register(identity, good, peer_id="x"), 400, "peer_id is not a peer ID"),
            (await site.register(identity, good, requested_role="king"), 400, "there is no such role"),
            (await site.register(identity, good, labels={"a b": "c"}), 400, "label key 'a b'"),
            (await site.register(identity, good, labels={"zone": "a", "area": "b"}), 403, "the label area=b"),
        ):
            assert (response.status_code, text in response.text) == (status, True), response.text
        site.mesh.clock.now += HOUR + 61
        assert "has expired" in (await site.register(identity, good)).text
        assert (await site.mesh.admin("GET", "/nodes")).json()["nodes"] == []


async def test_a_provider_that_is_away_is_said_to_be(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        site.provider.documents["/jwks"] = Response(status_code=500)
        response = await site.register(Identity.generate(), site.provider.token(groups=["eng"]))
        assert (response.status_code, response.headers["retry-after"]) == (503, "5")
        assert response.text == "the identity provider does not answer\n"


async def test_a_credential_lasts_no_longer_than_the_word_it_rests_on(tmp_path: Path) -> None:
    async with open_site(tmp_path, oidc_session_ttl=30 * HOUR) as site:
        identity, began = Identity.generate(), site.mesh.clock.now
        first = await site.registered(identity, site.provider.token(groups=["eng"]))
        assert first.expires_at == began + HOUR  # the token's
        second = await site.refreshed(identity, first)
        assert second.expires_at == began + 1 + 24 * HOUR  # a credential's own
        site.mesh.clock.now = began + 20 * HOUR
        third = await site.refreshed(identity, second)
        assert third.expires_at == began + 30 * HOUR  # the session's
        fresh = site.provider.token(groups=["eng"], exp=int(began + 90 * HOUR))
        fourth = await site.refreshed(identity, third, jwt=fresh)
        assert fourth.expires_at == site.mesh.clock.now + 24 * HOUR  # the session has begun anew


async def test_a_session_that_is_over_is_not_refreshed_by_any_way(tmp_path: Path) -> None:
    async with open_site(tmp_path, oidc_session_ttl=HOUR) as site:
        identity = Identity.generate()
        credential = await site.registered(identity, site.provider.token(groups=["eng"]))
        await site.mesh.admin("POST", f"/nodes/{identity.peer}/autonomous-recovery", json={"enabled": True})
        site.mesh.clock.now += HOUR
        refused = await site.refresh(identity, credential)
        text = "the session with the identity provider is over; register again\n"
        assert (refused.status_code, refused.text) == (401, text)


async def test_a_refresh_goes_by_the_bindings_of_now(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        identity = Identity.generate()
        credential = await site.registered(identity, site.provider.token(groups=["eng"]))
        await site.mesh.put_policy({"roles": POLICY["roles"]})
        refused = await site.refresh(identity, credential)
        text = "the policy does not bind mesh:role:node to this peer any more\n"
        assert (refused.status_code, refused.text) == (403, text)
        await site.mesh.put_policy(POLICY)
        moved = site.provider.token(groups=["infra", "sales"], roles=["lead"])
        renewed = await site.refreshed(identity, credential, jwt=moved)
        assert (set(renewed.roles), set(renewed.claims["idp_role"])) == (set(), {"lead"})
        for token, status in ((site.provider.token("mallory", groups=["eng"]), 403), ("nonsense", 401)):
            assert (await site.refresh(identity, renewed, jwt=token)).status_code == status
        by_token, shown = await site.mesh.admitted()
        credential = site.mesh.plane.authority.verify(shown, by_token.peer)
        assert (await site.refresh(by_token, credential, jwt=moved)).status_code == 403


async def test_programs_register_for_two_days(tmp_path: Path) -> None:
    issuer = {"workload": True, "email_suffix": "@project.example"}
    async with open_site(tmp_path, issuer=issuer, biscuit_ttl=90 * HOUR) as site:
        identity, began = Identity.generate(), site.mesh.clock.now
        claims = {"email": "ci@project.example", "email_verified": True, "exp": int(began + 99 * HOUR)}
        credential = await site.registered(identity, site.provider.token("ci", **claims))
        assert credential.expires_at == began + 48 * HOUR
        (node,) = (await site.mesh.admin("GET", "/nodes")).json()["nodes"]
        assert node["enrolled_by"] == "workload"
        assert (await site.register(Identity.generate(), site.provider.token("ci"))).status_code == 401


async def test_a_token_may_have_to_name_the_peer(tmp_path: Path) -> None:
    async with open_site(tmp_path, trust={"require_nonce": True}) as site:
        identity = Identity.generate()
        await site.registered(identity, site.provider.token(groups=["eng"], nonce=str(identity.peer)))
        stolen = await site.register(Identity.generate(), site.provider.token(groups=["eng"], nonce=str(identity.peer)))
        assert (stolen.status_code, stolen.text) == (401, "the token's nonce is not the peer ID\n")


async def test_banned_node_cannot_register_under_an_alias(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        identity, other = Identity.generate(), Identity.generate()
        await site.registered(identity, site.provider.token(groups=["eng"]))
        await site.registered(other, site.provider.token("bob"))
        await site.mesh.ban(identity)
        site.mesh.clock.now += 1
        for spelt in (cid_spelling(identity), identity.peer.dns_label, str(identity.peer)):
            refused = await site.register(identity, site.provider.token("bob"), peer_id=spelt)
            assert (refused.status_code, refused.text) == (403, "the peer is banned\n")
        refused = await site.register(Identity.generate(), site.provider.token(groups=["eng"]))  # the same person
        assert refused.status_code == 403
        await site.registered(other, site.provider.token("bob"))


async def test_registration_passes_the_bucket_of_enrollment(tmp_path: Path) -> None:
    async with open_site(tmp_path, enroll_rate=0.001, enroll_burst=1) as site:
        token = site.provider.token(groups=["eng"])
        assert (await site.register(Identity.generate(), token)).status_code == 200
        refused = await site.register(Identity.generate(), token)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "2")


async def test_info_says_how_to_log_in(tmp_path: Path) -> None:
    async with open_site(tmp_path, oidc_client_id="agentmesh-cli", trust={"audiences": ("a", "b")}) as site:
        info = ControlPlaneInfoResponse.parse((await site.mesh.http.get("/info")).content)
        assert (info.oidc_issuer, info.client_id, info.audience) == (site.provider.issuer, "agentmesh-cli", "a")


@pytest.mark.parametrize("workload", [False, True])
async def test_only_people_log_in(tmp_path: Path, workload: bool) -> None:
    async with open_site(tmp_path, issuer={"workload": workload}) as site:
        headers = {"Authorization": f"Bearer {site.provider.token('ci')}"}
        assert (await site.mesh.http.get("/user/status", headers=headers)).status_code == (403 if workload else 200)
        info = ControlPlaneInfoResponse.parse((await site.mesh.http.get("/info")).content)
        assert info.oidc_issuer == ("" if workload else site.provider.issuer)
