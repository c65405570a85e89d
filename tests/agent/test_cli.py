"""`agentmesh agent run`: its options, its file, and how it is misused."""

import logging
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from agentmesh.agent import AgentProcessConfig, rule_of
from agentmesh.cli import agent_run, main
from agentmesh.pool.agent.access import AccessPolicy, Rule
from agentmesh.pool.agent.config import NOT_OFFERED, ConnectionsConfig

ID = ("--agent-id", "devbox")
SEED = """\
agent:
  id: devbox
  server_url: wss://tunnel.example.com/ws/agent/v1
  connections: {min: 1, max: 8, high_watermark: 16, low_watermark: 2, evaluation_interval: 10s, cooldown: 30s}
"""


@pytest.fixture(autouse=True)
def restore_logging() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("agentmesh")
    before = (list(root.handlers), root.level, ours.level)
    yield
    root.handlers[:], root.level, ours.level = before


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["agent", "run", *arguments], prog_name="agentmesh", env={"COLUMNS": "80"})


@pytest.fixture
def configured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The settings that it would run with."""

    def settings(text: str, *arguments: str) -> AgentProcessConfig:
        found: list[partial[object]] = []

        def keep(job: partial[object], **_: float) -> None:
            found.append(job)

        monkeypatch.setattr(agent_run, "run_program", keep)
        (tmp_path / "agent.yaml").write_text(text)
        result = run("--config", str(tmp_path / "agent.yaml"), *arguments)
        assert result.exit_code == 0, result.output
        config: AgentProcessConfig = found[0].args[0]
        return config

    return settings


def test_the_file_has_the_keys_that_are_promised(configured: Any) -> None:
    config = configured(SEED)
    assert config.agent.id == "devbox"
    assert config.agent.server_url == "wss://tunnel.example.com/ws/agent/v1"
    assert config.agent.connections == ConnectionsConfig(
        min=1, max=8, high_watermark=16, low_watermark=2, evaluation_interval=10.0, cooldown=30.0
    )
    assert config.access == AccessPolicy()


def test_what_is_given_otherwise_goes_before_the_file(configured: Any) -> None:
    config = configured(SEED, "--connections-max", "4", "--agent-id", "other", "--connections-cooldown", "1m")
    assert (config.agent.id, config.agent.connections.max, config.agent.connections.cooldown) == ("other", 4, 60.0)
    assert configured("agent: {connections: {min: 2}}", *ID, "--connections-max", "3").agent.connections.min == 2


def test_rules_are_in_the_file_of_settings_in_one_of_their_own_or_said(configured: Any, tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text("- {allow: false, ports: [25]}\n- {networks: [10.0.0.0/8]}\n")
    said = ("--allow", "10.0.0.0/8:22", "--allow", "*:443")
    rules = (rule_of("10.0.0.0/8:22"), rule_of("*:443"))
    kept = (Rule(allow=False, ports=((25, 25),)), rule_of("10.0.0.0/8"))
    assert configured(SEED, *said).access.rules == rules
    assert configured(SEED, *said, "--access-policy", str(tmp_path / "rules.yaml")).access.rules == (*kept, *rules)
    inline = "  access:\n  - {allow: false, ports: [25]}\n  - {networks: [10.0.0.0/8]}\n"
    assert configured(SEED + inline).access.rules == kept
    assert configured(SEED + "allow: ['*:443']\n").access.rules == rules[1:]
    (tmp_path / "rules.json").write_text('[{"networks": ["10.0.0.0/8"]}]')
    assert configured(SEED + f"access-policy: {tmp_path}/rules.json\n").access.rules == kept[1:]


@pytest.mark.parametrize("name", sorted(NOT_OFFERED))
@pytest.mark.parametrize("text", ["agent: {{id: a, {}: x}}", "agent: {{id: a, connections: {{{}: x}}}}", "{}: x"])
def test_what_there_is_not_is_refused_with_the_reason(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / "agent.yaml"
    path.write_text(text.format(name))
    result = run("--config", str(path))
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1), result.output
    assert NOT_OFFERED[name] in result.stderr
    assert name in result.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("agent: devbox", "agent is no mapping"),
        ("agent: {id: devbox, colour: red}", "agent.colour is not known"),
        ("agent: {id: [devbox]}", "agent.id is one text or number"),
        ("agent: {id: devbox, server_url: [wss://a, wss://b]}", "agent.server_url is one text or number"),
        ("agent: {id: devbox, connections: 3}", "agent.connections is no mapping"),
        ("agent: {id: devbox, connections: {maximum: 3}}", "agent.connections.maximum is not known"),
        ("agent: {id: devbox, connections: {max: many}}", "'many' is not a valid integer range"),
        ("agent: {id: devbox, connections: {cooldown: soon}}", "'soon' is no duration"),
        ("agent: {id: devbox, access: all}", "agent.access is no list"),
        ("agent: {id: devbox, access: [{port: 22}]}", "agent.access: a rule has no 'port', but allow, hosts"),
        ("agent: {id: devbox}\nagent-id: other", "said twice: agent-id"),
        ("agent: {id: devbox, connections: {min: 4}}", "1 <= min <= max <= 512 does not hold"),
    ],
)
def test_a_file_that_means_nothing(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "agent.yaml"
    path.write_text(text)
    result = run("--config", str(path))
    assert (result.exit_code, result.stderr.count("\n"), result.stdout) == (2, 1, ""), result.output
    assert said in result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "Missing option '--agent-id'"),
        (("--agent-id", "a b"), "agent.id: 'a b' is no identifier"),
        ((*ID, "--instance-id", "a b"), "agent.instance_id is no identifier"),
        ((*ID, "--server-url", "https://a"), "server_url: the scheme is wss, ws or tcp"),
        ((*ID, "--connections-max", "513"), "513 is not in the range"),
        ((*ID, "--connections-low-watermark", "16"), "low_watermark is not below high_watermark"),
        ((*ID, "--allow", "everything!"), "'everything!' is no rule"),
        ((*ID, "--allow", "localhost:22"), "127.0.0.0/8"),
        ((*ID, "--access-policy", "/missing"), "/missing: No such file or directory"),
        ((*ID, "--access-policy", "/dev/null"), "/dev/null: agent.access is no list"),
        ((*ID, "--label", "agent=other"), "the label agent is the agent's ID, devbox"),
        ((*ID, "--bootstrap-token-path", "/missing"), "/missing: No such file"),
        ((*ID, "--alow", "*:443"), "Did you mean"),
    ],
)
def test_wrong_usage_is_one_clear_line(arguments: tuple[str, ...], said: str) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stderr.count("\n"), result.stdout) == (2, 1, ""), result.output
    assert said in result.stderr


def test_a_rule_file_that_is_no_yaml(tmp_path: Path) -> None:
    (tmp_path / "rules").write_text("- {")
    result = run(*ID, "--access-policy", str(tmp_path / "rules"))
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "no YAML" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--control-plane", "ftp://h"), "no HTTP URL: 'ftp://h'"),
        (("--control-plane", "http://127.0.0.1:1"), "no bootstrap token"),
    ],
)
def test_a_process_that_cannot_get_in_says_so_in_one_line(
    tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    result = run(*ID, "--data-dir", str(tmp_path / "agent"), "--log-level", "error", *arguments)
    assert (result.exit_code, result.stderr.count("\n"), result.stdout) == (1, 1, ""), result.output
    assert said in result.stderr


def test_a_proxy_that_is_none_is_one_line_that_names_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "socks5://user:s3cret@proxy:1080")
    result = run(*ID, "--data-dir", str(tmp_path / "agent"), "--log-level", "error")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "agentmesh: HTTPS_PROXY: a proxy is reached by http or https, not by socks5\n"


def test_help_says_of_every_option_what_it_does_and_what_it_is_by_default() -> None:
    assert "run" in CliRunner().invoke(main, ["agent", "--help"]).output
    result = run("--help")
    assert result.exit_code == 0
    for option in agent_run.command.params:
        assert isinstance(option, click.Option)
        assert option.opts[0] in result.output
        assert option.help, option.name
        assert option.help.endswith("."), option.help
        if option.to_info_dict()["default"] not in (None, "") and not option.is_flag:
            assert option.show_default, option.name
        if option.envvar:
            assert option.show_envvar, option.name
