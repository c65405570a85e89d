"""The connections of agents to this router, and through the other routers to theirs."""

import importlib
import random
import secrets
from collections.abc import AsyncGenerator, Container, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from typing import NoReturn

import trio

from agentmesh.credentials import Credential
from agentmesh.errors import DialError
from agentmesh.membership import Membership
from agentmesh.membership.shown import Admit
from agentmesh.pool.registry import ConnectionRegistry, RegistryError, RegistryLimits
from agentmesh.pool.registry.late import open_late_registry
from agentmesh.pool.router.claims import ConnectionKey
from agentmesh.pool.router.ingress import Ingress
from agentmesh.pool.router.listing import Lister
from agentmesh.pool.router.service import PoolService
from agentmesh.pool.router.serving import StreamServer
from agentmesh.pool.router.table import PoolTable
from agentmesh.protocols.pool import (
    CloseRequest,
    Closing,
    ask_close,
    close_protocol,
    dial_protocol,
    relay_protocol,
)
from agentmesh.router.agents.events import AgentEvents
from agentmesh.router.agents.judging import Judge
from agentmesh.router.agents.others import OtherRouters, RelayedOpens
from agentmesh.router.config import AgentsConfig
from agentmesh.router.entrance import Entrance
from agentmesh.runtime.host import Host
from agentmesh.runtime.registry import Protocol
from agentmesh.types import PeerId

MAX_SPREAD = 5.0  # seconds in which the agents of a router that stops are told
TOLD_PER_SECOND = 20.0


class Agents:
    """What a router has to do with agents. Made by `open_agents`.

    Attributes:
        service: serves their connections; `service.table` has them.
        streams: serves the opens of clients and of other routers.
        registry: which router has which connection; None when the router knows but its own.
        lister: lists its own there.
        events: what befalls the connections.
    """

    def __init__(
        self,
        config: AgentsConfig,
        node_id: str,
        judge: Judge,
        routers: OtherRouters,
        registry: ConnectionRegistry | None = None,
    ) -> None:
        table = PoolTable(node_id, config.limits)
        self.registry = registry
        self.lister = Lister(registry, table, config.keeper, random.Random(node_id)) if registry else None
        self.service = PoolService(table, judge.bearer, self.lister)
        elsewhere = RelayedOpens(self.lister, routers) if self.lister else None
        ingress = Ingress(self.service.opener, elsewhere, config.ingress)
        self.streams = StreamServer(ingress, self.service.opener, judge.judge)
        self.events = AgentEvents(table.audit, secrets.token_hex(4))
        self._config = config
        self._routers = routers

    @property
    def departing(self) -> tuple[Container[PeerId], Container[PeerId]]:
        """For `Departures`: the members whom `leave` sends away, and those who have tunnels here."""
        return self.service.peers, self.streams.clients

    def protocols(self) -> Sequence[Protocol]:
        """List these where the host is built."""
        return [
            self.service.protocol(),
            dial_protocol(self.streams.serve_dial),
            relay_protocol(self.streams.serve_relay),
            close_protocol(self._close_here),
        ]

    def watch(self, admit: Admit) -> Admit:
        """Follow what members show.

        Returns:
            What is to be called in the place of `admit`.
        """

        def admit_and_recheck(peer: PeerId, credential: Credential) -> None:
            admit(peer, credential)
            self.service.recheck(peer)

        return admit_and_recheck

    async def run(self, host: Host) -> NoReturn:
        """Keep the connections listed, and forget what is to be forgotten, until cancelled."""
        self._routers.bind(host)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.events.run)
            nursery.start_soon(self.service.run)
            if self.lister is not None:
                nursery.start_soon(self.lister.run)
        raise AssertionError("none of them ends")

    async def leave(self, retry_after: float) -> None:
        """Let all connections go and take no more; return when they have gone.

        Args:
            retry_after: seconds until the router may be back. Agents that have nowhere else to go are told to wait for
                that; others are to have their next connection before they lose this one.
        Cancellation: safe, and closing the host is all that is left to do.
        """
        over = min(len(self.service.table) / TOLD_PER_SECOND, MAX_SPREAD)
        await self.service.leave(over, self._config.drain_timeout, 0.0 if self._routers.peers else retry_after)

    async def close(self, key: ConnectionKey) -> Closing:
        """Close one life of a connection, because an operator says so: here, or at the router that has it.

        Raises:
            DialError: the router that has it cannot be reached, or the registry does not say who that is.
        Cancellation: safe; what was asked of another router may be done.
        """
        here = self.service.close_for_admin(key)
        if here is not Closing.GONE or self.registry is None:
            return here
        try:
            leases = await self.registry.list_active_by_agent(key.agent_id, exact=True)
        except RegistryError as exc:
            raise DialError("the registry does not say where the connection is") from exc
        lease = next((one for one in leases if one.connection_id == key.connection_id), None)
        if lease is None or lease.server_node_id == self.service.table.node_id:
            return Closing.GONE
        session = await self._routers.session(lease.server_node_id)
        if session is None:
            raise DialError(f"{lease.server_node_id}, which has the connection, cannot be reached")
        return await ask_close(session, CloseRequest(key.agent_id, key.connection_id, key.epoch))

    def _close_here(self, request: CloseRequest) -> Closing:
        key = ConnectionKey(request.agent_id, request.connection_id, request.connection_epoch)
        return self.service.close_for_admin(key)


@asynccontextmanager
async def open_agents(
    config: AgentsConfig, membership: Membership, entrance: Entrance, registry: ConnectionRegistry | None = None
) -> AsyncGenerator[Agents]:
    """What a router has to do with agents, with a registry that is open for the length of the block.

    A registry that does not answer keeps no router from starting: it relays all the same.

    Args:
        membership: the router's.
        entrance: who gets in, and what is known of them.
        registry: the caller's, in the place of the one that `config` names.
    Raises:
        ExceptionGroup: of what `open_registry` raises, but for a store that does not answer.
    """
    async with AsyncExitStack() as stack:
        if registry is None and config.registry is not None:
            limits = RegistryLimits(max_connections_per_agent=config.limits.max_connections_per_agent)
            opening = open_late_registry(partial(_open_registry, config.registry), limits)
            registry = await stack.enter_async_context(opening)
        judge = Judge(membership, entrance)
        node_id = str(membership.identity.peer)
        agents = Agents(config, node_id, judge, OtherRouters(entrance.federation), registry)
        stack.callback(agents.events.close)
        yield agents


def _open_registry(dsn: str, limits: RegistryLimits) -> AbstractAsyncContextManager[ConnectionRegistry]:
    """Imported when it is needed: a router that is alone does not wait for the libraries of databases."""
    opening = importlib.import_module("agentmesh.pool.registry.opening")
    opened: AbstractAsyncContextManager[ConnectionRegistry] = opening.open_registry(dsn, limits)
    return opened
