"""A router: members hold sessions to it, and it relays between them what it cannot read.

config      every setting
addresses   where members can dial it
lease       telling the control plane that it is up
federation  the sessions to all other routers
directory   who serves what, and where a member is
speech      what it passes on, and by whose word
links       … from router to router
members     who is admitted
departures  telling members to go elsewhere
dialbacks   … whether they can be dialled
agents_api, agents_lookup, agents_problems   agents and their connections, for operators
agents_events, agents_stream                 … what befalls them, as it happens
agents_admin                                 … the port where all that is
router      the composition
pages       what an operator sees of it
"""

from agentmesh.router.config import RouterConfig
from agentmesh.router.router import Router, open_router, open_router_as

__all__ = ["Router", "RouterConfig", "open_router", "open_router_as"]
