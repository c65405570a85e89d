"""Being admitted again by a router, before a credential ends, while the sessions to it stay what they are."""

import logging
from collections.abc import Awaitable, Callable

import trio

from agentmesh.errors import CredentialError, RemoteProtocolError
from agentmesh.runtime.host import Host
from agentmesh.runtime.session import MuxSession
from agentmesh.types import PeerId

logger = logging.getLogger(__name__)

READMIT_WAITS = (2.0, 4.0, 8.0, 0.0)  # seconds after each failed attempt
READMIT_ERRORS = (CredentialError, RemoteProtocolError, trio.BrokenResourceError, trio.TooSlowError)


async def readmit(host: Host, router: PeerId, show: Callable[[MuxSession], Awaitable[None]]) -> None:
    """Show our credential again to a router. If it will not have it, the sessions to it are closed.

    Args:
        show: the handshake, on a session to it.
    Cancellation: safe.
    """
    for wait in READMIT_WAITS:
        session = host.session(router)
        if session is None:
            return
        try:
            await show(session)
        except READMIT_ERRORS as exc:
            logger.warning("not admitted again", extra={"router": router, "reason": exc})
            await trio.sleep(wait)
        else:
            return
    for session in host.connections.sessions_of(router):
        session.abort("the router does not admit us any more")
