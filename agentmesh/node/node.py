"""The composition of a node: config in, protocols and loops in one nursery, services and clients out."""

import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from random import SystemRandom
from typing import Any

import attrs
import trio

from agentmesh.abc import Stream, Transport
from agentmesh.identity import Identity
from agentmesh.membership import Enrollment, Membership, StateDir, open_membership
from agentmesh.membership.gate import auth_policy
from agentmesh.node.attachments import Attachments
from agentmesh.node.catalogue import Catalogue
from agentmesh.node.config import NodeConfig
from agentmesh.node.paths import Paths
from agentmesh.protocols import auth, http, identify, ping
from agentmesh.protocols.http import ASGIApp
from agentmesh.protocols.relay import RelayClient
from agentmesh.runtime.admission import AdmissionBook
from agentmesh.runtime.host import Host, open_host
from agentmesh.runtime.nursery import open_background
from agentmesh.runtime.registry import Protocol
from agentmesh.services import Calls, Dispatcher, MeshClient, MeshClient2, ServiceTable, running
from agentmesh.transports.circuit import CircuitTransport
from agentmesh.transports.tcp import TcpTransport
from agentmesh.transports.websocket import WebSocketTransport
from agentmesh.types import Address, PeerId, ProtocolId


@attrs.frozen
class Node:
    """A member of the mesh. Made by `open_node`.

    Attributes:
        host: its runtime.
        membership: its standing in the mesh.
        attachments: the routers it holds.
    """

    host: Host
    membership: Membership
    attachments: Attachments
    _services: ServiceTable
    _paths: Paths

    @property
    def peer(self) -> PeerId:
        return self.host.peer

    @property
    def routers(self) -> tuple[PeerId, ...]:
        """The routers it holds now."""
        return self.attachments.routers

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Where others can dial it."""
        return (*self.host.addresses, *self.attachments.addresses)

    async def wait_ready(self) -> None:
        """Until one router is held: then it can be called, and calls."""
        await self.attachments.wait_ready()

    @asynccontextmanager
    async def serve(self, type: str, name: str, target: str | ASGIApp) -> AsyncIterator[None]:
        """Serve as `http://<peer>.peer.mesh/<type>/<name>/…` for as long as the block lasts.

        Args:
            type: "mcp", "inference", "a2a", "egress" or "http".
            name: what callers know it by.
            target: an ASGI application, whose lifespan runs around the block, or the URL of a server.
        Raises:
            ValueError: the name is taken, or one of the three is malformed.
            ServiceError: the application failed to start.
        """
        async with _started(target) as served:
            self._services.register(type, name, served)
            try:
                yield
            finally:
                self._services.unregister(type, name)

    def http_client(self, **options: Any) -> MeshClient:
        """An `httpx.AsyncClient` for the mesh: `async with node.http_client(timeout=30) as client`.

        Args:
            options: those of `httpx.AsyncClient`.
        """
        return MeshClient(self._calls(), **options)

    def http_client2(self, **options: Any) -> MeshClient2:
        """The same for `httpx2`, which the official MCP and OpenAI SDKs take as their client."""
        return MeshClient2(self._calls(), **options)

    async def open_stream(self, peer: PeerId, protocol: ProtocolId) -> Stream:
        """A stream of any protocol to another member.

        Raises:
            NotConnectedError: this node is attached to no router.
            DialError: no router reaches the peer.
            RejectedError: our own limits; a refusal by the peer comes with the first `receive_some`.
        """
        return await self._paths.open_stream(peer, protocol)

    def _calls(self) -> Calls:
        async def open_peer(peer: PeerId) -> Stream:
            return await self._paths.open_stream(peer, http.HTTP_ID)

        return Calls(open_peer, self.membership.token)


@asynccontextmanager
async def run_node(
    config: NodeConfig,
    *,
    transports: Sequence[Transport] | None = None,
    protocols: Sequence[Protocol] = (),
    wall_clock: Callable[[], float] = time.time,
) -> AsyncIterator[Node]:
    """`async with run_node(config) as node:` — a member, attached to a router if one answered in time.

    Args:
        config: the settings.
        transports: TCP and WebSocket when it is None. Circuits are always there.
        protocols: the application's own, beside the mesh's.
        wall_clock: seconds since 1970.
    Raises:
        ControlPlaneError: the control plane refused, or was not there.
        CredentialError: no credential to resume with, and no token.
        ExceptionGroup: later on, the credential has expired and cannot be renewed.
    """
    state = StateDir(config.state_dir) if config.state_dir else None
    identity = state.identity() if state else Identity.generate()
    admissions, services, relay = AdmissionBook(wall_clock), ServiceTable(), RelayClient()
    circuits = CircuitTransport(relay.connect, relay.open_circuit)
    async with open_membership(identity, config.enrollment, state=state, wall_clock=wall_clock) as membership:
        spoken = [
            auth.protocol(auth_policy(membership, admissions)),
            http.protocol(Dispatcher(services, lambda token, peer, *_: _check(membership, token, peer))),
            identify.protocol(),
            ping.protocol(),
            relay.protocol(circuits.incoming),
            *protocols,
        ]
        async with (
            open_host(
                identity=identity,
                transports=[*([TcpTransport(), WebSocketTransport()] if transports is None else transports), circuits],
                protocols=spoken,
                listen=config.listen,
                config=config.host,
                admissions=admissions,
            ) as host,
            open_background() as nursery,
        ):
            attachments = Attachments(host, membership, Catalogue(config.routers, SystemRandom()), wall_clock)
            nursery.start_soon(membership.run)
            nursery.start_soon(attachments.run)
            with trio.move_on_after(config.ready_timeout):
                await attachments.wait_ready()
            yield Node(host, membership, attachments, services, Paths(host, attachments))


def open_node(
    control_plane: str,
    token: str | None = None,
    *,
    state_dir: Path | str | None = None,
    labels: Mapping[str, str] | None = None,
    listen: Sequence[Address] = (),
    routers: int = 2,
    protocols: Sequence[Protocol] = (),
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
    Raises:
        As `run_node`.
    """
    config = NodeConfig(
        enrollment=Enrollment(control_plane=control_plane, token=token, labels=labels or {}),
        state_dir=Path(state_dir) if state_dir else None,
        listen=tuple(listen),
        routers=routers,
    )
    return run_node(config, protocols=protocols)


def _check(membership: Membership, token: bytes, peer: PeerId) -> None:
    """Every member may call every service. Raises CredentialError for whoever is none."""
    membership.verify(token, peer)


@asynccontextmanager
async def _started(target: str | ASGIApp) -> AsyncIterator[str | ASGIApp]:
    if isinstance(target, str):
        yield target
    else:
        async with running(target) as app:
            yield app
