"""What each pattern matches, and what is none."""

import contextlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmesh.control_plane.policy.errors import PolicyError
from agentmesh.control_plane.policy.patterns import (
    SERVICE_TYPES,
    Glob,
    LabelPattern,
    MemberPattern,
    ServicePattern,
    TargetPattern,
)
from agentmesh.services.table import SERVICE_TYPES as SERVED
from tests.control_plane.policy.policies import PEERS

PEER = PEERS[0]


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("mcp://calc", ["mcp://calc"], ["mcp://calc2", "http://calc", "mcp://Calc"]),
        ("mcp://build.*", ["mcp://build.runner", "mcp://build.a.b"], ["mcp://builder", "mcp://build", "a2a://build.x"]),
        ("mcp://*.internal", ["mcp://a.internal", "mcp://b.c.internal"], ["mcp://xinternal", "mcp://internal"]),
        ("mcp://*", ["mcp://calc", "mcp://a.b"], ["http://calc"]),
        ("*", ["mcp://calc", "system://mesh.catalog"], []),
    ],
)
def test_services(pattern: str, matching: list[str], others: list[str]) -> None:
    found = ServicePattern.parse(pattern)
    assert str(found) == pattern
    for wanted, names in ((True, matching), (False, others)):
        for service in names:
            assert found.matches(*service.split("://")) == wanted, service


@pytest.mark.parametrize(
    "text",
    ["", "mcp", "mcp://", "ftp://a", "mcp://a*", "mcp://*a", "mcp://a.*.b", "mcp://**", "mcp://a b", "MCP://a", "*://a"]
    + ["mcp:// ", 'mcp://a"', "mcp://.a", "mcp://.*", "mcp://*.", "mcp://a/b", "mcp://" + "a" * 129, "mcp://ä", "**"],
)
def test_what_is_no_service(text: str) -> None:
    with pytest.raises(PolicyError):
        ServicePattern.parse(text)


def test_all_types_that_can_be_served_can_be_granted() -> None:
    assert set(SERVED) | {"system"} == set(SERVICE_TYPES)


@pytest.mark.parametrize(
    ("pattern", "spelt", "matching", "others"),
    [
        ("group:ci", "group:ci", [("group", "ci")], [("group", "ci2"), ("user", "ci")]),
        ("email:*@x.y", "email:*@x.y", [("email", "a@x.y")], [("email", "a@x.yz"), ("user", "a@x.y")]),
        ("user:system:*", "user:system:*", [("user", "system:serviceaccount:a:b")], [("user", "systemd")]),
        ("idp_role:*", "idp_role:*", [("idp_role", "x")], [("group", "x")]),
        ("*", "*", [("node", "x"), ("group", "x")], []),
        ("*:*", "*", [("user", "x")], []),
        (PEER.dns_label, f"node:{PEER}", [("node", str(PEER))], [("node", PEER.dns_label), ("user", str(PEER))]),
        (f"node:{PEER.dns_label}", f"node:{PEER}", [("node", str(PEER))], []),
    ],
)
def test_targets(pattern: str, spelt: str, matching: list[tuple[str, str]], others: list[tuple[str, str]]) -> None:
    found = TargetPattern.parse(pattern)
    assert str(found) == spelt
    assert [found.matches(*pair) for pair in matching + others] == [True] * len(matching) + [False] * len(others)


@pytest.mark.parametrize(
    "text",
    ["", "compute", "role:a", "group:", "group: a", "group:a*b", 'group:"', "group:\n", "label:a", "node:x", "*:a"],
)
def test_what_is_no_target(text: str) -> None:
    with pytest.raises(PolicyError):
        TargetPattern.parse(text)


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("site=a", [("site", "a")], [("site", "b"), ("sit", "a")]),
        ("site=*", [("site", "a"), ("site", "")], [("zone", "a")]),
        ("*", [("site", "a")], []),
        ("site=", [("site", "")], [("site", "a")]),
    ],
)
def test_labels(pattern: str, matching: list[tuple[str, str]], others: list[tuple[str, str]]) -> None:
    found = LabelPattern.parse(pattern)
    assert str(found) == pattern
    assert [found.matches(*pair) for pair in matching + others] == [True] * len(matching) + [False] * len(others)


@pytest.mark.parametrize("text", ["", "site", "=a", "a b=c", "site=a,b", "site=a=b", "*=a", "site=\n"])
def test_what_is_no_label(text: str) -> None:
    with pytest.raises(PolicyError):
        LabelPattern.parse(text)


@pytest.mark.parametrize(
    ("pattern", "claims", "expected"),
    [
        ("mesh:system:authenticated", {}, True),
        ("user:alice", {"user": {"alice"}}, True),
        ("user:alice", {"email": {"alice"}}, False),
        ("group:eng*", {"group": {"sales", "engineers"}}, True),
        ("email:*@x.y", {"email": {"a@y.x"}}, False),
        (f"node:{PEER.dns_label}", {"node": {str(PEER)}}, True),
    ],
)
def test_members(pattern: str, claims: dict[str, set[str]], expected: bool) -> None:
    known = {kind: frozenset(values) for kind, values in claims.items()}
    assert MemberPattern.parse(pattern).matches(known) == expected


@pytest.mark.parametrize(
    "text", ["", "*", "alice", "user:*", "group:", "role:a", "node:*", f"node:{str(PEER)[:9]}*", "user:**"]
)
def test_what_is_no_member(text: str) -> None:
    with pytest.raises(PolicyError):
        MemberPattern.parse(text)


@given(st.text(max_size=8), st.text(max_size=8))
def test_globs_read_back_and_hold_nothing_that_ends_a_text(text: str, value: str) -> None:
    try:
        glob = Glob.parse(text)
    except PolicyError:
        return
    assert str(glob) == text
    assert not set(glob.text) & set('"\\*')
    assert glob.matches(value) == (
        value.startswith(glob.text)
        and value.endswith(glob.text)
        and (value == text if "*" not in text else text == "*" or glob.matches(value))
    )


@pytest.mark.parametrize(
    "parse",
    [ServicePattern.parse, TargetPattern.parse, LabelPattern.parse, MemberPattern.parse],
    ids=lambda f: f.__qualname__,
)
@given(text=st.text(max_size=20))
def test_any_text_is_a_pattern_or_a_policy_error(parse: Callable[[str], object], text: str) -> None:
    with contextlib.suppress(PolicyError):
        assert parse(str(parse(text))) == parse(text)
