"""An agent's process: a member that holds connections to routers, and serves what is opened on them.

    server_url  where its router is, as a URL
    config      its settings
    rules       what it may reach, as one word of a command line
    standing    its credential, and the label in it
    folder      its data folder, which no other process is to be in
    admissions  each connection authenticated, and again before a credential ends
    ways        which router the next connection is made to
    compose     all of these in one nursery
    pages       what an operator sees of it

How many connections there are, and what is done on them, is `agentmesh.pool.agent`'s business.
"""

from agentmesh.agent.compose import AgentProcess, open_agent, open_agent_as
from agentmesh.agent.config import AgentProcessConfig
from agentmesh.agent.pages import agent_pages
from agentmesh.agent.rules import rule_of
from agentmesh.agent.server_url import ServerUrl
from agentmesh.pool.agent.access import AccessPolicy
from agentmesh.pool.agent.config import AgentConfig, ConnectionsConfig

__all__ = [
    "AccessPolicy",
    "AgentConfig",
    "AgentProcess",
    "AgentProcessConfig",
    "ConnectionsConfig",
    "ServerUrl",
    "agent_pages",
    "open_agent",
    "open_agent_as",
    "rule_of",
]
