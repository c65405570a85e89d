"""Options in a YAML file: what they set, what goes before them, and what is refused."""

from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from agentmesh.cli import main
from agentmesh.cli.config_file import config_option
from agentmesh.cli.membership import label
from agentmesh.cli.node import command as node
from agentmesh.cli.params import duration
from agentmesh.cli.router import command as router


@click.command("program")
@config_option
@click.option("--wait", type=duration, default="5s")
@click.option("--name", envvar="PROGRAM_NAME", default="nobody")
@click.option("--label", "labels", type=label, multiple=True)
@click.option("--path", multiple=True)
@click.option("--fast/--no-fast", default=True)
def program(**settings: Any) -> None:
    click.echo(repr(settings))


def run(folder: Path, text: str, *arguments: str, **env: str) -> Result:
    path = folder / "config.yaml"
    path.write_text(text)
    return CliRunner().invoke(program, ["--config", str(path), *arguments], env=env)


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("", {}),
        ("wait: 2m", {"wait": 120.0}),
        ("wait: 7\nname: alice", {"wait": 7.0, "name": "alice"}),
        ("label: {site: a, tier: 1}", {"labels": (("site", "a"), ("tier", "1"))}),
        ("label: [site=a]", {"labels": (("site", "a"),)}),
        ("path: one", {"path": ("one",)}),
        ("path: [one, 2]", {"path": ("one", "2")}),
        ("fast: false", {"fast": False}),
    ],
)
def test_what_a_file_sets(tmp_path: Path, text: str, settings: dict[str, object]) -> None:
    default = {"wait": 5.0, "name": "nobody", "labels": (), "path": (), "fast": True}
    assert run(tmp_path, text).output == repr({**default, **settings}) + "\n"


def test_the_command_line_and_the_environment_go_before_it(tmp_path: Path) -> None:
    text = "wait: 1m\nname: file\npath: file"
    assert "'wait': 2.0" in run(tmp_path, text, "--wait", "2s").output
    assert "'name': 'environment'" in run(tmp_path, text, PROGRAM_NAME="environment").output
    assert "'path': ('line',)" in run(tmp_path, text, "--path", "line").output


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("wiat: 2m\nnmae: x\nwait: 1", "no such option: nmae, wiat"),
        ("config: other", "no such option: config"),
        ("- wait", "not a mapping of options"),
        ("wait: [", "no YAML"),
        ("wait: soon", "'soon' is no duration"),
        ("name: {a: b}", "name is text or a number"),
        ("path: [[a]]", "path is text or a number"),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    result = run(tmp_path, text)
    assert result.exit_code == 2
    assert complaint in result.output


@pytest.mark.parametrize("name", ["router", "node"])
def test_a_program_refuses_unknown_keys_in_one_line(tmp_path: Path, name: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("high-watermrak: 5\n")
    result = CliRunner().invoke(main, [name, "--config", str(path)])
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "no such option: high-watermrak" in result.stderr
    assert "No such file" in CliRunner().invoke(main, [name, "--config", "/missing"]).stderr


@pytest.mark.parametrize("command", [router, node], ids=lambda command: command.name)
def test_every_option_of_a_program_may_be_in_its_file(command: click.Command) -> None:
    names = {option.opts[0] for option in command.params if isinstance(option, click.Option)}
    assert "--config" in names
    assert all(name.startswith("--") for name in names)
