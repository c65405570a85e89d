"""How programs are used and misused: help, versions, typing errors, files and control planes that are not there."""

import importlib.metadata
import logging
import re
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from agentmesh.cli import main, programs
from agentmesh.cli.one import secret_in, write_secret
from tests.programs.programs import Machine

COMMANDS = {name: main.get_command(click.Context(main), name) for name in programs.PROGRAMS}
PROGRAMS: dict[str, click.Command] = {
    name: command for name, command in COMMANDS.items() if command and not isinstance(command, click.Group)
}
MAIN_OPTIONS = {
    "control-plane": ("--bind-address", "--db-dsn", "--auto-approve-enrollment"),
    "router": ("--control-plane", "--bootstrap-token-path", "--data-dir", "--listen", "--external-addr"),
    "node": ("--control-plane", "--bootstrap-token-path", "--data-dir", "--service", "--routers"),
    "one": ("--data-dir", "--bind-address", "--listen"),
    "forward": ("--socks", "--listen", "--forward", "--http-proxy", "--stdio", "--data-dir"),
    "demo": ("--file-mib",),
}


@pytest.fixture(autouse=True)
def restore_logging() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("agentmesh")
    before = (list(root.handlers), root.level, ours.level)
    yield
    root.handlers[:], root.level, ours.level = before


def run(*arguments: str, width: int = 80) -> Result:
    env = {"COLUMNS": str(width), "AGENTMESH_ADMIN_TOKEN": ""}
    return CliRunner().invoke(main, list(arguments), env=env, prog_name="agentmesh")


def test_the_programs_are_those_that_are_tried_here() -> None:
    assert set(PROGRAMS) == set(MAIN_OPTIONS)


def test_the_list_of_programs_cuts_nothing_off() -> None:
    result = run("--help")
    assert result.exit_code == 0
    assert "..." not in result.output.partition("Commands:")[2]
    for name in COMMANDS:
        assert re.search(rf"^  {name} +[A-Z].*\.$", result.output, re.MULTILINE), name


def test_the_version_is_the_packages() -> None:
    assert importlib.metadata.version("agentmesh") in run("--version").output


@pytest.mark.parametrize("name", PROGRAMS)
def test_help_names_the_main_options(name: str) -> None:
    result = run(name, "--help")
    assert result.exit_code == 0
    for option in MAIN_OPTIONS[name]:
        assert re.search(rf"^  {option}\b", result.output, re.MULTILINE), option


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_option_says_what_it_does_and_what_it_is_by_default(name: str) -> None:
    for option in PROGRAMS[name].params:
        if isinstance(option, click.Argument):
            shown = option.make_metavar(click.Context(PROGRAMS[name])).strip("[]")
            assert shown in (PROGRAMS[name].help or ""), shown
            continue
        assert isinstance(option, click.Option)
        assert option.help, option.name
        assert option.help.endswith(".") or "[default:" in option.help, option.help
        if option.to_info_dict()["default"] is not None and not option.is_flag:
            assert option.show_default, option.name
        if option.envvar:
            assert option.show_envvar, option.name


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_mistyped_option_is_one_line_with_the_right_one(name: str) -> None:
    option = MAIN_OPTIONS[name][0]
    result = run(name, option[:-1] + "x", "value")
    assert (result.exit_code, result.stderr.count("\n"), result.stdout) == (2, 1, ""), result.output
    assert result.stderr.startswith(f"agentmesh {name}: No such option")
    assert "Did you mean" in result.stderr
    assert option in result.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (["nod"], 2, "No such command 'nod'. Did you mean 'node'?"),
        (["node", "--bootstrap-token-path", "/missing"], 2, "/missing: No such file or directory"),
        (["router", "--bootstrap-token-path", "/dev/null"], 2, "/dev/null: empty"),
        (["node", "--listen", "localhost:80"], 2, "'localhost:80' is no multiaddr"),
        (["node", "--label", "blue"], 2, "'blue' is no key=value"),
        (["node", "--service", "weather"], 2, "'weather' is no TYPE/NAME=URL"),
        (["node", "--service", "ftp/x=http://h"], 2, "a service's type is one of"),
        (["node", "--service", "http/x=ftp://h"], 2, "an http or https URL, not 'ftp://h'"),
        (["node", "--service", "http/x=http://h", "--service", "http/x=http://i"], 2, "http://x is served already"),
        (["node", "--routers", "0"], 2, "0 is not in the range"),
        (["router", "--tls-certificate-path", "/dev/null"], 1, "/dev/null: not a certificate and its key"),
        (["router", "--tls-certificate-path", "/missing"], 1, "cannot read the certificate /missing: No such file"),
        (["router", "--high-watermark", "9", "--low-watermark", "9"], 2, "low_watermark 9 is not below"),
        (["forward", "devbox", "h:1", "--stdio"], 2, "'h:1' is no target"),
        (["forward", "devbox", "--socks", "0.0.0.0:1080"], 2, "0.0.0.0:1080: other machines may reach that"),
        (["demo", "--file-mib", "0"], 2, "0 is not in the range"),
    ],
)
def test_wrong_usage_is_one_clear_line(arguments: list[str], status: int, text: str) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stderr.count("\n"), result.stdout) == (status, 1, ""), result.output
    assert text in result.stderr


@pytest.mark.parametrize("name", ["node", "router"])
@pytest.mark.parametrize(
    ("control_plane", "text"), [("ftp://h", "no HTTP URL: 'ftp://h'"), ("http://127.0.0.1:1", "no bootstrap token")]
)
def test_a_member_that_cannot_get_in_says_so_in_one_line(
    tmp_path: Path, name: str, control_plane: str, text: str
) -> None:
    result = run(name, "--control-plane", control_plane, "--data-dir", str(tmp_path / name))
    assert (result.exit_code, result.stderr.count("\n"), result.stdout) == (1, 1, ""), result.output
    assert text in result.stderr


@pytest.mark.parametrize("name", ["node", "router", "one"])
def test_a_proxy_that_is_none_is_one_line_that_names_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "socks5://user:s3cret@proxy:1080")
    bind = ("--bind-address", "127.0.0.1:0") if name == "one" else ()
    result = run(name, "--data-dir", str(tmp_path / name), "--log-level", "error", *bind)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "agentmesh: HTTPS_PROXY: a proxy is reached by http or https, not by socks5\n"


def test_the_demo_says_how_to_get_the_mcp_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentmesh.cli.demo.MCP_SDK", "a_package_that_is_not_there")
    result = run("demo")
    assert (result.exit_code, result.stderr.count("\n"), result.stdout) == (1, 1, "")
    assert "pip install 'agentmesh[mcp]'" in result.stderr


def test_a_secret_is_its_owners_alone_whatever_was_there(tmp_path: Path) -> None:
    path = tmp_path / "join-token"
    path.write_text("something longer, for everybody to read")
    path.chmod(0o644)
    write_secret(path, "secret")
    assert path.read_text() == "secret\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_secret_that_is_there_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "mesh" / "secret"
    made = secret_in(path)
    assert (len(made) > 40, secret_in(path)) == (True, made)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_text("mine\n")
    assert secret_in(path) == "mine"


async def test_a_taken_port_is_one_line_that_names_it(machine: Machine) -> None:
    """Of `one`, whose control plane and whose router listen as those of the programs of their own do."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for folder, arguments in {
            "a": ["--bind-address", f"127.0.0.1:{port}"],
            "b": ["--bind-address", "127.0.0.1:0", "--listen", f"/ip4/127.0.0.1/tcp/{port}"],
            "c": ["--bind-address", "127.0.0.1:0", "--listen", f"/ip4/127.0.0.1/tcp/{port}/ws"],
        }.items():
            async with machine.running("one", "--data-dir", folder, "--log-level", "warning", *arguments) as one:
                assert await one.ended() == 1
            assert one.text == f"agentmesh: cannot listen on 127.0.0.1:{port}: Address already in use\n"


async def test_a_real_process_answers_as_well(machine: Machine) -> None:
    async with machine.running("--help") as helping, machine.running("node", "--listne", "/ip4") as mistyped:
        assert await helping.ended() == 0
        assert await mistyped.ended() == 2
    assert "control-plane" in helping.out.read_text()
    assert mistyped.err.read_text().count("\n") == 1
