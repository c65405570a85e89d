"""The composition of an agent's process: config in, protocols and loops in one nursery."""

import platform
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version
from random import Random, SystemRandom

import attrs
import trio

from agentmesh.abc import Transport
from agentmesh.agent.admissions import Admissions
from agentmesh.agent.config import AgentProcessConfig
from agentmesh.agent.standing import check_label, open_standing, watch_label
from agentmesh.agent.ways import Dialing, ListWay, ServerWay, Way
from agentmesh.identity import Identity
from agentmesh.membership import Membership
from agentmesh.membership.gate import admission_book, auth_policy, enforce_bans
from agentmesh.membership.news import News, keep_linked
from agentmesh.pool.agent.agent import AgentPool, AgentSettings
from agentmesh.pool.agent.controller import SHUTDOWN_TIMEOUT
from agentmesh.pool.agent.instance import load_instance
from agentmesh.pool.agent.link import AgentLink
from agentmesh.pool.agent.targets import Connector
from agentmesh.protocols import auth, identify, ping
from agentmesh.protocols.floodsub import Floodsub, Policy, Role
from agentmesh.protocols.pool import Item
from agentmesh.runtime.host import Host, open_host
from agentmesh.runtime.nursery import open_background
from agentmesh.runtime.tls import TlsContext
from agentmesh.transports.proxy import ProxyRules
from agentmesh.transports.standard import standard_transports
from agentmesh.transports.websocket import PATH
from agentmesh.types import PeerId

DRAIN_TIMEOUT = SHUTDOWN_TIMEOUT + 5.0  # seconds that leaving may take: what streams have, and saying goodbye


@attrs.frozen
class AgentProcess:
    """An agent's process that is up.

    Attributes:
        host: its runtime.
        membership: its standing in the mesh.
        pool: its connections.
    """

    host: Host
    membership: Membership
    pool: AgentPool
    _ended: trio.Event = attrs.field(factory=trio.Event, repr=False)

    @property
    def peer(self) -> PeerId:
        return self.host.peer

    @property
    def connections(self) -> tuple[AgentLink, ...]:
        """Those that routers have taken, and that nobody lets go."""
        links = self.pool.links.values()
        return tuple(link for link in links if link.joined.is_set() and not link.control.machine.is_draining)

    @property
    def is_ready(self) -> bool:
        """Whether streams can come: a router has taken a connection."""
        return bool(self.connections)

    async def run(self) -> None:
        """Hold the connections, until `drain` has ended them."""
        await self.pool.run()
        self._ended.set()

    async def drain(self) -> None:
        """Take no more streams, and return when those open have ended, or their time is over.

        Cancellation: safe; what is open is cut when the process's block is left.
        """
        self.pool.drain()
        with trio.move_on_after(DRAIN_TIMEOUT):
            await self._ended.wait()


@asynccontextmanager
async def open_agent(
    config: AgentProcessConfig,
    *,
    transports: Sequence[Transport] | None = None,
    proxies: ProxyRules | None = None,
    wall_clock: Callable[[], float] = time.time,
) -> AsyncGenerator[AgentProcess]:
    """`async with open_agent(config) as agent:` — a member that makes its connections, and serves what is opened on
    them. Leaving the block lets open streams end, for 30 seconds at most; whoever wants it over at once cancels.

    Args:
        config: the settings.
        transports: `standard_transports` when it is None, with the path of the server's URL.
        proxies: through which proxy routers and the control plane are reached; what the environment says now if it is
            None. `transports` that are given have their own.
        wall_clock: seconds since 1970.
    Raises:
        AddressError: the control plane's URL is none, or an outbound proxy's.
        CredentialError: no credential to resume with, and no token; or none with the label that makes this process one
            of the agent's.
        EnrollmentRejectedError: the token does not admit us.
        ControlPlaneError, RemoteProtocolError: the control plane refused, or was not there.
        StateError, IdentityError, OSError: the state folder.
        ExceptionGroup: later on, of one CredentialError: the credential has expired and cannot be renewed.
    Cancellation: safe. A process that is cancelled while it enrolls gets in with the same state folder the next time.
    """
    # Made first: a proxy that is none is told before an enrollment.
    transports = _transports(config, proxies) if transports is None else transports
    async with (
        open_standing(config, wall_clock=wall_clock, proxies=proxies) as membership,
        open_agent_as(membership, config, transports=transports) as agent,
    ):
        yield agent


@asynccontextmanager
async def open_agent_as(
    membership: Membership,
    config: AgentProcessConfig,
    *,
    transports: Sequence[Transport] | None = None,
    connector: Connector | None = None,
    rng: Random | None = None,
    security: Callable[[Identity], TlsContext] = TlsContext,
) -> AsyncGenerator[AgentProcess]:
    """`open_agent` for a membership that has begun: its identity, its control plane, its clock.

    Args:
        connector: leads to targets; by the rules of `config` when it is None.
        rng: chooses among routers and spreads requests; the operating system's when it is None.
        security: as for `open_host`; the others as for `open_agent`.
    """
    check_label(membership.credential, config)
    rng = rng or SystemRandom()
    news, book = News(membership), admission_book(membership)
    floodsub = Floodsub(Role.LEAF, policy=Policy(news.validate), wall_clock=membership.wall_clock)
    admissions = Admissions(membership, rng, partial(keep_linked, floodsub, rng, None))
    dialing, settings = Dialing(admissions), _settings(config, membership.identity.peer)
    pool = AgentPool(settings, dialing.dial, connector or Connector(config.access), rng.random)
    async with (
        open_host(
            identity=membership.identity,
            transports=_transports(config) if transports is None else transports,
            protocols=[
                auth.protocol(auth_policy(membership, book)),
                identify.protocol(),
                ping.protocol(),
                floodsub.protocol(),
                pool.protocol(),
            ],
            config=config.host,
            admissions=book,
            security=security,
        ) as host,
        open_background() as nursery,
    ):
        admissions.bind(host)
        dialing.bind(_way(config, host, membership, pool, rng))
        enforce_bans(membership, host)
        watch_label(membership, config)
        agent = AgentProcess(host, membership, pool)
        for work in (membership.run, admissions.run, partial(news.run, floodsub), agent.run):
            nursery.start_soon(work)
        yield agent
        await agent.drain()


def _way(config: AgentProcessConfig, host: Host, membership: Membership, pool: AgentPool, rng: Random) -> Way:
    def leaving() -> list[PeerId]:
        return [session.peer for session, link in pool.links.items() if link.control.machine.theirs.has_begun]

    if config.server is not None:
        return ServerWay(host, config.server.address, leaving)
    return ListWay(host, membership, leaving, rng)


def _transports(config: AgentProcessConfig, proxies: ProxyRules | None = None) -> Sequence[Transport]:
    return standard_transports(proxies, websocket_path=PATH if config.server is None else config.server.path)


def _settings(config: AgentProcessConfig, peer: PeerId) -> AgentSettings:
    return AgentSettings(
        agent_id=config.agent.id,
        instance=load_instance(config.state_dir, config.agent.instance_id),
        connections=config.agent.connections,
        node_id=str(peer),
        items=(
            Item("hostname", "agentmesh", platform.node() or "unknown"),
            Item("version", "agentmesh", version("agentmesh")),
        ),
        serving=config.serving,
    )
