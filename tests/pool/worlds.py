"""Routers and agents on a simulated network, and targets that agents connect to."""

import ipaddress
import random
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager

import attrs
import trio
from trio.testing import lockstep_stream_pair

from agentmesh.abc import Admission
from agentmesh.identity import Identity
from agentmesh.pool.agent.access import AccessPolicy, IPAddress
from agentmesh.pool.agent.agent import AgentPool, AgentSettings
from agentmesh.pool.agent.config import ConnectionsConfig
from agentmesh.pool.agent.instance import Instance
from agentmesh.pool.agent.serving import ServingLimits
from agentmesh.pool.agent.targets import Connector
from agentmesh.pool.registry import ConnectionRegistry, KeeperConfig
from agentmesh.pool.router.attached import Bearer
from agentmesh.pool.router.leased import PooledStream
from agentmesh.pool.router.limits import PoolLimits
from agentmesh.pool.router.listing import Lister
from agentmesh.pool.router.selection import healthy
from agentmesh.pool.router.service import PoolService
from agentmesh.pool.router.table import PoolTable
from agentmesh.protocols.pool import Open
from agentmesh.runtime.host import Host, open_host
from agentmesh.runtime.session import MuxSession
from agentmesh.testing.network import MemoryNetwork
from agentmesh.types import Address, PeerId
from tests.pool.scripts import FarEnd, make_far_end

ANYWHERE = Address.parse("/memory/0")
ECHO, BREAKING, REFUSED, SLOW = "93.184.216.1", "93.184.216.2", "93.184.216.3", "93.184.216.4"
HELD = "93.184.216.5"  # whose far end the test has


def asked(host: str = ECHO, protocol: str = "tcp") -> Open:
    return Open("", protocol, host, 22)


class Breaking(trio.abc.ReceiveStream):
    """What comes of a target that is reset when it has given a part."""

    def __init__(self) -> None:
        self._parts = [b"a part"]

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        await trio.lowlevel.checkpoint()
        if not self._parts:
            raise trio.BrokenResourceError
        return self._parts.pop()

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


@attrs.define
class Targets:
    """What agents reach: an echo, and others. They live in `nursery`.

    Attributes:
        held: the far ends of connections to HELD, the latest last.
    """

    nursery: trio.Nursery
    reached: list[str] = attrs.Factory(list[str])
    held: list[FarEnd] = attrs.Factory(list[FarEnd])
    cut: int = 0
    open: int = 0

    async def dial(self, address: IPAddress, port: int) -> trio.abc.HalfCloseableStream:
        self.reached.append(str(address))
        await trio.lowlevel.checkpoint()
        if str(address) == REFUSED:
            raise ConnectionRefusedError(111, "refused")
        if str(address) == SLOW:
            await trio.sleep_forever()
        if str(address) == HELD:
            held, far_end = make_far_end()
            self.held.append(far_end)
            return held
        near, far = lockstep_stream_pair()  # which holds no bytes of its own
        self.nursery.start_soon(self._echo, far)
        return trio.StapledStream(near, Breaking()) if str(address) == BREAKING else near

    async def _echo(self, stream: trio.abc.HalfCloseableStream) -> None:
        self.open += 1
        try:
            while data := await stream.receive_some():
                await stream.send_all(data)
            await stream.send_eof()
        except trio.BrokenResourceError:
            self.cut += 1
        finally:
            self.open -= 1

    async def resolve(self, name: str) -> Sequence[IPAddress]:
        await trio.lowlevel.checkpoint()
        return [ipaddress.ip_address(ECHO)]


@attrs.define
class Cluster:
    """One router, and agents that come and go."""

    network: MemoryNetwork
    host: Host
    service: PoolService
    targets: Targets
    nursery: trio.Nursery
    bearers: dict[PeerId, Bearer]
    _lister: Lister | None = None
    hosts: dict[str, Host] = attrs.Factory(dict[str, Host])  # of agents, by name

    @property
    def lister(self) -> Lister:
        assert self._lister is not None
        return self._lister

    @property
    def table(self) -> PoolTable:
        return self.service.table

    def connections(self, agent_id: str = "agent") -> list[str]:
        pool = self.table.get(agent_id)
        return [] if pool is None else [one.claim.instance_id for one in pool.connections]

    def healthy(self) -> int:
        """How many connections of the agent get streams."""
        pool = self.table.get("agent")
        return len(healthy(pool, self.table.limits, trio.current_time())) if pool else 0

    @asynccontextmanager
    async def agent(
        self,
        name: str,
        connections: ConnectionsConfig | None = None,
        *,
        agent_id: str = "agent",
        label: str | None = "agent",
        serving: ServingLimits | None = None,
        policy: Sequence[Mapping[str, object]] = ({},),
    ) -> AsyncGenerator[AgentPool]:
        """An agent's process, running."""
        identity = Identity.generate()
        self.bearers[identity.peer] = Bearer(label, f"token-{label}")
        connector = Connector(AccessPolicy.read(list(policy)), self.targets.resolve, self.targets.dial)
        settings = AgentSettings(
            agent_id=agent_id,
            instance=Instance(name, f"boot-{name}", is_kept=True),
            connections=connections or ConnectionsConfig(),
            serving=serving or ServingLimits(),
        )
        hosts: list[Host] = []

        async def dial() -> MuxSession:
            return await hosts[0].connect_anew(self.host.peer, self.host.addresses)

        pool = AgentPool(settings, dial, connector, chance=lambda: 0.5)
        async with (
            open_host(
                identity=identity,
                transports=[self.network.transport(name)],
                protocols=[pool.protocol(Admission.ANYONE)],
            ) as host,
            trio.open_nursery() as nursery,
        ):
            hosts.append(host)
            self.hosts[name] = host
            nursery.start_soon(pool.run)
            yield pool
            nursery.cancel_scope.cancel()

    async def wait_for(self, count: int, agent_id: str = "agent") -> None:
        """Until the agent has so many connections."""
        with trio.fail_after(600):
            while True:
                if len(self.connections(agent_id)) == count:
                    return
                await trio.sleep(0.1)

    async def open(self, host: str = ECHO) -> PooledStream:
        stream = await self.service.opener.open("agent", asked(host))
        assert isinstance(stream, PooledStream), stream
        return stream


async def say(stream: trio.abc.HalfCloseableStream, data: bytes = b"hello") -> bytes:
    """Say something to an echo and hear it."""
    await stream.send_all(data)
    said = b""
    while len(said) < len(data):
        got = await stream.receive_some()
        assert got, "ended early"
        said += bytes(got)
    return said


@asynccontextmanager
async def open_cluster(
    limits: PoolLimits | None = None, seed: int = 1, registry: ConnectionRegistry | None = None
) -> AsyncGenerator[Cluster]:
    network = MemoryNetwork(seed=seed)
    bearers: dict[PeerId, Bearer] = {}
    table = PoolTable("n1", limits)
    lister = Lister(registry, table, KeeperConfig(), random.Random(seed)) if registry else None
    service = PoolService(table, lambda session: bearers.get(session.peer), lister)
    async with (
        open_host(
            identity=Identity.generate(),
            transports=[network.transport("router")],
            protocols=[service.protocol(Admission.ANYONE)],
            listen=[ANYWHERE],
        ) as host,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(service.run)
        if lister is not None:
            nursery.start_soon(lister.run)
        yield Cluster(network, host, service, Targets(nursery), nursery, bearers, lister)
        nursery.cancel_scope.cancel()
