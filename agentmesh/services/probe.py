"""Whether what is served can be called now: a server behind a URL may be down."""

import httpcore2
import trio

from agentmesh.services.table import Target

PROBE_TIMEOUT = 2.0  # seconds


async def answers(target: Target) -> bool:
    """Whether a service's server takes connections; an application of this process always does."""
    if not isinstance(target, str):
        await trio.lowlevel.checkpoint()
        return True
    origin = httpcore2.URL(target).origin
    with trio.move_on_after(PROBE_TIMEOUT):
        try:
            async with await trio.open_tcp_stream(origin.host.decode("ascii"), origin.port):
                return True
        except OSError:
            return False
    return False
