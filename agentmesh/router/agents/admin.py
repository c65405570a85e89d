"""Where operators reach the pages about agents: a port of its own, for whoever has the token."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from agentmesh.control_plane.bind_address import parse_bind_address
from agentmesh.control_plane.serving import serve_http
from agentmesh.membership.guard import Guarded, load_or_create_token
from agentmesh.protocols.http import ASGIApp
from agentmesh.router.agents.api import AgentsApi
from agentmesh.router.agents.lookup import OfAgents
from agentmesh.router.agents.problems import ProblemAnswer


def admin_app(agents: OfAgents, wall_clock: Callable[[], float], token: str) -> ASGIApp:
    """The pages, for whoever shows the token."""
    return Guarded(AgentsApi(agents, wall_clock).app(), token, "this router", ProblemAnswer)


@asynccontextmanager
async def serve_admin(
    agents: OfAgents, wall_clock: Callable[[], float], bind_address: str | None, token_path: Path
) -> AsyncGenerator[str | None]:
    """Serve them for as long as the block lasts; nothing when there is no address.

    Args:
        agents: of the router.
        wall_clock: seconds since 1970.
        bind_address: host:port; port 0 takes any free one.
        token_path: the file with the token; made, for its owner alone, when it is not there.
    Yields:
        The URL to reach them at from this machine.
    Raises:
        OSError: the address is taken or not ours, or the file cannot be read or made.
        StateError: the file has no token, or others may read it.
        ValueError: the address is none.
    """
    if bind_address is None:
        yield None
        return
    app = admin_app(agents, wall_clock, load_or_create_token(token_path))
    host, port = parse_bind_address(bind_address)
    async with serve_http(app, host, port) as url:
        yield url
