"""Ports of this machine that lead to targets beside an agent, for programs that know nothing of the mesh.

    ssh, psql, …       a plain port               ─┐
    curl, browsers     a SOCKS 5 proxy             ├─▶ a tunnel for each connection ─▶ the agent ─▶ its target
    curl, git, pip     an HTTP proxy, by CONNECT  ─┘
    ssh's ProxyCommand standard input and output

`serve_forwards` listens, over whatever opens a tunnel: `Node.open_tunnel`, or a test's own. Each way of a connection
ends by itself, and one that breaks is cut on the other side too.

config       what listens where, and for whom
ports        all of it together
forwarder    one connection, from accepting to its end; limits and figures
carrying     its bytes
front        what the machines of the proxies share; socks, http_connect: these
credentials  a user and a password
stdio        standard input and output
"""

from agentmesh.forward.config import BindAddress, Forward, ForwardConfig
from agentmesh.forward.forwarder import Forwarder, ForwardStatistics, OpenTunnel, Outcome
from agentmesh.forward.ports import Forwards, Listening, serve_forwards
from agentmesh.forward.stdio import forward_stdio

__all__ = [
    "BindAddress",
    "Forward",
    "ForwardConfig",
    "ForwardStatistics",
    "Forwarder",
    "Forwards",
    "Listening",
    "OpenTunnel",
    "Outcome",
    "forward_stdio",
    "serve_forwards",
]
