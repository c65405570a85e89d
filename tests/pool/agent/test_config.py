import pytest

from agentmesh.pool.agent.config import NOT_OFFERED, AgentConfig, ConfigError, ConnectionsConfig

AGENT = {"id": "agent-devbox", "server_url": "wss://tunnel.example.com/ws/agent/v1"}


def test_the_example() -> None:
    connections = {
        "min": 1,
        "max": 8,
        "high_watermark": 16,
        "low_watermark": 2,
        "evaluation_interval": "10s",
        "cooldown": "30s",
    }
    config = AgentConfig.read({**AGENT, "connections": connections})
    assert config.connections == ConnectionsConfig(min=1, max=8)
    assert (config.id, config.instance_id) == ("agent-devbox", "")


def test_the_defaults_are_one_connection() -> None:
    config = AgentConfig.read(AGENT).connections
    assert (config.min, config.max) == (1, 1)


@pytest.mark.parametrize("name", sorted(NOT_OFFERED))
def test_what_there_is_not_is_refused_and_says_why(name: str) -> None:
    with pytest.raises(ConfigError, match=NOT_OFFERED[name]):
        AgentConfig.read({**AGENT, name: ["wss://a", "wss://b"]})


def test_without_a_server_it_is_the_meshs_routers() -> None:
    assert AgentConfig.read({"id": "a"}) == AgentConfig(id="a", server_url="")


@pytest.mark.parametrize(
    "values",
    [
        {"server_url": "wss://a"},
        {"id": ""},
        {**AGENT, "colour": "red"},
        {**AGENT, "server_url": ["wss://a", "wss://b"]},
        {**AGENT, "connections": []},
        {**AGENT, "connections": {"maximum": 8}},
        {**AGENT, "connections": {"max": 0}},
        {**AGENT, "connections": {"max": 513}},
        {**AGENT, "connections": {"max": "8"}},
        {**AGENT, "connections": {"max": True}},
        {**AGENT, "connections": {"min": 4, "max": 2}},
        {**AGENT, "connections": {"low_watermark": 16}},
        {**AGENT, "connections": {"low_watermark": -1}},
        {**AGENT, "connections": {"evaluation_interval": 0}},
        {**AGENT, "connections": {"evaluation_interval": "ten"}},
        {**AGENT, "connections": {"cooldown": -1}},
        {**AGENT, "connections": {"cooldown": float("inf")}},
    ],
)
def test_what_means_nothing(values: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        AgentConfig.read(values)


@pytest.mark.parametrize(("text", "seconds"), [("500ms", 0.5), ("1.5m", 90.0), ("1h", 3600.0), (7, 7.0)])
def test_durations(text: object, seconds: float) -> None:
    assert ConnectionsConfig.read({"cooldown": text}).cooldown == seconds
