"""A node as its application sees it: services and clients."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import attrs

from agentmesh.abc import Stream
from agentmesh.errors import CredentialError, NotConnectedError
from agentmesh.membership import Membership
from agentmesh.membership.rulebook import Rulebook
from agentmesh.membership.topics import MESH_TOPICS, PUBLISH, SUBSCRIBE, topic_call
from agentmesh.node.announcer import Announcer
from agentmesh.node.attachments import Attachments
from agentmesh.node.discovery import Discovery, with_labels
from agentmesh.node.figures import ApiFigures
from agentmesh.node.paths import Paths
from agentmesh.node.reachability import DirectAddresses
from agentmesh.node.tunnels import Tunnels, TunnelTarget
from agentmesh.protocols.directory import DEFAULT_LIMIT, DirectoryClient, Found, service_key
from agentmesh.protocols.directory.wire import MAX_PROVIDERS
from agentmesh.protocols.floodsub import MAX_UNREAD, Floodsub, TopicReader
from agentmesh.protocols.http import ASGIApp
from agentmesh.runtime.host import Host
from agentmesh.services import MeshClient, MeshClient2, NamedCalls, ServiceTable, running
from agentmesh.services.labels import Labels, suffices
from agentmesh.services.table import ServiceKey, Target
from agentmesh.types import Address, PeerId, ProtocolId


def addresses_of(direct: DirectAddresses, attachments: Attachments) -> tuple[Address, ...]:
    """Where a node can be dialled: directly, and by circuits through the routers it holds."""
    return (*direct.addresses, *attachments.addresses)


@attrs.frozen
class Node:
    """A member of the mesh. Made by `open_node`.

    Attributes:
        host: its runtime.
        membership: its standing in the mesh.
        attachments: the routers it holds.
        direct: where it can be dialled without one.
        floodsub: what it hears and says through them.
        announcer: what it tells the directory of itself.
        directory: asks its routers.
        calls: carries what `http_client` sends.
        tunnels: lead to targets beside agents.
        figures: what programs of this machine ask of it.
    """

    host: Host
    membership: Membership
    attachments: Attachments
    direct: DirectAddresses
    floodsub: Floodsub
    announcer: Announcer
    directory: DirectoryClient
    _rules: Rulebook
    _services: ServiceTable
    _paths: Paths
    calls: NamedCalls
    tunnels: Tunnels
    figures: ApiFigures = attrs.field(factory=ApiFigures)

    @property
    def peer(self) -> PeerId:
        return self.host.peer

    @property
    def routers(self) -> tuple[PeerId, ...]:
        """The routers it holds now."""
        return self.attachments.routers

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Where others can dial it: where it listens or, with reachability "auto", where its routers reached it; and
        circuits through the routers it holds.
        """
        return addresses_of(self.direct, self.attachments)

    @property
    def services(self) -> tuple[ServiceKey, ...]:
        """What it serves."""
        return tuple(self._services)

    def target_of(self, service: ServiceKey) -> Target | None:
        """What a service of its own is: an application, or the URL of a server; None when it does not serve it."""
        return self._services.lookup(service.type, service.name)

    async def wait_ready(self) -> None:
        """Until one router is held: then it can be called, and calls."""
        await self.attachments.wait_ready()

    @asynccontextmanager
    async def serve(self, type: str, name: str, target: str | ASGIApp) -> AsyncGenerator[None]:
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

        `http://<name>.<type>.mesh/...` is whoever serves that, this node first; where one cannot answer another is
        tried. `http://<peer>.peer.mesh/<type>/<name>/...` is a certain member. `X-Mesh-Required-Labels: site=a, site=b`
        in a request has only those called that have one of these labels.

        Args:
            options: those of `httpx.AsyncClient`.
        """
        return MeshClient(self.calls, **options)

    def http_client2(self, **options: Any) -> MeshClient2:
        """The same for `httpx2`, which the official MCP and OpenAI SDKs take as their client."""
        return MeshClient2(self.calls, **options)

    async def open_stream(self, peer: PeerId, protocol: ProtocolId) -> Stream:
        """A stream of any protocol to another member.

        Raises:
            NotConnectedError: this node is attached to no router.
            DialError: no router reaches the peer.
            RejectedError: our own limits; a refusal by the peer comes with the first `receive_some`.
        """
        return await self._paths.open_stream(peer, protocol)

    async def open_tunnel(self, agent: str, target: str | TunnelTarget) -> Stream:
        """A tunnel to a target that an agent reaches: `await node.open_tunnel("devbox", "tcp://db.internal:5432")`.

        The agent is named by its ID, whichever processes and connections it has. Routers carry the bytes as they are.

        Args:
            agent: the agent's ID.
            target: `tcp://host:port`, as the agent sees it.
        Returns:
            The stream, the caller's to close; its bytes are the target's.
        Raises:
            TunnelError: there is no tunnel; `result` says how far it got and why, `retryable` whether to try again.
            NotConnectedError: this node is attached to no router.
            AddressError: no such target, or no agent can be called so.
        Cancellation: safe; no tunnel is left.
        """
        return await self.tunnels.open(agent, TunnelTarget.parse(target) if isinstance(target, str) else target)

    async def publish(self, topic: str, data: bytes) -> None:
        """Say something to all members that subscribe to a topic. Nobody waits for them to hear it.

        Args:
            topic: its name; a policy grants it as `system://topic.<name>`.
            data: at most 60 KiB or so, with the topic and a signature.
        Raises:
            CredentialError: no role of this member grants it ("denied"), or the policy is not known yet ("undecided").
            NotConnectedError: there is no router to pass it on.
            ValueError: the topic is the mesh's own, or has no name, or one too long; or there is too much data.
        Cancellation: safe; nothing is said then.
        """
        self._check_topic(topic, PUBLISH)
        if not await self.floodsub.publish(topic, data):
            raise NotConnectedError("there is no router to pass it on")

    @asynccontextmanager
    async def subscribe(self, topic: str, max_unread: int = MAX_UNREAD) -> AsyncGenerator[TopicReader]:
        """`async with node.subscribe("builds") as messages: async for message in messages` hears what others publish,
        from when the routers know of it: a moment after the block has begun.

        Args:
            topic: its name, as in `publish`.
            max_unread: how many messages wait for the reader. Of a reader that is slower the oldest are lost, and
                counted in `messages.missed`; nobody waits for it.
        Raises:
            CredentialError, ValueError: as `publish`.
        """
        self._check_topic(topic, SUBSCRIBE)
        with self.floodsub.subscribe(topic, max_unread) as reader:
            yield reader

    async def find_providers(self, type: str, name: str | None = None, limit: int = DEFAULT_LIMIT) -> tuple[Found, ...]:
        """Who serves something, as the directory has it.

        Args:
            type: of the service.
            name: of the service; None for whoever serves the type.
            limit: how many to find at most.
        Returns:
            Each with its peer ID and addresses; perhaps none, perhaps some that are gone since.
        Raises:
            NotConnectedError: there is no router to ask.
            DialError: none of them could answer.
            ValueError: no such type or name.
        """
        return await self.directory.find_providers(service_key(type, name), limit)

    def discover(
        self,
        type: str,
        name: str | None = None,
        limit: int = DEFAULT_LIMIT,
        *,
        any_of: Labels = (),
        all_of: Labels = (),
    ) -> Discovery:
        """`async for found in node.discover("mcp", "weather")` is `find_providers` as an iterator.

        Args:
            any_of: labels of which a member has to have one: `any_of=[("site", "a"), ("site", "b")]`.
            all_of: labels that it has to have, all of them. With either, those too that the operator requires.
        """
        if not any_of and not all_of:
            return Discovery(partial(self.find_providers, type, name, limit))
        has_labels = partial(self.has_labels, any_of=any_of, all_of=all_of)
        return Discovery(
            partial(with_labels, partial(self.find_providers, type, name, MAX_PROVIDERS), has_labels, limit)
        )

    async def has_labels(self, peer: PeerId, any_of: Labels = (), all_of: Labels = ()) -> bool:
        """Whether a member has one of `any_of`, if there are any, all of `all_of`, and all that the operator requires
        of members that are called. It is asked for its credential, unless that was done lately.

        Raises:
            DialError, RejectedError, SessionClosedError, RemoteProtocolError: it cannot be asked.
        """
        if peer == self.peer:
            return suffices(self.membership.credential.labels, any_of, all_of)
        try:
            await self.calls.calls.attest(peer, any_of, all_of)
        except CredentialError:
            return False
        return True

    async def find_peer(self, peer: PeerId) -> Found | None:
        """Where a member is, as the routers know; None when they do not. Raises as `find_providers`."""
        return await self.directory.find_peer(peer)

    def _check_topic(self, topic: str, verb: str) -> None:
        if topic.startswith(MESH_TOPICS):
            raise ValueError(f"topics that begin with {MESH_TOPICS} are the mesh's own")
        self._rules.check(self.membership.credential, None, topic_call(topic, verb), self.membership.trusted)


@asynccontextmanager
async def _started(target: str | ASGIApp) -> AsyncGenerator[str | ASGIApp]:
    if isinstance(target, str):
        yield target
    else:
        async with running(target) as app:
            yield app
