"""The loopback interface: real sockets and real time, and a shim before every port of a router."""

import random
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager

import trio

from agentmesh.abc import Transport
from agentmesh.node import Node
from agentmesh.router import Router, RouterConfig, open_router_as
from agentmesh.runtime.config import ConnectionLimits, HostConfig, SessionConfig
from agentmesh.runtime.nursery import open_background
from agentmesh.runtime.tls import TlsContext
from agentmesh.transports.h2 import H2Config, H2Transport
from agentmesh.transports.tcp import TcpTransport
from agentmesh.transports.websocket import WebSocketTransport
from agentmesh.types import Address
from tests.membership.plane import ROUTER_TOKEN
from tests.soak.scenario import Fault, Injection, Scope
from tests.soak.shim import Passage, Shim, open_shim
from tests.soak.world import ENROLLMENT, World, router_name

KINDS: Sequence[tuple[str, Callable[[], Transport]]] = (  # what is behind the port of an address, and who dials it
    ("", TcpTransport),
    ("/ws", WebSocketTransport),
    ("/http", H2Transport),
)
PATHS_OF_A_MEMBER = 2
H2 = H2Config(idle_timeout=5.0)
MAX_HANDSHAKES = 48


class LoopbackWorld(World):
    """Routers that listen on every transport, and members that each dial by one of them, or by all.

    Args:
        seed: of the faults, as far as they are drawn as they come.
        ping_interval: of every session, in seconds: a path that was forgotten is noticed within three of them.
    """

    security = TlsContext
    recovery = 330.0  # a router that was in trouble may be shunned for 300
    patience = 90.0  # closed streams may linger for 60
    interval = 1.0

    def __init__(self, seed: int, ping_interval: float = SessionConfig().ping_interval) -> None:
        super().__init__(seed, time.time)
        # Few handshakes at once: all hosts share one core, and a handshake that takes too long was for nothing.
        limits = ConnectionLimits(max_handshakes=MAX_HANDSHAKES)
        self.host = HostConfig(session=SessionConfig(ping_interval=ping_interval), connections=limits)
        self._chance = random.Random(seed)
        self._shims: dict[int, list[Shim]] = {}

    @asynccontextmanager
    async def open_router(self, number: int) -> AsyncGenerator[Router]:
        name = router_name(number)
        async with open_background() as nursery:
            shims = self._shims[number] = [await open_shim(self._chance) for _ in KINDS]
            for shim in shims:
                nursery.start_soon(shim.serve)
            config = RouterConfig(
                enrollment=ENROLLMENT,
                listen=_addresses([0] * len(KINDS)),
                external_addresses=_addresses([shim.port for shim in shims]),
                host=self.host,
            )
            membership = await self.enroll(name, ROUTER_TOKEN)
            transports = [TcpTransport(), WebSocketTransport(), H2Transport(config=H2)]
            async with open_router_as(membership, config, transports=transports, security=self.security) as router:
                for shim, address in zip(shims, router.host.addresses, strict=True):
                    shim.target = int(address.value("tcp") or 0)
                yield router

    def node_transports(self, number: int) -> Sequence[Transport]:
        kinds = [KINDS[number % 4]] if number % 4 < len(KINDS) else KINDS
        return [kind() for _, kind in kinds]

    def stranger(self, chance: random.Random, router: Router) -> tuple[Transport, Address]:
        transport = chance.choice(KINDS)[1]()
        return transport, next(address for address in router.addresses if transport.can_dial(address))

    def vanish(self, number: int) -> None:
        """On a real network a process that dies is noticed, as the system closes its sockets."""

    async def inject(self, injection: Injection, routers: Sequence[Router], node: Node | None) -> int:
        passages = self._concerned(injection)
        for passage in passages:
            _harm(passage, injection)
        await trio.sleep(injection.lasts)
        for passage in passages:
            _heal(passage, injection)
        return len(passages)

    def _concerned(self, injection: Injection) -> Sequence[Passage]:
        passages = [passage for shim in self._shims[injection.router] for passage in shim.passages]
        if injection.scope is Scope.ROUTER or not passages:
            return passages
        count = 1 if injection.scope is Scope.PATH else PATHS_OF_A_MEMBER
        return [passages[(injection.member + i) % len(passages)] for i in range(count)]


def _addresses(ports: Sequence[int]) -> tuple[Address, ...]:
    return tuple(
        Address.parse(f"/ip4/127.0.0.1/tcp/{port}{suffix}") for port, (suffix, _) in zip(ports, KINDS, strict=True)
    )


def _harm(passage: Passage, injection: Injection) -> None:
    one_way = passage.outwards if injection.inbound else passage.inwards
    match injection.fault:
        case Fault.RESET:
            passage.reset()
        case Fault.FORGET:
            passage.forget()
        case Fault.HALF_CLOSE:
            one_way.end()
        case Fault.GARBAGE:
            one_way.garble()
        case Fault.FREEZE:
            for pump in passage.pumps:
                pump.freeze()
        case Fault.SLOW:
            for pump in passage.pumps:
                pump.bytes_per_second = 2e5 * 0.1**injection.badness


def _heal(passage: Passage, injection: Injection) -> None:
    for pump in passage.pumps:
        match injection.fault:
            case Fault.FREEZE:
                pump.thaw()
            case Fault.SLOW:
                pump.bytes_per_second = float("inf")
            case _:
                pass
