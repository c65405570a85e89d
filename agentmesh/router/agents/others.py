"""The other routers: the sessions to them, and streams by way of them."""

import attrs
import trio

from agentmesh.errors import AddressError
from agentmesh.pool.router.listing import Lister
from agentmesh.pool.router.remotes import Remote
from agentmesh.protocols.pool import RELAY_ID, Code, Open, Opening, OpenResult, Stage, open_target
from agentmesh.router.federation import Federation
from agentmesh.runtime.host import Host
from agentmesh.runtime.session import MuxSession
from agentmesh.types import PeerId

_UNREACHABLE = Opening(OpenResult(Stage.RELAY, Code.NETWORK_UNREACHABLE, retryable=True))


class OtherRouters:
    """The sessions to the other routers.

    Args:
        federation: has them joined.
    """

    def __init__(self, federation: Federation) -> None:
        self._federation = federation
        self._host: Host | None = None

    def bind(self, host: Host) -> None:
        """Learn which host this is."""
        self._host = host

    @property
    def peers(self) -> frozenset[PeerId]:
        """Those that are joined."""
        return self._federation.peers

    async def session(self, node_id: str) -> MuxSession | None:
        """The session to a router that each has admitted the other on; None when it cannot be had."""
        try:
            peer = PeerId.parse(node_id)
        except AddressError:
            return None
        if peer not in self._federation.peers:
            await self._federation.refresh()
        if self._host is None or peer not in self._federation.peers:
            return None
        return self._host.session(peer)


@attrs.frozen
class RelayedOpens:
    """Opens on the connections of other routers: what an `Ingress` takes as its elsewhere."""

    _lister: Lister
    _routers: OtherRouters

    async def remotes(self, agent: str) -> tuple[Remote, ...]:
        """As the registry lists them. Raises RegistryError."""
        return await self._lister.remotes(agent)

    async def open(self, remote: Remote, request: Open, timeout: float) -> Opening:
        """Ask the router whose connection it is. That it cannot be reached in time is a result, too."""
        with trio.move_on_after(timeout):
            session = await self._routers.session(remote.server_node_id)
            if session is not None:
                return await open_target(session, request, timeout, RELAY_ID)
        return _UNREACHABLE
