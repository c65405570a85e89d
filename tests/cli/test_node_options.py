"""What a node is told of the members that it may call."""

from pathlib import Path

import pytest

from agentmesh.cli import node
from agentmesh.node import NodeConfig
from tests.cli.test_data_path_options import run_with


def test_an_operator_requires_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    required = ("--require-label", "site=a", "--require-label", "zone=x")
    config, *_ = run_with(node, (*required, "--data-dir", str(tmp_path)), monkeypatch)
    assert isinstance(config, NodeConfig)
    assert config.require_labels == {"site": "a", "zone": "x"}
