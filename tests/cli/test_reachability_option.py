"""What a node is told to make of the addresses that it listens on."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from agentmesh.cli import main, node
from agentmesh.node import NodeConfig, Reachability
from tests.cli.test_data_path_options import run_with


@pytest.mark.parametrize(
    ("options", "mode"), [((), Reachability.PRIVATE), (("--reachability", "auto"), Reachability.AUTO)]
)
def test_it_is_private_unless_said_otherwise(
    options: tuple[str, ...], mode: Reachability, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, *_ = run_with(node, (*options, "--data-dir", str(tmp_path)), monkeypatch)
    assert isinstance(config, NodeConfig)
    assert config.reachability is mode


def test_there_is_no_third() -> None:
    result = CliRunner().invoke(main, ["node", "--control-plane", "http://127.0.0.1:1", "--reachability", "public"])
    assert result.exit_code == 2
    assert "'public' is not one of 'private', 'auto'" in result.output
