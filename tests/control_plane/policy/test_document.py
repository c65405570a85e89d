"""A policy is read strictly: whatever is not understood is refused, and the refusal says where."""

from typing import Any

import pytest
from hypothesis import given, settings

from agentmesh.control_plane.policy.document import parse_policy, policy_document
from agentmesh.control_plane.policy.errors import PolicyError
from agentmesh.control_plane.policy.model import MAX_ROLES, Policy
from tests.control_plane.policy.policies import policies

HTTP = {"service": "mcp://a", "methods": ["GET"], "paths": ["/x/*"]}
ROLE: dict[str, Any] = {
    "name": "dev",
    "allowed_services": ["mcp://a", "http://*"],
    "allowed_targets": ["group:ci"],
    "allowed_labels": ["team=*"],
    "custom_datalog": ['tier("gold");'],
    "http": [HTTP],
}
BINDING = {"role": "dev", "members": ["group:eng"]}


def test_a_whole_policy_reads_back() -> None:
    document = {"roles": [ROLE], "bindings": [BINDING]}
    assert policy_document(parse_policy(document)) == document


@settings(max_examples=50, deadline=None)
@given(policies())
def test_every_policy_reads_back(policy: Policy) -> None:
    assert parse_policy(policy_document(policy)) == policy


def test_nothing_is_an_empty_policy() -> None:
    assert parse_policy({}) == Policy()
    assert policy_document(Policy()) == {"roles": [], "bindings": []}


def in_role(**changes: Any) -> dict[str, Any]:
    return {"roles": [ROLE, ROLE | {"name": "ops"} | changes]}


def in_http(**changes: Any) -> dict[str, Any]:
    return in_role(http=[HTTP, HTTP | changes])


FAULTS: list[tuple[Any, str]] = [
    (None, "an object with roles, bindings is needed"),
    ([], "an object with roles, bindings is needed"),
    ({"role": []}, "there is no field 'role'; the fields are roles, bindings"),
    ({"roles": {}}, "roles: a list is needed"),
    ({"roles": ["dev"]}, "roles[0]: an object with name, "),
    (in_role(allowed_service=[]), "roles[1]: there is no field 'allowed_service'; the fields are name, "),
    ({"roles": [{}]}, "roles[0].name: a text is needed"),
    (in_role(name=""), "roles[1].name: a value is not empty"),
    (in_role(name='a"b'), "roles[1].name: a value holds no quote"),
    (in_role(name="mesh:role:king"), "roles[1].name: mesh:role:… is for mesh:role:node and mesh:role:router"),
    (in_role(name="dev"), "roles[1].name: there is another role of that name"),
    (in_role(allowed_services="mcp://a"), "roles[1].allowed_services: a list is needed"),
    (in_role(allowed_services=["mcp://a", 5]), "roles[1].allowed_services[1]: a text is needed"),
    (in_role(allowed_services=["mcp:/a"]), "roles[1].allowed_services[0]: a service is '*' or <type>://<name>"),
    (in_role(allowed_targets=["groups:a"]), "roles[1].allowed_targets[0]: a target is"),
    (in_role(allowed_labels=["site"]), "roles[1].allowed_labels[0]: a label is key=value"),
    (
        in_role(custom_datalog=["allow if true"]),
        "roles[1].custom_datalog[0]: this is neither a fact nor",
    ),
    (in_http(verbs=[]), "roles[1].http[1]: there is no field 'verbs'"),
    (in_http(service="mcp://b"), "roles[1].http[1].service: this is not among allowed_services"),
    (in_http(service="x"), "roles[1].http[1].service: a service is '*' or"),
    (in_http(methods=["get"]), "roles[1].http[1].methods[0]: a method is a word in capitals"),
    (in_http(methods=[], paths=[]), "roles[1].http[1]: neither methods nor paths"),
    (in_http(paths=["/a", "b"]), "roles[1].http[1].paths[1]: a path begins with"),
    (in_http(paths=["/a*"]), "roles[1].http[1].paths[0]: a '*' stands behind a '/'"),
    (in_http(paths=["/*/a"]), "roles[1].http[1].paths[0]: a path begins with"),
    (in_http(paths=["/a?b"]), "roles[1].http[1].paths[0]: a path begins with"),
    (in_http(paths=["/a/../b"]), "roles[1].http[1].paths[0]: this has a dot segment"),
    ({"bindings": [BINDING]}, "bindings[0].role: there is no such role"),
    ({"roles": [ROLE], "bindings": [BINDING | {"members": []}]}, "bindings[0].members: a binding has at least one"),
    ({"roles": [ROLE], "bindings": [BINDING | {"members": ["x"]}]}, "bindings[0].members[0]: a member is"),
    ({"roles": [ROLE], "bindings": [BINDING | {"member": []}]}, "bindings[0]: there is no field 'member'"),
    ({"roles": [{"name": f"r{n}"} for n in range(MAX_ROLES + 1)]}, "roles: more than 1000 roles"),
]


@pytest.mark.parametrize(("document", "text"), FAULTS)
def test_faults_are_named_and_placed(document: object, text: str) -> None:
    with pytest.raises(PolicyError) as caught:
        parse_policy(document)
    assert str(caught.value).startswith(text)


def test_not_everybody_can_be_a_router() -> None:
    everybody = {"role": "mesh:role:router", "members": ["group:infra", "mesh:system:authenticated"]}
    with pytest.raises(PolicyError, match=r"^bindings\[0\]\.members: not everybody can be a router"):
        parse_policy({"roles": [{"name": "mesh:role:router"}], "bindings": [everybody]})


@pytest.mark.parametrize(
    ("text", "is_rule"),
    [
        ('tier("gold");', False),
        (' quota("a", 5) ', False),
        ('seen("a <- b")', False),
        ('granted_service_all("dev", "mcp") <- label("site", "a")', True),
        ('vip($x) <- user($x), $x.starts_with("v")', True),
    ],
)
def test_custom_statements(text: str, is_rule: bool) -> None:
    (role,) = parse_policy({"roles": [ROLE | {"custom_datalog": [text]}]}).roles
    assert [(s.text, s.is_rule) for s in role.custom_datalog] == [(text.strip().removesuffix(";"), is_rule)]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "neither a fact nor a rule"),
        ('a("x"); b("y")', "neither a fact nor a rule"),
        ('a("x"); allow if true', "neither a fact nor a rule"),
        ("a($x)", "neither a fact nor a rule"),
        ("a({p})", "neither a fact nor a rule"),
        ("check if true", "neither a fact nor a rule"),
        ('a("x") <- b("y") trusting ed25519/00', "neither a fact nor a rule"),
        ('a("x") <- b($y), $y.extern::f()', "neither a fact nor a rule"),
        ('a("x\\")', "neither a fact nor a rule"),
        ('a("' + "x" * 512 + '")', "at most 512 characters"),
        ('a("x") <- b("1"), c("2"), d("3"), e("4"), f("5")', "at most 4 predicates and functions"),
        ('node("x")', "node is what the control plane or a verifier says"),
        ('role("mesh:role:router") <- user("mallory")', "role is what the control plane"),
        ("target_unrestricted(true)", "target_unrestricted is what the control plane"),
        ("expiration(2099-01-01T00:00:00Z)", "expiration is what the control plane"),
    ],
)
def test_statements_that_are_refused(text: str, fault: str) -> None:
    with pytest.raises(PolicyError) as caught:
        parse_policy({"roles": [ROLE | {"custom_datalog": [text]}]})
    assert caught.value.where == "roles[0].custom_datalog[0]"
    assert fault in caught.value.what
