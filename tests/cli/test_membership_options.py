"""How nodes and routers are told to get in."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from agentmesh.cli import main, node, router
from agentmesh.node import NodeConfig
from agentmesh.router import RouterConfig
from tests.cli.test_data_path_options import run_with


@pytest.mark.parametrize("program", [node, router])
def test_by_the_token_of_an_identity_provider(program: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "token"  # which need not be there yet
    config = run_with(program, ("--jwt-path", str(file), "--data-dir", str(tmp_path)), monkeypatch)[0]
    assert isinstance(config, NodeConfig | RouterConfig)
    assert (config.enrollment.jwt_path, config.enrollment.token) == (file, None)


@pytest.mark.parametrize("program", ["node", "router"])
def test_but_not_by_that_and_by_a_bootstrap_token(program: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t")
    both = ("--jwt-path", "x", "--bootstrap-token-path", str(tmp_path / "token"))
    result = CliRunner().invoke(main, [program, *both])
    assert (result.exit_code, "or by an identity provider, not by both" in result.stderr) == (2, True)
