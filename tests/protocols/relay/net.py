"""A relay and two members, over memory, with a wall clock that follows Trio's.

Circuits go over streams, or on connections of their own; tests that ask for the fixture `carriers` are run for both.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from agentmesh.abc import Admission, ByteStream, DataDialer
from agentmesh.errors import RejectedError
from agentmesh.identity import Identity
from agentmesh.protocols.relay import CircuitStream, Relay, RelayClient, RelayConfig, Status, open_circuit, reserve
from agentmesh.protocols.relay.client import Place
from agentmesh.runtime.admission import AdmissionBook
from agentmesh.runtime.host import Host, open_host
from agentmesh.runtime.registry import Protocol
from agentmesh.testing import MemoryNetwork
from agentmesh.types import Address, PeerId
from tests.protocols.relay.connections import MemoryDialer, MemorySplicer

MIB = 1024 * 1024
PIECE = MIB // 4
EPOCH = 1_900_000_000.0
FOREVER = 1e12
STREAMS, CONNECTIONS = "streams", "connections"
CARRIER: str = STREAMS
Serve = Callable[[ByteStream], Awaitable[None]]


def wall_clock() -> float:
    return EPOCH + trio.current_time()


@attrs.define
class Inbox:
    """Takes every circuit that is offered, and has `serve` handle it."""

    serve: Serve
    sources: list[PeerId] = attrs.Factory(list[PeerId])

    def __call__(self, source: PeerId, relay: PeerId) -> Place:
        self.sources.append(source)
        return _Taken(self.serve)


@attrs.frozen
class _Taken(Place):
    serve: Serve

    def __exit__(self, *error: object) -> None:
        return None

    async def deliver(self, stream: ByteStream) -> None:
        async with stream:
            await self.serve(stream)


async def echo(stream: ByteStream) -> None:
    assert isinstance(stream, CircuitStream)
    while data := await stream.receive_some():
        await stream.send_all(data)
    await stream.send_eof()


@attrs.define
class Net:
    """The hosts of one test. Everybody is admitted by the relay, unless a test says otherwise."""

    relay: Relay
    router: Host
    network: MemoryNetwork
    stack: AsyncExitStack
    splicer: MemorySplicer | None
    names: dict[PeerId, str] = attrs.Factory(dict[PeerId, str])
    clients: dict[PeerId, RelayClient] = attrs.Factory(dict[PeerId, RelayClient])

    async def join(self, serve: Serve = echo, *, admitted: bool = True, dialer: DataDialer | None = None) -> Host:
        """A member with a session to the relay, which takes circuits.

        Args:
            dialer: what gives its circuits connections, if it is not what the whole net has.
        """
        client = RelayClient(dialer or self.dialer(self.next_name))
        host = await self.join_raw(client.protocol(Inbox(serve)), admitted=admitted)
        self.clients[host.peer] = client
        return host

    def dialer(self, name: str) -> MemoryDialer | None:
        return MemoryDialer(self.network.transport(name), self.stack) if self.splicer else None

    async def circuit(self, near: Host, far: Host) -> CircuitStream:
        """A circuit between two members, by what carries them here."""
        circuit = await self.clients[near.peer].open_circuit(self.router.peer, far.peer)
        assert circuit.is_spliced == (self.splicer is not None)
        return circuit

    @property
    def next_name(self) -> str:
        return f"member-{len(self.names)}"

    async def join_raw(
        self,
        *protocols: Protocol,
        admitted: bool = True,
        listen: str | None = None,
    ) -> Host:
        """A member with a session to the relay, and no protocols but these."""
        identity, name = Identity.generate(), self.next_name
        self.names[identity.peer] = name
        host = await self.stack.enter_async_context(
            open_host(
                identity=identity,
                transports=[self.network.transport(name)],
                protocols=protocols,
                listen=[] if listen is None else [Address.parse(listen)],
                admissions=AdmissionBook(wall_clock),
            )
        )
        await host.connect(self.router.peer, self.router.addresses)
        await wait_all_tasks_blocked()  # until the router has the session too
        if admitted:
            self.admit(host)
        return host

    async def join_reachable(self, serve: Serve = echo) -> Host:
        """A member with a reservation."""
        host = await self.join(serve)
        await reserve(host, self.router.peer)
        return host

    def freeze(self, host: Host) -> None:
        """The member stops, like a process that is: its connections neither end nor break."""
        self.network.freeze(self.names[host.peer])

    def admit(self, host: Host, until: float = FOREVER) -> None:
        self.router.admissions.admit(host.peer, Admission.MEMBER, until)


@asynccontextmanager
async def open_net(
    config: RelayConfig | None = None, is_admitted: Callable[[PeerId], bool] | None = None
) -> AsyncGenerator[Net]:
    network = MemoryNetwork()
    splicer = MemorySplicer() if CARRIER == CONNECTIONS else None
    relay = Relay(config, is_admitted=is_admitted, splicer=splicer, wall_clock=wall_clock)
    async with AsyncExitStack() as stack:
        router = await stack.enter_async_context(
            open_host(
                identity=Identity.generate(),
                transports=[network.transport("router")],
                protocols=[relay.protocol()],
                listen=[Address.parse("/memory/1")],
                admissions=AdmissionBook(wall_clock),
            )
        )
        yield Net(relay, router, network, stack, splicer)


async def read_all(stream: trio.abc.ReceiveStream) -> bytes:
    return b"".join([bytes(data) async for data in stream])


async def send_all(stream: trio.abc.SendStream, data: bytes) -> None:
    """A piece at a time: the simulated network copies what is left after each segment."""
    for start in range(0, len(data), PIECE):
        await stream.send_all(data[start : start + PIECE])


async def send_and_finish(stream: trio.abc.HalfCloseableStream, data: bytes) -> None:
    await send_all(stream, data)
    await stream.send_eof()


async def assert_nothing_left(net: Net, *members: Host) -> None:
    """No circuit in any book, no stream in any session, nothing being served."""
    await wait_all_tasks_blocked()
    assert net.relay.statistics().circuits == net.relay.statistics().data_paths.circuits == 0
    assert net.relay.book.circuits == ()
    assert net.router.statistics().streams.serving == 0
    for member in members:
        assert member.statistics().streams.serving == 0
        assert [stream for session in member.connections for stream in session.streams] == []
    assert [stream for session in net.router.connections for stream in session.streams] == []


async def assert_refused(near: Host, net: Net, destination: PeerId, status: Status) -> None:
    before = net.relay.statistics().refusals[status]
    with pytest.raises(RejectedError) as refused:
        await open_circuit(near, net.router.peer, destination)
    assert refused.value.code is status
    assert net.relay.statistics().refusals[status] == before + 1
