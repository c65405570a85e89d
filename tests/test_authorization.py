"""A call is allowed by what the credential and the mesh's rules say, and by nothing else."""

import pytest
from biscuit_auth import AuthorizerBuilder

from agentmesh import authorization
from agentmesh.authorization import Authorizer, Call, MeshRules, identity
from agentmesh.credentials import ROLE_NODE, ROLE_ROUTER, Credential, SigningKey, TrustedKeys, mint, verify
from agentmesh.errors import CredentialError, RemoteProtocolError
from agentmesh.facts import Fact
from agentmesh.types import PeerId

KEY = SigningKey.generate()
TRUSTED = TrustedKeys(frozenset({KEY.public}))
CALLER, PROVIDER = (PeerId.from_ed25519(bytes([n]) * 32) for n in (1, 2))
CALL = Call("mcp", "calc")
SERVICE, EVERYWHERE = Fact("granted_service_exact", ("dev", "mcp", "calc")), Fact("granted_target_all_facts", ("dev",))


def shown(*facts: Fact, peer: PeerId = CALLER, role: str = ROLE_NODE) -> Credential:
    token = mint(KEY, peer=peer, role=role, labels={"site": "a"}, expires_at=2e9, facts=facts)
    return verify(token, peer=peer, trusted=TRUSTED, now=1e9)


def allowed(caller: Credential, *rules: str, call: Call = CALL, provider: Credential | None = None) -> bool:
    try:
        Authorizer(MeshRules(rules)).check(caller, provider or shown(peer=PROVIDER), call, TRUSTED)
    except CredentialError as exc:
        assert exc.reason == "denied"
        return False
    return True


def test_a_role_grants_the_service_and_the_target() -> None:
    assert allowed(shown(SERVICE, EVERYWHERE))
    assert not allowed(shown(SERVICE))
    assert not allowed(shown(EVERYWHERE))
    assert not allowed(shown())


def test_grants_of_two_roles_do_not_mix() -> None:
    assert not allowed(shown(SERVICE, Fact("granted_target_all_facts", ("ops",))))


def test_a_router_reaches_every_target_with_the_services_it_is_granted() -> None:
    assert allowed(shown(SERVICE, role=ROLE_ROUTER))
    assert not allowed(shown(role=ROLE_ROUTER))


def test_the_target_is_the_providers_own_credential() -> None:
    caller = shown(SERVICE, Fact("granted_target_exact", ("dev", "group", "ci")))
    assert allowed(caller, provider=shown(Fact("group", ("ci",)), peer=PROVIDER))
    assert not allowed(caller, provider=shown(Fact("group", ("cd",)), peer=PROVIDER))
    assert not allowed(shown(SERVICE, Fact("group", ("ci",)), Fact("granted_target_exact", ("dev", "group", "ci"))))


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (Call("mcp", "calc", "GET", "/a"), True),
        (Call("mcp", "calc", "GET", "/b/c"), True),
        (Call("mcp", "calc", "POST", "/a"), False),
        (Call("mcp", "calc", "GET", "/c"), False),
        (Call("mcp", "other", "GET", "/a"), False),
        (Call("mcp", "calc", "GET", None), False),
        (Call("mcp", "calc"), False),
    ],
)
def test_http_narrowing(call: Call, expected: bool) -> None:
    narrowed = (
        Fact("http_granted_service_exact", ("dev", "mcp", "calc", "dev#0")),
        Fact("granted_method", ("dev#0", frozenset({"GET", "HEAD"}))),
        Fact("granted_path_exact", ("dev#0", frozenset({"/a"}))),
        Fact("granted_path_prefix", ("dev#0", "/b/")),
    )
    assert allowed(shown(EVERYWHERE, *narrowed), call=call) == expected


def test_entries_of_narrowing_do_not_mix() -> None:
    """GET /a and POST /b are no GET /b."""
    narrowed = [Fact("http_granted_service_exact", ("dev", "mcp", "calc", f"dev#{n}")) for n in range(2)]
    narrowed += [Fact("granted_method", (f"dev#{n}", frozenset({m}))) for n, m in enumerate(("GET", "POST"))]
    narrowed += [Fact("granted_path_exact", (f"dev#{n}", frozenset({p}))) for n, p in enumerate(("/a", "/b"))]
    caller = shown(EVERYWHERE, *narrowed)
    assert [allowed(caller, call=Call("mcp", "calc", *of)) for of in (("GET", "/a"), ("GET", "/b"))] == [True, False]


def test_rules_reach_a_credential_that_was_there_before_them() -> None:
    rules = ['role("dev") <- group("eng")', f'{SERVICE} <- role("dev")', f'{EVERYWHERE} <- role("dev")']
    assert allowed(shown(Fact("group", ("eng",))), *rules)
    assert not allowed(shown(Fact("group", ("sales",))), *rules)
    assert not allowed(shown(Fact("group", ("eng",))), *rules[:2])


def test_other_rules_are_left_to_datalog() -> None:
    rules = [
        'granted_service_all("dev", $t) <- label("site", "a"), service($t, $n)',
        f'{EVERYWHERE} <- label("site", "a")',
    ]
    assert allowed(shown(), *rules)
    assert not allowed(shown(), *[rule.replace('"a"', '"b"') for rule in rules])


@pytest.mark.parametrize(
    "rule",
    [
        "nonsense",
        'a($x) <- b("y")',
        "allow if true",
        'role("dev") <- label("site", "a")',
        'client_peer_id("x") <- role("mesh:role:node")',
        'user("root") <- group("a"), group("b")',
        'label("site", "b") <- label("site", "a")',
    ],
)
def test_rules_that_are_none_or_make_somebody_somebody_else(rule: str) -> None:
    with pytest.raises(RemoteProtocolError):
        MeshRules([f'{SERVICE} <- role("dev")', rule])


def test_rules_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorization, "MAX_RULES", 1)
    with pytest.raises(RemoteProtocolError, match="more than 1 rules"):
        MeshRules(['a("b") <- role("c")', 'a("b") <- role("d")'])


def test_decisions_are_remembered_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    built = list[Credential]()
    make = MeshRules.builder

    def counted(rules: MeshRules, credential: Credential) -> AuthorizerBuilder:
        built.append(credential)
        return make(rules, credential)

    monkeypatch.setattr(MeshRules, "builder", counted)
    monkeypatch.setattr(authorization, "MAX_DECISIONS", 2)
    rules = MeshRules(['a("b") <- role("c")'])
    authorizer, caller, provider = Authorizer(rules), shown(SERVICE, EVERYWHERE), shown(peer=PROVIDER)
    for _ in range(3):
        authorizer.check(caller, provider, CALL, TRUSTED)
    assert len(built) == 1
    for name in ("a", "b", "a"):
        with pytest.raises(CredentialError, match=f"no role of {CALLER} grants this call of mcp://{name} here"):
            authorizer.check(caller, provider, Call("mcp", name), TRUSTED)
    assert len(built) == 3
    authorizer.check(caller, provider, CALL, TRUSTED)  # it was forgotten meanwhile
    assert len(built) == 4


def test_a_service_that_is_granted_whole_is_one_decision_whatever_is_asked_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = list[Call]()
    decide = Authorizer._decide  # pyright: ignore[reportPrivateUsage]

    def counted(self: Authorizer, caller: Credential, provider: Credential, call: Call, trusted: TrustedKeys) -> bool:
        made.append(call)
        return decide(self, caller, provider, call, trusted)

    monkeypatch.setattr(Authorizer, "_decide", counted)
    authorizer, caller, provider = Authorizer(MeshRules()), shown(SERVICE, EVERYWHERE), shown(peer=PROVIDER)
    for n in range(10):
        authorizer.check(caller, provider, Call("mcp", "calc", "GET", f"/{n}"), TRUSTED)
    assert made == [CALL]


def test_a_mesh_without_a_policy_says_so() -> None:
    with pytest.raises(CredentialError, match="has no policy"):
        Authorizer(MeshRules()).check(shown(), shown(peer=PROVIDER), CALL, TRUSTED)


def test_a_rule_may_ask_who_calls() -> None:
    rules = [f'{SERVICE} <- connection_peer_id("{CALLER}")', f"{EVERYWHERE} <- node($x)"]
    assert allowed(shown(), *rules)
    assert not allowed(shown(peer=PeerId.from_ed25519(bytes(32))), *rules)


def test_identity_is_what_targets_are_named_by() -> None:
    credential = shown(Fact("group", ("b",)), Fact("group", ("a",)), Fact("email", ("x@y",)), Fact("role", ("dev",)))
    assert set(identity(credential)) == {("node", str(CALLER)), ("group", "a"), ("group", "b"), ("email", "x@y")}
    assert credential.roles == {"dev"}
