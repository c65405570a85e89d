"""The composition of a node: config in, protocols and loops in one nursery."""

import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from random import Random, SystemRandom

import attrs
import trio

from agentmesh.abc import DataDialer, Transport
from agentmesh.credentials import ROLE_NODE
from agentmesh.identity import Identity
from agentmesh.membership import Enrollment, Membership, StateDir, open_membership
from agentmesh.membership.gate import admission_book, auth_policy, enforce_bans, service_policy
from agentmesh.membership.news import News, keep_linked
from agentmesh.membership.rulebook import Rulebook
from agentmesh.node.admissions import RouterAdmissions
from agentmesh.node.announcer import Announcer, announcing
from agentmesh.node.attachments import Attachments, WhileAttached
from agentmesh.node.calling import make_calls
from agentmesh.node.catalogue import Catalogue
from agentmesh.node.config import NodeConfig
from agentmesh.node.goaways import GoAways
from agentmesh.node.idle import IdleSessions
from agentmesh.node.node import Node, addresses_of
from agentmesh.node.paths import Paths
from agentmesh.node.reachability import DirectAddresses
from agentmesh.node.selection import Selection
from agentmesh.node.tunnels import Tunnels
from agentmesh.protocols import auth, http, identify, ping
from agentmesh.protocols.directory import DirectoryClient
from agentmesh.protocols.floodsub import Floodsub, Policy, Role
from agentmesh.protocols.relay import RelayClient
from agentmesh.runtime.host import open_host
from agentmesh.runtime.nursery import open_background
from agentmesh.runtime.registry import Protocol
from agentmesh.runtime.tls import TlsContext
from agentmesh.services import Dispatcher, ServiceTable
from agentmesh.services.here import Here
from agentmesh.transports.circuit import CircuitTransport
from agentmesh.transports.proxy import ProxyRules
from agentmesh.transports.standard import standard_transports
from agentmesh.types import Address


@asynccontextmanager
async def run_node(
    config: NodeConfig,
    *,
    transports: Sequence[Transport] | None = None,
    protocols: Sequence[Protocol] = (),
    proxies: ProxyRules | None = None,
    wall_clock: Callable[[], float] = time.time,
) -> AsyncGenerator[Node]:
    """`async with run_node(config) as node:` — a member, attached to a router if one answered in time.

    Args:
        config: the settings.
        transports: `standard_transports` when it is None. Circuits are always there.
        protocols: the application's own, beside the mesh's.
        proxies: through which proxy routers and the control plane are reached; what the environment says now if it is
            None, `agentmesh.transports.proxy.DIRECT` for nothing. `transports` that are given have their own.
        wall_clock: seconds since 1970.
    Raises:
        AddressError: the control plane's URL is none, or an outbound proxy's, or nothing here listens on one of the
            addresses.
        CredentialError: no credential to resume with, and no token.
        EnrollmentRejectedError: the token does not admit us.
        ControlPlaneError, RemoteProtocolError: the control plane refused, or was not there.
        StateError, IdentityError, OSError: the state folder; or an address to listen on is taken.
        ExceptionGroup: later on, of one CredentialError: the credential has expired and cannot be renewed.
    Cancellation: safe. A node that is cancelled while it enrolls gets in with the same state folder the next time.
    """
    state = StateDir(config.state_dir) if config.state_dir else None
    identity = state.identity() if state else Identity.generate()
    enrollment = attrs.evolve(config.enrollment, role=config.enrollment.role or ROLE_NODE)
    # Made first: a proxy that is none is told before an enrollment.
    transports = standard_transports(proxies) if transports is None else transports
    opening = open_membership(identity, enrollment, state=state, wall_clock=wall_clock, proxies=proxies)
    async with (
        opening as membership,
        run_node_as(membership, config, transports=transports, protocols=protocols) as node,
    ):
        yield node


@asynccontextmanager
async def run_node_as(
    membership: Membership,
    config: NodeConfig,
    *,
    transports: Sequence[Transport] | None = None,
    protocols: Sequence[Protocol] = (),
    rng: Random | None = None,
    security: Callable[[Identity], TlsContext] = TlsContext,
) -> AsyncGenerator[Node]:
    """`run_node` for a membership that has begun: its identity, its control plane, its clock.

    Args:
        rng: chooses among routers and spreads requests; the operating system's when it is None.
        security: as for `open_host`; the others as for `run_node`.
    """
    rng, direct = rng or SystemRandom(), standard_transports() if transports is None else transports
    book, services, relay = admission_book(membership), ServiceTable(), _relay_client(config, direct)
    catalogue = Catalogue(config.routers, rng, Selection(config.router_selector, config.router_prefer))
    admissions, goaways = RouterAdmissions(membership, catalogue, rng), GoAways(catalogue)
    circuits = CircuitTransport(admissions.connect, relay.open_circuit)
    rules, news, floodsub = _news_of(membership, rng)
    spoken = [
        attrs.evolve(auth.protocol(auth_policy(membership, book)), run=admissions.run),
        http.protocol(Dispatcher(services, service_policy(membership, rules))),
        identify.protocol(),
        ping.protocol(),
        relay.protocol(circuits.incoming),
        floodsub.protocol(),
        goaways.protocol(),
        *protocols,
    ]
    async with (
        open_host(
            identity=membership.identity,
            transports=[*direct, circuits],
            protocols=spoken,
            listen=config.listen,
            config=config.host,
            admissions=book,
            security=security,
        ) as host,
        open_background() as nursery,
    ):
        clock, reached = membership.wall_clock, DirectAddresses(config.reachability, host, rng)
        links: list[WhileAttached] = [partial(keep_linked, floodsub, rng, rules), reached.keep_checked]
        monitor = config.monitor_interval
        attachments = Attachments(host, admissions, catalogue, goaways, membership.info, clock, rng, links, monitor)
        enforce_bans(membership, host)
        directory = DirectoryClient(host.open_stream, lambda: attachments.routers)
        paths, here = Paths(host, catalogue, directory, direct=reached.is_auto), Here(services, host.peer)
        calls = make_calls(membership, paths, directory, here, config.require_labels)
        tunnels = Tunnels(host, lambda: attachments.routers, rng)
        idle = IdleSessions(host, catalogue, goaways.circuits_through, config.idle_timeout)
        for work in (membership.run, attachments.run, rules.run, partial(news.run, floodsub), here.run, idle.run):
            nursery.start_soon(work)
        announcer = Announcer(directory, services, partial(addresses_of, reached, attachments), clock, rng)
        async with announcing(announcer, host.peer, attachments, reached):
            await _wait_ready(attachments, rules, config.ready_timeout)
            parts = reached, floodsub, announcer, directory, rules, services
            yield Node(host, membership, attachments, *parts, paths, calls, tunnels)


def _relay_client(config: NodeConfig, transports: Sequence[Transport]) -> RelayClient:
    """With a data path where one of the transports dials plain connections."""
    return RelayClient(
        next((one for one in transports if isinstance(one, DataDialer)), None) if config.data_path else None
    )


def _news_of(membership: Membership, rng: Random) -> tuple[Rulebook, News, Floodsub]:
    """What a member keeps of the mesh's policy, what it does about events, and what brings them."""
    rules = Rulebook(lambda: membership.client.rules(membership.token()), rng, membership.kept_rules)
    news = News(membership, rules)
    return rules, news, Floodsub(Role.LEAF, policy=Policy(news.validate), wall_clock=membership.wall_clock)


async def _wait_ready(attachments: Attachments, rules: Rulebook, timeout: float) -> None:
    with trio.move_on_after(timeout):
        await attachments.wait_ready()
        await rules.wait_known()


def open_node(
    control_plane: str,
    token: str | None = None,
    *,
    state_dir: Path | str | None = None,
    labels: Mapping[str, str] | None = None,
    listen: Sequence[Address] = (),
    routers: int = 2,
    protocols: Sequence[Protocol] = (),
    proxies: ProxyRules | None = None,
) -> AbstractAsyncContextManager[Node]:
    """`async with open_node("http://10.0.0.1:8080", token) as node:` — `run_node` with the settings that matter most.

    Args:
        control_plane: its URL.
        token: a bootstrap token; not needed when `state_dir` holds a credential that is still good.
        state_dir: where key and credential are kept; None makes a new identity that ends with the process.
        labels: what the control plane is to attest.
        listen: where the node listens itself, if anywhere.
        routers: how many it is attached to.
        protocols: the application's own, beside the mesh's.
        proxies: through which proxy routers and the control plane are reached; what the environment says if it is None.
    Raises:
        As `run_node`.
    """
    config = NodeConfig(
        enrollment=Enrollment(control_plane=control_plane, token=token, labels=labels or {}),
        state_dir=Path(state_dir) if state_dir else None,
        listen=tuple(listen),
        routers=routers,
    )
    return run_node(config, protocols=protocols, proxies=proxies)
