"""docs/connection-registry.md names what is there, with the defaults that it has."""

import re
from pathlib import Path

import attrs
import pytest

from agentmesh.pool.registry import KeeperConfig, RegistryLimits
from agentmesh.pool.registry.dsn import DEFAULT_PREFIX, parse_registry_dsn
from agentmesh.pool.registry.etcd_keys import AgentKeys
from agentmesh.pool.registry.sql_schema import connections, metadata

TEXT = (Path(__file__).resolve().parents[3] / "docs/connection-registry.md").read_text()
ROWS = {name: float(value) for name, value in re.findall(r"^\| `(\w+)` \| (\d+)", TEXT, re.MULTILINE)}


@pytest.mark.parametrize("config", [RegistryLimits(), KeeperConfig()])
def test_settings_have_the_defaults_that_are_named(config: RegistryLimits | KeeperConfig) -> None:
    left_out = {"trust", "max_at_once"}
    assert {name: value for name, value in attrs.asdict(config).items() if name not in left_out}.items() <= ROWS.items()


def test_no_setting_is_named_that_is_not_there() -> None:
    assert set(ROWS) <= {field.name for config in (RegistryLimits, KeeperConfig) for field in attrs.fields(config)}


def test_tables_and_keys_are_those_that_are_named() -> None:
    assert all(f"`{name}`" in TEXT for name in (*metadata.tables, *connections.columns.keys()))
    agent = AgentKeys("", "{agent_id}")
    assert all(f"    {key}" in TEXT for key in (agent.connections, agent.stats, agent.epochs, agent.floor))
    assert f"`{DEFAULT_PREFIX}`" in TEXT


def test_every_dsn_that_is_named_is_one() -> None:
    named = re.findall(r"`((?:sqlite|postgresql|mysql|etcd)://[^`]+)`", TEXT)
    assert len(named) == 5
    for dsn in named:
        parse_registry_dsn(dsn)
