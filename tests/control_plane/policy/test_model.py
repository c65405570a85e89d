"""Which roles a member has, and which labels they allow it."""

import pytest

from agentmesh.control_plane.policy.document import parse_policy
from agentmesh.control_plane.policy.model import Claims
from agentmesh.credentials import ROLE_NODE, ROLE_ROUTER

POLICY = parse_policy(
    {
        "roles": [
            {"name": ROLE_NODE, "allowed_labels": ["site=*"]},
            {"name": ROLE_ROUTER, "allowed_labels": ["zone=a"]},
            {"name": "dev"},
            {"name": "all"},
        ],
        "bindings": [
            {"role": "dev", "members": ["group:eng", "email:*@x.y"]},
            {"role": "all", "members": ["mesh:system:authenticated"]},
            {"role": ROLE_ROUTER, "members": ["group:infra"]},
        ],
    }
)


def known(**claims: str) -> Claims:
    return {kind: frozenset({value}) for kind, value in claims.items()}


@pytest.mark.parametrize(
    ("admitted_as", "claims", "names"),
    [
        (ROLE_NODE, known(), ["all", ROLE_NODE]),
        (ROLE_NODE, known(group="eng"), ["all", "dev", ROLE_NODE]),
        (ROLE_NODE, known(email="a@x.y"), ["all", "dev", ROLE_NODE]),
        (ROLE_ROUTER, known(group="eng"), ["all", "dev", ROLE_ROUTER]),
        (ROLE_NODE, known(group="infra"), ["all", ROLE_NODE]),
        (ROLE_NODE, known(idp_role=ROLE_ROUTER), ["all", ROLE_NODE]),
    ],
)
def test_roles_of_a_member(admitted_as: str, claims: Claims, names: list[str]) -> None:
    assert [role.name for role in POLICY.roles_of(admitted_as, claims)] == names


def test_what_is_bound_tells_admission_roles_too() -> None:
    assert POLICY.bound(known(group="infra")) == ("all", ROLE_ROUTER)


def test_a_role_that_the_policy_does_not_know_grants_nothing() -> None:
    assert parse_policy({}).roles_of(ROLE_NODE, {}) == ()


@pytest.mark.parametrize(("role", "label", "allowed"), [(ROLE_NODE, "site=b", True), (ROLE_ROUTER, "zone=b", False)])
def test_labels_are_allowed_by_roles(role: str, label: str, allowed: bool) -> None:
    held = POLICY.role(role)
    assert held is not None
    assert held.allows_label(*label.split("=")) == allowed
