"""A policy in Datalog allows what the policy allows: by a credential's facts, by the rules alone, and by both."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentmesh.authorization import Authorizer, Call, MeshRules
from agentmesh.control_plane.policy.compile import MAX_ROLE_FACTS, check_budget, credential_facts, grants, rules
from agentmesh.control_plane.policy.document import parse_policy
from agentmesh.control_plane.policy.errors import PolicyError
from agentmesh.control_plane.policy.model import ADMISSION_ROLES, Claims, Policy
from agentmesh.credentials import ROLE_NODE, Credential, SigningKey, TrustedKeys, mint, verify
from agentmesh.errors import CredentialError
from agentmesh.facts import Fact
from agentmesh.types import PeerId
from tests.control_plane.policy.policies import PEERS, calls, claims, policies

KEY = SigningKey.from_bytes(bytes(32))
TRUSTED = TrustedKeys(frozenset({KEY.public}))
CALLER, PROVIDER = PEERS[0], PEERS[1]


def shown(peer: PeerId, role: str, known: Claims, policy: Policy | None = None) -> Credential:
    """A member's credential; with what the policy grants it, if there is one."""
    facts = [Fact(kind, (value,)) for kind, values in known.items() if kind != "node" for value in sorted(values)]
    facts += credential_facts(policy.roles_of(role, known)) if policy else []
    token = mint(KEY, peer=peer, role=role, labels={}, expires_at=2e9, facts=facts)
    return verify(token, peer=peer, trusted=TRUSTED, now=1e9)


def allowed(caller: Credential, provider: Credential, call: Call, mesh: MeshRules) -> bool:
    try:
        Authorizer(mesh).check(caller, provider, call, TRUSTED)
    except CredentialError as exc:
        assert exc.reason == "denied"
        return False
    return True


@settings(max_examples=150, deadline=None)
@given(policies(), st.sampled_from(ADMISSION_ROLES), claims(CALLER), claims(PROVIDER), calls)
def test_datalog_allows_what_the_policy_allows(
    policy: Policy, role: str, asking: Claims, serving: Claims, call: Call
) -> None:
    expected = policy.allows(role, asking, serving, call)
    provider, mesh = shown(PROVIDER, ROLE_NODE, serving), MeshRules(rules(policy))
    full, bare = shown(CALLER, role, asking, policy), shown(CALLER, role, asking)
    assert [allowed(full, provider, call, MeshRules()), allowed(bare, provider, call, mesh)] == [expected, expected]
    assert allowed(full, provider, call, mesh) == expected


@settings(max_examples=60, deadline=None)
@given(policies(), claims(CALLER), claims(PROVIDER), calls)
def test_two_roles_give_no_more_than_each_by_itself(
    policy: Policy, asking: Claims, serving: Claims, call: Call
) -> None:
    held = policy.roles_of(ROLE_NODE, asking)
    alone = any(role.allows_service(call) and role.allows_target(serving) for role in held)
    assert policy.allows(ROLE_NODE, asking, serving, call) == alone


@settings(max_examples=30, deadline=None)
@given(policies())
def test_compiling_is_deterministic(policy: Policy) -> None:
    again = Policy(policy.roles, policy.bindings)
    assert rules(policy) == rules(again)
    assert credential_facts(policy.roles) == credential_facts(tuple(reversed(policy.roles)))


def test_without_a_policy_nothing_is_allowed() -> None:
    caller, provider = (shown(peer, ROLE_NODE, {"node": frozenset({str(peer)})}) for peer in (CALLER, PROVIDER))
    assert not allowed(caller, provider, Call("mcp", "a"), MeshRules(rules(Policy())))
    assert (rules(Policy()), credential_facts(())) == ([], [])


def texts(*services: str) -> list[str]:
    (role,) = parse_policy({"roles": [{"name": "r", "allowed_services": list(services)}]}).roles
    return [str(fact) for fact in grants(role)]


@pytest.mark.parametrize(
    ("service", "fact"),
    [
        ("mcp://a", 'granted_service_exact("r", "mcp", "a")'),
        ("mcp://a.*", 'granted_service_prefix("r", "mcp", "a.")'),
        ("mcp://*.a", 'granted_service_suffix("r", "mcp", ".a")'),
        ("mcp://*", 'granted_service_all("r", "mcp")'),
        ("*", 'granted_service_all_types("r")'),
    ],
)
def test_service_forms(service: str, fact: str) -> None:
    assert texts(service) == [fact]


def test_policy_set_encoding() -> None:
    """Exact names of one type are one fact; other forms and other types keep theirs, whatever the order."""
    wanted = [
        'granted_service_exact("r", "http", "c")',
        'granted_service_set("r", "mcp", {"a", "b"})',
        'granted_service_prefix("r", "mcp", "a.")',
    ]
    assert texts("mcp://b", "mcp://a", "mcp://b", "mcp://a.*", "http://c") == wanted
    assert texts("http://c", "mcp://a.*", "mcp://a", "mcp://b") == wanted


def test_target_forms() -> None:
    role = {"name": "r", "allowed_targets": [str(CALLER), "group:b", "group:a", "email:*@x.y", "user:a*", "idp_role:*"]}
    (found,) = parse_policy({"roles": [role]}).roles
    assert [str(fact) for fact in grants(found)] == [
        'granted_target_suffix("r", "email", "@x.y")',
        'granted_target_set("r", "group", {"a", "b"})',
        'granted_target_all("r", "idp_role")',
        f'granted_target_exact("r", "node", "{CALLER}")',
        'granted_target_prefix("r", "user", "a")',
    ]
    (everywhere,) = parse_policy({"roles": [{"name": "r", "allowed_targets": ["*:*"]}]}).roles
    assert [str(fact) for fact in grants(everywhere)] == ['granted_target_all_facts("r")']


def test_http_narrowing_takes_the_place_of_the_grant() -> None:
    entries = [
        {"service": "http://x", "methods": ["GET"], "paths": ["/a", "/b/*"]},
        {"service": "*", "methods": ["POST"]},
        {"service": "*", "paths": ["/c"]},
    ]
    role = {"name": "r", "allowed_services": ["http://x", "mcp://y", "*"], "http": entries}
    (found,) = parse_policy({"roles": [role]}).roles
    assert [str(fact) for fact in grants(found)] == [
        'granted_service_exact("r", "mcp", "y")',
        'http_granted_service_exact("r", "http", "x", "r#0")',
        'granted_method("r#0", {"GET"})',
        'granted_path_exact("r#0", {"/a"})',
        'granted_path_prefix("r#0", "/b/")',
        'http_granted_service_all_types("r", "r#1")',
        'granted_method("r#1", {"POST"})',
        'granted_path_any("r#1")',
        'http_granted_service_all_types("r", "r#2")',
        'granted_method_any("r#2")',
        'granted_path_exact("r#2", {"/c"})',
    ]


def test_bindings_become_rules_but_none_admits() -> None:
    everyone = ["mesh:system:authenticated", "group:a", "email:*@x.y", "user:a*", f"node:{CALLER.dns_label}"]
    policy = parse_policy(
        {
            "roles": [{"name": "r", "allowed_services": ["mcp://a"]}, {"name": "mesh:role:node"}],
            "bindings": [{"role": "r", "members": everyone}, {"role": "mesh:role:node", "members": ["group:a"]}],
        }
    )
    assert rules(policy) == [
        'role("r") <- node($anybody)',
        'role("r") <- group("a")',
        'role("r") <- email($value), $value.ends_with("@x.y")',
        'role("r") <- user($value), $value.starts_with("a")',
        f'role("r") <- node("{CALLER}")',
        'granted_service_exact("r", "mcp", "a") <- role("r")',
    ]


def test_custom_facts_are_said_of_holders_and_rules_of_everybody() -> None:
    statements = ['tier("gold");', 'granted_service_all("r", $type) <- tier("gold"), service($type, $name)']
    role = {"name": "r", "allowed_targets": ["*"], "custom_datalog": statements}
    policy = parse_policy({"roles": [role], "bindings": [{"role": "r", "members": ["group:a"]}]})
    assert [str(fact) for fact in grants(policy.roles[0])][-1] == 'tier("gold")'
    assert rules(policy)[-2:] == ['tier("gold") <- role("r")', statements[1]]
    provider, mesh = shown(PROVIDER, ROLE_NODE, {}), MeshRules(rules(policy))
    for group, expected in (("a", True), ("b", False)):
        caller = shown(CALLER, ROLE_NODE, {"group": frozenset({group})})
        assert allowed(caller, provider, Call("mcp", "x"), mesh) == expected


def test_policy_fact_budget() -> None:
    wide = {"name": "r", "allowed_services": [f"mcp://n{n}.*" for n in range(MAX_ROLE_FACTS)]}
    check_budget(parse_policy({"roles": [wide]}))
    with pytest.raises(PolicyError, match=r"^roles\[1\]: 701 facts, and a credential has room for 700$"):
        check_budget(parse_policy({"roles": [{"name": "q"}, wide | {"allowed_targets": ["*"]}]}))
    many = [{"role": "q", "members": [f"user:u{n}" for n in range(10_001)]}]
    with pytest.raises(PolicyError, match="10001 rules are more than 10000"):
        check_budget(parse_policy({"roles": [{"name": "q"}], "bindings": many}))


def test_policy_many_roles() -> None:
    """A thousand roles that a caller has not cost it nothing to speak of: they are looked up, not evaluated."""
    roles = [{"name": f"r{n}", "allowed_services": [f"mcp://s{n}"], "allowed_targets": ["*"]} for n in range(1000)]
    bindings = [{"role": f"r{n}", "members": [f"user:u{n}", f"group:g{n}"]} for n in range(1000)]
    policy = parse_policy({"roles": roles, "bindings": bindings})
    check_budget(policy)
    mesh, provider = MeshRules(rules(policy)), shown(PROVIDER, ROLE_NODE, {})
    caller = shown(CALLER, ROLE_NODE, {"user": frozenset({"u7"}), "group": frozenset({"g9"})})
    assert [n for n in range(20) if allowed(caller, provider, Call("mcp", f"s{n}"), mesh)] == [7, 9]


def test_policy_scale() -> None:
    """Ten thousand exact grants are one fact each type, and a call is decided in milliseconds."""
    services = [f"{type}://s{n}" for type in ("mcp", "http") for n in range(5000)]
    policy = parse_policy({"roles": [{"name": ROLE_NODE, "allowed_services": services, "allowed_targets": ["*"]}]})
    check_budget(policy)
    assert len(grants(policy.roles[0])) == 3
    caller, provider = shown(CALLER, ROLE_NODE, {}), shown(PROVIDER, ROLE_NODE, {})
    authorizer, began = Authorizer(MeshRules(rules(policy))), time.process_time()
    authorizer.check(caller, provider, Call("mcp", "s4999"), TRUSTED)
    assert time.process_time() - began < 1.0
