"""The connections of agents to this router, and through the other routers to theirs."""

import hashlib
import importlib
import random
import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from typing import NoReturn

import attrs
import trio

from agentmesh.abc import Session
from agentmesh.authorization import Call
from agentmesh.credentials import Credential
from agentmesh.errors import AddressError, CredentialError, DialError
from agentmesh.membership import Membership
from agentmesh.membership.shown import Admit
from agentmesh.pool.agent.config import AGENT_LABEL
from agentmesh.pool.registry import ConnectionRegistry, RegistryError, RegistryLimits
from agentmesh.pool.registry.late import open_late_registry
from agentmesh.pool.router.attached import Bearer
from agentmesh.pool.router.claims import ConnectionKey
from agentmesh.pool.router.ingress import Ingress
from agentmesh.pool.router.listing import Lister
from agentmesh.pool.router.remotes import Remote
from agentmesh.pool.router.service import PoolService
from agentmesh.pool.router.serving import StreamServer
from agentmesh.pool.router.table import PoolTable
from agentmesh.protocols.pool import (
    RELAY_ID,
    CloseRequest,
    Closing,
    Code,
    Open,
    Opening,
    OpenResult,
    Stage,
    ask_close,
    close_protocol,
    dial_protocol,
    open_target,
    relay_protocol,
)
from agentmesh.router.agents_events import AgentEvents
from agentmesh.router.config import AgentsConfig
from agentmesh.router.entrance import Entrance
from agentmesh.router.federation import Federation
from agentmesh.runtime.host import Host
from agentmesh.runtime.registry import Protocol
from agentmesh.runtime.session import MuxSession
from agentmesh.types import PeerId

TOKEN_ID_DIGITS = 16  # of the hash of a credential, which is not told itself
MAX_SPREAD = 5.0  # seconds in which the agents of a router that stops are told
TOLD_PER_SECOND = 20.0

_FORBIDDEN = OpenResult(Stage.AUTHORIZATION, Code.FORBIDDEN)
_UNDECIDED = OpenResult(Stage.AUTHORIZATION, Code.INTERNAL_ERROR, retryable=True, retry_after_ms=1000)  # no policy yet
_UNREACHABLE = Opening(OpenResult(Stage.RELAY, Code.NETWORK_UNREACHABLE, retryable=True))


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
        judge: "Judge",
        routers: "OtherRouters",
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


@attrs.frozen
class Judge:
    """Who a member is, and what it may reach.

    Args:
        membership: the router's.
        entrance: who is in, and with what.
    """

    _membership: Membership
    _entrance: Entrance

    def bearer(self, session: Session) -> Bearer | None:
        """Which agent the credential is for that was shown on a session. Each connection shows its own."""
        credential = self._entrance.shown.get(session.peer) if session in self._entrance.entered else None
        if credential is None:
            return None
        token_id = hashlib.sha256(credential.token).hexdigest()[:TOKEN_ID_DIGITS]
        return Bearer(credential.labels.get(AGENT_LABEL), token_id)

    def judge(self, client: PeerId, agent_id: str, request: Open) -> OpenResult | None:
        """Why the mesh's policy does not grant a member this target through this agent; None: it does.

        The agent has rules of its own.
        """
        credential = self._entrance.shown.get(client)
        if credential is None:
            return _FORBIDDEN
        try:
            self._entrance.rules.check(credential, None, agent_call(agent_id, request), self._membership.trusted)
        except CredentialError as exc:
            return _UNDECIDED if exc.reason == "undecided" else _FORBIDDEN
        return None


def agent_call(agent_id: str, request: Open) -> Call:
    """What a policy judges: `egress://<agent>`, by CONNECT of `/<protocol>/<host>/<port>`. It belongs to no member."""
    path = f"/{request.protocol}/{request.target_host.lower()}/{request.target_port}"
    return Call("egress", agent_id, "CONNECT", path)


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
