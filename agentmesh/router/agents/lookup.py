"""Which agent an operator means, and what is known of it: by this router, and by the registry if that answers."""

import enum
import logging
from http import HTTPStatus
from typing import Protocol as Interface

import attrs
import trio

from agentmesh.pool.registry import AmbiguousAgentError, ConnectionLease, ConnectionRegistry, RegistryError
from agentmesh.pool.registry.values import is_identifier
from agentmesh.pool.router.claims import ConnectionKey
from agentmesh.pool.router.listing import Lister
from agentmesh.pool.router.service import PoolService
from agentmesh.pool.router.table import Pool
from agentmesh.protocols.pool import Closing
from agentmesh.router.agents.events import AgentEvents
from agentmesh.router.agents.problems import RefusedError

logger = logging.getLogger(__name__)

REGISTRY_TIMEOUT = 2.0  # seconds after which an operator is shown what is known without it


class OfAgents(Interface):
    """What a router has to do with agents: its `Agents`."""

    @property
    def service(self) -> PoolService: ...

    @property
    def registry(self) -> ConnectionRegistry | None: ...

    @property
    def lister(self) -> Lister | None: ...

    @property
    def events(self) -> AgentEvents: ...

    async def close(self, key: ConnectionKey) -> Closing:
        """Close a connection, wherever it is. Raises DialError when its router cannot be reached."""
        ...


class RegistryState(enum.StrEnum):
    """Whether other routers' connections are known."""

    NONE = "none"  # there is no registry: this router is alone
    AVAILABLE = "available"
    UNAVAILABLE = "unavailable"


@attrs.frozen
class Found:
    """An agent.

    Attributes:
        agent_id: as it is spelt.
        pool: its connections to this router.
        leases: all that the registry lists of it.
    """

    agent_id: str
    pool: Pool
    leases: tuple[ConnectionLease, ...]
    registry: RegistryState


async def find_agent(agents: OfAgents, name: str) -> Found:
    """The agent that is called so, in whatever case; one that is not there has no connections.

    Raises:
        RefusedError: 409 when several are called so and none exactly so, 400 when none can be.
    """
    table = agents.service.table
    try:
        pool = table.get(name) or table.lookup(name)
        if pool is None and not is_identifier(name):
            raise RefusedError(HTTPStatus.BAD_REQUEST, "no_identifier", "no agent can be called so")
        leases, state = await _listed(agents.registry, name, exact=table.get(name) is not None)
    except AmbiguousAgentError as exc:
        raise _ambiguous(exc.agent_ids) from exc
    if pool is None or (leases and not pool.by_id):
        agent_id = leases[0].agent_id if leases else name
        return Found(agent_id, table.get(agent_id) or Pool(agent_id), leases, state)
    others = {lease.agent_id for lease in leases} - {pool.agent_id}
    if others and name != pool.agent_id:
        raise _ambiguous((pool.agent_id, *sorted(others)))
    return Found(pool.agent_id, pool, tuple(one for one in leases if one.agent_id == pool.agent_id), state)


async def _listed(
    registry: ConnectionRegistry | None, name: str, exact: bool
) -> tuple[tuple[ConnectionLease, ...], RegistryState]:
    """What the registry lists. Raises AmbiguousAgentError."""
    if registry is None:
        return (), RegistryState.NONE
    with trio.move_on_after(REGISTRY_TIMEOUT):
        try:
            try:
                return await registry.list_active_by_agent(name, exact=exact), RegistryState.AVAILABLE
            except AmbiguousAgentError as exc:
                if name not in exc.agent_ids:
                    raise
                return await registry.list_active_by_agent(name, exact=True), RegistryState.AVAILABLE
        except AmbiguousAgentError:
            raise
        except RegistryError as exc:
            logger.info("the registry does not answer", extra={"agent": name, "reason": exc})
    return (), RegistryState.UNAVAILABLE


def _ambiguous(agent_ids: tuple[str, ...]) -> RefusedError:
    text = f"agents whose IDs differ in case only: {', '.join(agent_ids)}; name one exactly"
    return RefusedError(HTTPStatus.CONFLICT, "ambiguous_agent", text, agentIds=list(agent_ids))
