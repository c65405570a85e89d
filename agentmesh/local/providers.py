"""Who serves what in the mesh, by name: the directory says which members, each member which services it has for us."""

from collections.abc import Awaitable, Callable
from typing import Protocol as Interface

import attrs
import httpx2
import trio

from agentmesh.errors import MeshError
from agentmesh.local.asking import fetch
from agentmesh.node import Node
from agentmesh.services import MeshClient2, ServiceKey, host_name
from agentmesh.services.dispatch import CATALOG_PATH
from agentmesh.services.labels import Labels
from agentmesh.types import PeerId

MAX_ASKED_AT_ONCE = 8  # members
MEMBER_TIMEOUT = 5.0  # seconds for one to say what it serves
MAX_FOUND = 100  # members that one search looks at


@attrs.frozen
class Provider:
    """A service of a member."""

    peer: PeerId
    service: ServiceKey

    @property
    def path(self) -> str:
        """Where the local API has it."""
        return f"/mesh/{self.peer}/{self.service.type}/{self.service.name}/"


@attrs.frozen
class Wanted:
    """What labels a member has to have: one of `any_of`, if there are any, and all of `all_of`."""

    any_of: Labels = ()
    all_of: Labels = ()


ANY = Wanted()


class Discovery(Interface):
    """How providers are found; a node's is `MeshDiscovery`."""

    async def find(
        self, type: str, name: str | None, found: Callable[[Provider], Awaitable[None]], wanted: Wanted = ANY
    ) -> None:
        """Call `found` with each that has the labels, as it is found.

        Raises:
            DialError: there is no router to ask, or none could answer.
            ValueError: no such type or name.
        """
        ...


async def collect(discovery: Discovery, type: str, name: str | None = None) -> list[Provider]:
    """All of them, in order. Raises as `Discovery.find`."""
    providers: list[Provider] = []

    async def keep(provider: Provider) -> None:
        providers.append(provider)
        await trio.lowlevel.checkpoint()

    await discovery.find(type, name, keep)
    return sorted(providers, key=lambda provider: (str(provider.service), str(provider.peer)))


@attrs.frozen
class MeshDiscovery:
    """Finds providers for a node, itself left out."""

    node: Node

    async def find(
        self, type: str, name: str | None, found: Callable[[Provider], Awaitable[None]], wanted: Wanted = ANY
    ) -> None:
        discovered = self.node.discover(type, name, MAX_FOUND, any_of=wanted.any_of, all_of=wanted.all_of)
        peers = [one.peer async for one in discovered if one.peer != self.node.peer]
        if name is not None:
            for peer in peers:
                await found(Provider(peer, ServiceKey(type, name)))
            return
        room = trio.CapacityLimiter(MAX_ASKED_AT_ONCE)

        async def ask(peer: PeerId) -> None:
            async with room:
                services = await catalog(client, peer)
            for service in services:
                if service.type == type:
                    await found(Provider(peer, service))

        async with self.node.http_client2() as client, trio.open_nursery() as nursery:
            for peer in peers:
                nursery.start_soon(ask, peer)


async def catalog(client: MeshClient2, peer: PeerId) -> list[ServiceKey]:
    """What a member serves for this one; nothing when it does not say within MEMBER_TIMEOUT seconds."""
    with trio.move_on_after(MEMBER_TIMEOUT):
        try:
            answer = await fetch(client, "GET", f"http://{host_name(peer)}{CATALOG_PATH.decode()}")
        except (httpx2.TransportError, MeshError):
            return []
        lines = answer.text.splitlines() if answer.status_code == 200 else []
        return [ServiceKey(*line.split("://", 1)) for line in lines if line.count("://") == 1]
    return []
