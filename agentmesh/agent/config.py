"""Every setting of an agent's process, with its unit and default."""

from pathlib import Path

import attrs

from agentmesh.agent.server_url import ServerUrl
from agentmesh.membership import Enrollment
from agentmesh.pool.agent.access import AccessPolicy
from agentmesh.pool.agent.config import AGENT_LABEL, AgentConfig, ConfigError
from agentmesh.pool.agent.serving import ServingLimits
from agentmesh.protocols.pool.fields import is_identifier
from agentmesh.runtime.config import HostConfig


@attrs.frozen(kw_only=True)
class AgentProcessConfig:
    """Settings of one process of an agent.

    Raises:
        ConfigError: one of them means nothing. The text names the key.
    """

    enrollment: Enrollment
    """How it gets into the mesh. The label `agent` is added to those that are asked for."""
    agent: AgentConfig
    """Which agent it is, where its router is, and how many connections it holds."""
    state_dir: Path = Path("agent")
    """Where its key, its credential and its instance ID are kept."""
    access: AccessPolicy = AccessPolicy()
    """What its streams may reach. Nothing, as it is."""
    serving: ServingLimits = ServingLimits()
    """What it takes on."""
    host: HostConfig = HostConfig()
    """Sessions and connections."""

    def __attrs_post_init__(self) -> None:
        if not is_identifier(self.agent.id):
            raise ConfigError(f"agent.id: {self.agent.id[:50]!r} is no identifier; letters, digits, '.', '_' and '-'")
        if self.agent.instance_id and not is_identifier(self.agent.instance_id):
            raise ConfigError("agent.instance_id is no identifier")
        if self.enrollment.labels.get(AGENT_LABEL, self.agent.id) != self.agent.id:
            raise ConfigError(f"the label {AGENT_LABEL} is the agent's ID, {self.agent.id}, and cannot be another")
        if self.agent.server_url:
            ServerUrl.parse(self.agent.server_url)

    @property
    def server(self) -> ServerUrl | None:
        """Where its router is; None leaves it to the mesh's list."""
        return ServerUrl.parse(self.agent.server_url) if self.agent.server_url else None
