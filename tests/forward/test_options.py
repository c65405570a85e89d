"""The command line of `agentmesh forward`: what it becomes, and one clear line for what makes no sense."""

from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from agentmesh.cli import forward
from agentmesh.forward import BindAddress, Forward, ForwardConfig
from agentmesh.node import TunnelTarget

DB, SSH = TunnelTarget("db.internal", 5432), TunnelTarget("localhost", 22)
HERE = BindAddress("127.0.0.1", 2222)


def run_with(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[ForwardConfig, TunnelTarget | None]:
    found = list[partial[object]]()

    def keep(job: partial[object], **_: float) -> None:
        found.append(job)

    monkeypatch.setattr(forward, "run_program", keep)
    result = CliRunner().invoke(forward.command, arguments)
    assert result.exit_code == 0, result.output
    config, stdio = found[0].args
    return config, stdio


def test_a_target_and_where_to_listen_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    config, stdio = run_with(
        monkeypatch, "devbox", "tcp://db.internal:5432", "--listen", "127.0.0.1:2222", "--listen", "[::1]:0"
    )
    assert config.agent == "devbox"
    assert config.forwards == (Forward(HERE, DB), Forward(BindAddress("::1", 0), DB))
    assert stdio is None


def test_pairs_and_proxies_together(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = ("--forward", "127.0.0.1:2222=tcp://localhost:22", "--forward", "localhost:1=tcp://db.internal:5432")
    proxies = ("--socks", "127.0.0.1:1080", "--http-proxy", "127.0.0.1:3128", "--password-path", "/a")
    config, _ = run_with(monkeypatch, "devbox", *pairs, *proxies, "--max-connections", "7")
    assert config.forwards == (Forward(HERE, SSH), Forward(BindAddress("localhost", 1), DB))
    assert (config.socks, config.http_proxy) == (BindAddress("127.0.0.1", 1080), BindAddress("127.0.0.1", 3128))
    assert (config.password_path, config.max_connections) == (Path("/a"), 7)


def test_a_membership_as_every_program_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    config, _ = run_with(
        monkeypatch,
        *("devbox", "--socks", "127.0.0.1:0", "--control-plane", "http://h:1", "--data-dir", "/a"),
        *("--label", "site=a", "--routers", "3", "--ready-timeout", "1s"),
    )
    assert config.node.enrollment.control_plane == "http://h:1"
    assert config.node.enrollment.labels == {"site": "a"}
    assert (config.node.state_dir, config.node.routers, config.node.ready_timeout) == (Path("/a"), 3, 1.0)


def test_standard_input_and_output_in_place_of_a_port(monkeypatch: pytest.MonkeyPatch) -> None:
    config, stdio = run_with(monkeypatch, "devbox", "tcp://localhost:22", "--stdio")
    assert (config.forwards, stdio) == ((), SSH)


WRONG = {
    "nothing": ((), "nothing to forward: say TARGET with --listen or --stdio, or --forward, --socks or --http-proxy"),
    "no listener": (("tcp://h:1",), "what leads to TARGET? Say --listen HOST:PORT, or --stdio"),
    "no target": (("--listen", "127.0.0.1:1"), "--listen leads to TARGET, which is missing"),
    "no target either": (("--stdio",), "--stdio leads to TARGET, which is missing"),
    "two at once": (("tcp://h:1", "--stdio", "--socks", "127.0.0.1:0"), "--stdio goes alone"),
    "a target": (("h:1", "--stdio"), "'h:1' is no target, such as tcp://db.internal:5432"),
    "an address": (("--socks", "1080"), "not host:port: '1080'"),
    "a pair": (("--forward", "127.0.0.1:1"), "is no LISTEN=TARGET"),
    "a remote address": (("--socks", "0.0.0.0:1080"), "0.0.0.0:1080: other machines may reach that"),
    "a remote port": (("tcp://h:1", "--listen", "192.0.2.1:1"), "192.0.2.1:1: other machines may reach that"),
    "a password": (("tcp://h:1", "--stdio", "--password-path", "/a"), "a password is for the proxies"),
    "an option": (("--sock", "127.0.0.1:0"), "No such option '--sock'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_makes_no_sense_is_one_clear_line(name: str) -> None:
    arguments, line = WRONG[name]
    result = CliRunner().invoke(forward.command, ["devbox", *arguments])
    assert (result.exit_code, line in result.stderr) == (2, True), result.output


def test_an_agent_that_cannot_be_called_so(tmp_path: Path) -> None:
    result = CliRunner().invoke(forward.command, ["dev box", "--socks", "127.0.0.1:0"])
    assert (result.exit_code, "'dev box' is no agent's ID" in result.stderr) == (2, True), result.output
