"""The composition of a router: config in, protocols and loops in one nursery."""

import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from random import Random, SystemRandom

import attrs
import trio

from agentmesh.abc import Transport
from agentmesh.control_plane.client import RouterLoad
from agentmesh.credentials import ROLE_ROUTER
from agentmesh.identity import Identity
from agentmesh.membership import Membership, StateDir, open_membership
from agentmesh.membership.gate import enforce_bans
from agentmesh.pool.registry import ConnectionRegistry
from agentmesh.protocols import identify, ping
from agentmesh.protocols.auth import AuthStatistics
from agentmesh.protocols.directory import Directory
from agentmesh.protocols.floodsub import Floodsub
from agentmesh.protocols.relay import Relay
from agentmesh.router.addresses import addresses_of
from agentmesh.router.agents.agents import Agents, open_agents
from agentmesh.router.config import RouterConfig
from agentmesh.router.departures import Departures
from agentmesh.router.dialbacks import make_dial_back
from agentmesh.router.directory import make_directory
from agentmesh.router.entrance import make_entrance
from agentmesh.router.federation import Federation
from agentmesh.router.lease import Lease
from agentmesh.router.members import Members
from agentmesh.router.speech import make_speech
from agentmesh.runtime.host import Host, open_host
from agentmesh.runtime.nursery import open_background
from agentmesh.runtime.tls import TlsContext
from agentmesh.transports.proxy import ProxyRules
from agentmesh.transports.splice import open_splicer
from agentmesh.transports.standard import standard_transports
from agentmesh.types import Address, PeerId


@attrs.frozen
class Router:
    """A router that is up: it listens, and the control plane lists it.

    Attributes:
        host: its runtime.
        membership: its standing in the mesh.
        relay: what it relays.
        handshakes: how members' handshakes ended.
        floodsub: what it passes on.
        directory: who serves what, and where a member is.
        federation: the other routers.
        members: who is admitted.
        departures: how they are sent away.
        agents: the connections of those that are agents' processes.
        lease: what it is listed by.
    """

    host: Host
    membership: Membership
    relay: Relay
    handshakes: AuthStatistics
    floodsub: Floodsub
    directory: Directory
    federation: Federation
    members: Members
    departures: Departures
    agents: Agents
    lease: Lease

    @property
    def peer(self) -> PeerId:
        return self.host.peer

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Where members dial it, each ending in its peer ID."""
        return tuple(self.lease.addresses())

    def load(self) -> RouterLoad:
        """How busy it is, as its lease says it."""
        return self.lease.load()

    @property
    def is_ready(self) -> bool:
        """Whether it is listed, and holds members."""
        return not self.members.is_closed and self.membership.wall_clock() < self.lease.held_until

    async def drain(self, ttl: float) -> None:
        """Stop being one: listed no longer than `ttl` seconds, and without members. What is left is to close it.

        Args:
            ttl: seconds for which it will be away; with 0 no last lease is sent.
        Cancellation: safe, and closing it is all that is left to do.
        """
        self.members.close()
        await self.lease.end(ttl)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.directory.leave)
            nursery.start_soon(self.agents.leave, ttl)
            await self.departures.drain(self.host, ttl)


@asynccontextmanager
async def open_router(
    config: RouterConfig,
    *,
    transports: Sequence[Transport] | None = None,
    proxies: ProxyRules | None = None,
    wall_clock: Callable[[], float] = time.time,
) -> AsyncGenerator[Router]:
    """`async with open_router(config) as router:` — enrolled, listening and leased from the start of the block.

    Args:
        config: the settings.
        transports: `standard_transports` when it is None.
        proxies: through which proxy the control plane, and whom the router dials itself, are reached; what the
            environment says now if it is None. `transports` that are given have their own.
        wall_clock: seconds since 1970.
    Raises:
        AddressError: the control plane's URL is none, or an outbound proxy's, or nothing here listens on one of the
            addresses.
        CredentialError: no credential to resume with, and no token.
        EnrollmentRejectedError: the token does not admit us, or is none for a router.
        ControlPlaneError, RemoteProtocolError: the control plane refused, or was not there.
        StateError, IdentityError, OSError: the state folder; or an address is taken, or the certificate is none.
        ExceptionGroup: later on, of one CredentialError: the credential has expired and cannot be renewed.
    Leaving the block tells the members to go elsewhere, and takes some seconds; whoever wants it over at once cancels.
    Cancellation: safe. A router that is cancelled while it enrolls gets in with the same state folder the next time.
    """
    state = StateDir(config.state_dir)
    enrollment = attrs.evolve(config.enrollment, role=config.enrollment.role or ROLE_ROUTER)
    # Made first: a proxy or a certificate that is none is told before an enrollment.
    transports = standard_transports(proxies, certificate=config.tls_certificate) if transports is None else transports
    opening = open_membership(state.identity(), enrollment, state=state, wall_clock=wall_clock, proxies=proxies)
    async with (
        opening as membership,
        open_router_as(membership, config, transports=transports) as router,
    ):
        yield router


@asynccontextmanager
async def open_router_as(
    membership: Membership,
    config: RouterConfig,
    *,
    transports: Sequence[Transport] | None = None,
    rng: Random | None = None,
    security: Callable[[Identity], TlsContext] = TlsContext,
    registry: ConnectionRegistry | None = None,
) -> AsyncGenerator[Router]:
    """`open_router` for a membership that has begun: its identity, its control plane, its clock.

    Args:
        registry: of agents' connections, in the place of the one that the settings name.
        rng: chooses whom to send away; the operating system's when it is None.
        Otherwise as `open_router`, and `security` as for `open_host`.
    """
    external = tuple(address.with_peer(membership.identity.peer) for address in config.external_addresses)
    transports = standard_transports(certificate=config.tls_certificate) if transports is None else transports
    entrance = make_entrance(membership)
    await membership.info()  # or it would admit who is banned
    speech = make_speech(membership, entrance.rules, entrance.shown)
    async with open_agents(config.agents, membership, entrance, registry) as agents, AsyncExitStack() as stack:
        splicer = stack.enter_context(open_splicer())
        announced = (lambda: external) if external else None
        relay = Relay(config.relay, announced=announced, splicer=splicer, wall_clock=membership.wall_clock)
        directory, records = make_directory(membership, entrance.federation, relay, external, config.directory)
        protocols = [
            entrance.protocol(agents.watch(speech.admit)),
            relay.protocol(),
            speech.floodsub.protocol(),
            records,
            make_dial_back(config, transports, security).protocol(),
            identify.protocol(),
            ping.protocol(),
            *agents.protocols(),
        ]
        async with (
            open_host(
                identity=membership.identity,
                transports=transports,
                protocols=protocols,
                listen=config.listen,
                config=config.host,
                admissions=entrance.admissions,
                security=security,
            ) as host,
            open_background() as nursery,
        ):
            told = partial(addresses_of, host, external), partial(load_of, host, directory)
            lease = Lease(membership, *told, config.lease_renew_interval)
            departures = Departures(entrance.members, entrance.federation, rng or SystemRandom(), *agents.departing)
            parts = speech.floodsub, directory, entrance.federation, entrance.members, departures, agents, lease
            enforce_bans(membership, host)
            for work in (membership.run, partial(speech.run, entrance.federation), partial(agents.run, host)):
                nursery.start_soon(work)
            await nursery.start(lease.keep)
            nursery.start_soon(entrance.federation.run)
            nursery.start_soon(departures.shed, host)
            yield (router := Router(host, membership, relay, entrance.handshakes, *parts))
            await router.drain(config.shutdown_lease_ttl)


def load_of(host: Host, directory: Directory) -> RouterLoad:
    """How busy a router is, as its lease says it."""
    connections = host.connections.statistics()
    return RouterLoad(
        connected_peers=connections.peers,
        directory_size=directory.statistics().records,
        connections=connections.inbound,
        connection_limit=host.config.connections.high_watermark,
    )
