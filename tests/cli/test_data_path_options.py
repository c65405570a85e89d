"""The options that switch data paths off."""

from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from agentmesh.cli import node, router
from agentmesh.node import NodeConfig
from agentmesh.router import RouterConfig


@pytest.mark.parametrize(("options", "enabled"), [((), True), (("--no-relay-data-path",), False)])
def test_a_router_may_have_none(
    options: tuple[str, ...], enabled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, *_ = run_with(router, (*options, "--data-dir", str(tmp_path)), monkeypatch)
    assert isinstance(config, RouterConfig)
    assert config.relay.data_path.enabled is enabled


@pytest.mark.parametrize(("options", "enabled"), [((), True), (("--no-data-path",), False)])
def test_a_node_may_have_none(
    options: tuple[str, ...], enabled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, services, *_ = run_with(node, (*options, "--data-dir", str(tmp_path)), monkeypatch)
    assert isinstance(config, NodeConfig)
    assert config.data_path is enabled
    assert services == ()


def run_with(program: object, options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> tuple[object, ...]:
    """What a program would run with."""
    found: list[partial[object]] = []

    def keep(job: partial[object], **_: float) -> None:
        found.append(job)

    monkeypatch.setattr(program, "run_program", keep)
    command = vars(program)["command"]
    result = CliRunner().invoke(command, ["--control-plane", "http://127.0.0.1:1", *options])
    assert result.exit_code == 0, result.output
    return found[0].args
