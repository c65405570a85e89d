"""The policies in docs/policy.md and in the examples are policies, and mean what the text says."""

import re
from pathlib import Path

import pytest

from agentmesh.authorization import Call
from agentmesh.cli.policy_file import read_policy
from agentmesh.control_plane.policy.document import parse_policy
from agentmesh.control_plane.policy.model import MAX_ROLES, Policy
from agentmesh.control_plane.policy.open import OPEN_POLICY
from agentmesh.control_plane.policy.patterns import SERVICE_TYPES, TARGET_KINDS
from agentmesh.control_plane.policy.statements import CustomStatement
from agentmesh.credentials import MAX_FACTS, MAX_MINTED_FACTS, ROLE_NODE

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "policy.md"
TEXT = DOCUMENT.read_text()
DEV = "12D3KooWBtg3aaRMjxwedh83aGiUkwSxDwUZkzuJcfaqUmo7R3pq"


@pytest.fixture
def policy(tmp_path: Path) -> Policy:
    """The example of the document."""
    (found,) = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
    file = tmp_path / "policy.yaml"
    file.write_text(found)
    with file.open() as opened:
        return read_policy(opened)


def test_the_policy_that_anybody_may_begin_with_is_the_one_of_agentmesh_one() -> None:
    with (ROOT / "examples" / "open-policy.yaml").open() as file:
        assert read_policy(file) == OPEN_POLICY


def test_the_example_grants_what_it_seems_to(policy: Policy) -> None:
    engineer, machine = {"group": frozenset({"engineering"})}, {"group": frozenset({"dev-machines"})}

    def may(call: Call, target: dict[str, frozenset[str]]) -> bool:
        return policy.allows(ROLE_NODE, engineer, target, call)

    assert may(Call("mcp", "review"), machine)
    assert may(Call("mcp", "build.runner"), {"node": frozenset({DEV})})
    assert not may(Call("mcp", "builder"), machine)
    assert not may(Call("mcp", "review"), {"group": frozenset({"prod"})})
    assert may(Call("http", "warehouse", "GET", "/reports/1"), {"node": frozenset({"x"})})  # everybody is an analyst
    assert not may(Call("http", "warehouse", "POST", "/reports/1"), {"node": frozenset({"x"})})


@pytest.mark.parametrize("pattern", re.findall(r"^\| `((?:mcp://|\*).*?)` \| (?!every member)", TEXT, re.MULTILINE))
def test_a_service_pattern_is_one(pattern: str) -> None:
    parse_policy({"roles": [{"name": "r", "allowed_services": [pattern]}]})


@pytest.mark.parametrize("pattern", re.findall(r"^\| `((?:group|user|email):.*?)` \|", TEXT, re.MULTILINE))
def test_a_target_pattern_is_one(pattern: str) -> None:
    parse_policy({"roles": [{"name": "r", "allowed_targets": [pattern]}]})


def test_statements_of_datalog_are_what_the_text_calls_them() -> None:
    fact, rule = re.findall(r"A (?:fact|rule), such\s+as\s+`(.*?)`", TEXT)
    assert (CustomStatement.parse(fact).is_rule, CustomStatement.parse(rule).is_rule) == (False, True)


def test_names_and_numbers_are_the_codes() -> None:
    for words in (SERVICE_TYPES, TARGET_KINDS):
        assert all(f"`{word}`" in TEXT for word in words)
    assert f"{MAX_FACTS:,} facts" in TEXT
    assert f"{MAX_MINTED_FACTS} facts" in TEXT
    assert f"{MAX_ROLES:,} roles" in TEXT
