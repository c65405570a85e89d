"""What a soak runs on: a network with faults, and how members and routers are put on it."""

import abc
import random
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager

import trio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from agentmesh.abc import Transport
from agentmesh.identity import Identity
from agentmesh.membership import Enrollment, Membership
from agentmesh.node import Node, NodeConfig, run_node_as
from agentmesh.router import Router
from agentmesh.runtime.config import HostConfig
from agentmesh.runtime.registry import Protocol
from agentmesh.runtime.tls import TlsContext
from agentmesh.types import Address
from tests.membership.plane import NODE_TOKEN, URL, Plane
from tests.soak.scenario import Injection

ENROLLMENT = Enrollment(control_plane=URL)


class World(abc.ABC):
    """A network, and a control plane that is a value.

    Args:
        seed: of the identities, and of what members draw.
        wall_clock: seconds since 1970.

    Attributes:
        security: how links are secured.
        host: the settings of every host.
        recovery: seconds in which all transfers have to be through once nothing goes wrong any more.
        patience: seconds that everything may take to come to rest then.
        interval: seconds between two looks at it.
    """

    security: Callable[[Identity], TlsContext]
    host: HostConfig
    recovery: float
    patience: float
    interval: float

    def __init__(self, seed: int, wall_clock: Callable[[], float]) -> None:
        self.plane = Plane(now=wall_clock)
        self.seed = seed
        self._wall_clock = wall_clock

    @abc.abstractmethod
    def open_router(self, number: int) -> AbstractAsyncContextManager[Router]: ...

    @abc.abstractmethod
    def node_transports(self, number: int) -> Sequence[Transport]:
        """How a member dials."""

    @abc.abstractmethod
    def stranger(self, chance: random.Random, router: Router) -> tuple[Transport, Address]:
        """How somebody who is no member reaches a router, and where."""

    @abc.abstractmethod
    async def inject(self, injection: Injection, routers: Sequence[Router], node: Node | None) -> int:
        """Let a fault happen, until it is over.

        Args:
            injection: the fault.
            routers: all of them.
            node: its member, if that is up.
        Returns:
            How many ways it was that it happened to.
        """

    @abc.abstractmethod
    def vanish(self, number: int) -> None:
        """A member's process is about to die: what it says from now on reaches nobody, where that can be."""

    def identity(self, name: str) -> Identity:
        """Whoever has this name in this run, and in any other of its seed."""
        secret = random.Random(f"{self.seed}/{name}").randbytes(32)
        return Identity(Ed25519PrivateKey.from_private_bytes(secret))

    async def open_node(self, number: int, protocols: Sequence[Protocol] = ()) -> AbstractAsyncContextManager[Node]:
        name = member_name(number)
        return run_node_as(
            await self.enroll(name, NODE_TOKEN),
            NodeConfig(enrollment=ENROLLMENT, host=self.host),
            transports=self.node_transports(number),
            protocols=protocols,
            rng=random.Random(f"{self.seed}/{name}/{trio.current_time()}"),
            security=self.security,
        )

    async def enroll(self, name: str, token: str) -> Membership:
        identity = self.identity(name)
        enrollment = Enrollment(control_plane=URL, token=token)
        membership = Membership(identity, self.plane.client(identity), enrollment, None, self._wall_clock)
        await membership.begin()
        return membership


def router_name(number: int) -> str:
    return f"router-{number}"


def member_name(number: int) -> str:
    return f"member-{number}"
