"""The command line: what it says of itself, of mistakes, and of what is missing; nothing here is measured."""

import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from benchmarks.cli import main
from benchmarks.figures import SCENARIOS
from benchmarks.stacks.known import BASELINES, MissingError, choose
from tests.benchmarks.made import growth_results, scenario_results

NAME = "python -m benchmarks"
COMMANDS: dict[str, click.Command] = {"": main, **main.commands}


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments), prog_name=NAME, env={"COLUMNS": "80"})


@pytest.fixture
def without_haproxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine where nobody has installed it, and no packages were unpacked."""
    monkeypatch.setattr("benchmarks.stacks.haproxy.UNPACKED", tmp_path)
    monkeypatch.setattr("benchmarks.stacks.haproxy.SYSTEM_PATH", str(tmp_path))


def test_help_names_every_scenario_and_every_baseline() -> None:
    result = run("--help")
    assert result.exit_code == 0
    assert "..." not in result.output.partition("Commands:")[2]
    for name in (*SCENARIOS, *(stack.name for stack in BASELINES), "grow", "show"):
        assert re.search(rf"^ +{name} +\S", result.output, re.MULTILINE), name


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_says_what_it_does_and_what_it_is_by_default(name: str) -> None:
    for option in COMMANDS[name].params:
        if isinstance(option, click.Option):
            assert option.help, option.name
            assert option.help.endswith(".") or "[default:" in option.help, option.help
            assert option.show_default or option.to_info_dict()["default"] is None, option.name


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--scenaro", "S1"], "No such option '--scenaro'. Did you mean '--scenario'?"),
        (["grow", "--repaet", "1"], "No such option '--repaet'. Did you mean '--repeat'?"),
        (["gro"], "No such command 'gro'. Did you mean 'grow'?"),
        (["--scenario", "S9"], "'S9' is not one of 'S1', 'S2'"),
        (["--baseline", "nginx"], "'nginx' is not one of 'agentmesh-streams'"),
        (["--seconds", "0"], "0.0 is not in the range"),
        (["--repeat", "0"], "0 is not in the range"),
        (["--deadline", "soon"], "'soon' is no duration"),
        (["--seconds", "1", "grow"], "--seconds goes behind grow"),
        (["show"], "Missing argument 'FILES...'"),
        (["show", "/nowhere.json"], "'/nowhere.json' does not exist"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_is_meant(arguments: list[str], text: str) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stderr.count("\n"), result.stdout) == (2, 1, ""), result.output
    assert result.stderr.startswith(NAME)
    assert text in result.stderr


@pytest.mark.usefixtures("without_haproxy")
def test_a_baseline_that_was_asked_for_and_is_missing_is_one_line() -> None:
    result = run("--baseline", "haproxy-tls-trio", "--baseline", "haproxy-trio")
    assert (result.exit_code, result.stderr.count("\n"), result.stdout) == (1, 1, ""), result.output
    assert "HAProxy is not here: `make setup` fetches it, or install it" in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.usefixtures("without_haproxy")
def test_a_baseline_that_nobody_asked_for_is_left_out() -> None:
    stacks, left_out = choose([])
    assert "haproxy-trio" not in [stack.name for stack in stacks]
    assert left_out["haproxy-trio"].startswith("HAProxy is not here")
    with pytest.raises(MissingError):
        choose(["haproxy-trio"])


def test_agentmesh_is_always_measured_and_baselines_can_be_none() -> None:
    assert [stack.name for stack in choose(["none"])[0]] == ["agentmesh"]
    chosen = [stack.name for stack in choose(["loopback-trio", "loopback-tls-trio"])[0]]
    assert chosen == ["agentmesh", "loopback-tls-trio", "loopback-trio"]


def test_charts_without_matplotlib_are_refused_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.charts.MATPLOTLIB", "a_package_that_is_not_there")
    for command in ([], ["grow"]):
        result = run(*command, "--charts", str(tmp_path))
        assert (result.exit_code, result.stderr.count("\n")) == (1, 1), result.output
        assert "pip install '.[bench]'" in result.stderr


def test_show_reads_what_was_written_and_draws_it(tmp_path: Path) -> None:
    files: list[Path] = []
    for results in (scenario_results(), growth_results()):
        files.append(tmp_path / f"{results.kind}.json")
        files[-1].write_text(results.to_json())
    result = run("show", *map(str, files))
    assert result.exit_code == 0, result.output
    assert "S8: the router's CPU time" in result.output
    assert "exponent" in result.output
    result = run("show", str(files[0]), "--charts", str(tmp_path / "charts"), "--markdown", str(tmp_path / "page.md"))
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in (tmp_path / "charts").iterdir()) == ["scenarios.png", "scenarios.svg"]
    assert "S1 bulk" in (tmp_path / "page.md").read_text()


def test_show_says_which_file_holds_no_results(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text("[]")
    result = run("show", str(path))
    assert (result.exit_code, result.stderr.count("\n"), result.stdout) == (1, 1, ""), result.output
    assert f"{path}: these are no results" in result.stderr.replace("\n", " ")
