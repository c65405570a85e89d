"""docs/agent.md says what is so: its commands have these options, its settings are read, its rules are rules."""

import ast
import re
import shlex
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner

from agentmesh.agent import rule_of
from agentmesh.cli import agent_run, main
from agentmesh.cli.agent_options import read_agent
from agentmesh.cli.policy_file import read_policy
from agentmesh.control_plane.policy.model import Policy
from agentmesh.pool.agent.access import AccessPolicy
from agentmesh.pool.agent.scaling import MAX_RECORDS
from agentmesh.pool.router.claims import Reason
from agentmesh.protocols.pool import Code, Stage

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "agent.md").read_text()
COMMANDS = re.findall(r"^    (agentmesh .*)$", TEXT.replace("\\\n", " "), re.MULTILINE)
POLICY, SETTINGS, RULES = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
WORDS = re.findall(r"^\| `([^-`][^`]+)` \|", TEXT.partition("## How many")[0], re.MULTILINE)
NOT_FOR_OPERATORS = {Reason.STALE_EPOCH, Reason.REGISTERING}  # each dial has an ID of its own: they do not happen
SOURCES = "".join(
    path.read_text()
    for folder in ("agentmesh/agent", "agentmesh/cli", "agentmesh/pool/agent", "agentmesh/membership")
    for path in (ROOT / folder).glob("*.py")
)


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_has_these_options(line: str) -> None:
    command: click.Command = main
    words = shlex.split(line, comments=True)[1:]
    while words and isinstance(command, click.Group):
        chosen = command.get_command(click.Context(command), words[0])
        assert chosen is not None
        command, words = chosen, words[1:]
    known = {name for option in command.params for name in option.opts}
    assert {word for word in words if word.startswith("--")} <= known


def test_its_policy_allows_the_label(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY)
    with (tmp_path / "policy.yaml").open() as file:
        policy: Policy = read_policy(file)
    assert any(role.allows_label("agent", "devbox") for role in policy.roles)


def test_its_settings_are_settings() -> None:
    settings = yaml.safe_load(SETTINGS)
    agent = read_agent(settings.pop("agent"))
    known = {name.removeprefix("--") for option in agent_run.command.params for name in option.opts}
    assert settings.keys() | agent.keys() <= known
    AccessPolicy.read(yaml.safe_load(RULES))


@pytest.mark.parametrize("text", WORDS)
def test_its_rules_are_rules(text: str) -> None:
    rule_of(text)


def test_what_it_says_of_a_log_is_what_is_logged() -> None:
    at_run_time = TEXT.partition("Then, while it runs")[2].partition("It goes on trying")[0]
    for said in re.findall(r"^\| `([a-z][\w ]+)`", at_run_time, re.MULTILINE):
        assert said in SOURCES, said


def test_every_refusal_and_every_code_is_there() -> None:
    refusals = TEXT.partition("## When it does not work")[2]
    assert [reason for reason in Reason if f"`{reason}`" not in refusals and reason not in NOT_FOR_OPERATORS] == []
    for stage, code in re.findall(r"^\| `(\w+)` `(\w+)`", refusals.partition("how far it got")[2], re.MULTILINE):
        assert stage in set(Stage)
        assert code in set(Code)


def test_numbers_and_help() -> None:
    assert f"the last {MAX_RECORDS} looks" in TEXT
    assert CliRunner().invoke(main, ["agent", "run", "--help"]).exit_code == 0


def test_its_python_is_python() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    compile(code, "agent.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
