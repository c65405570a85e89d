"""A relay and two members, over memory, with a wall clock that follows Trio's."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from agentmesh.abc import Admission, ByteStream
from agentmesh.errors import RejectedError
from agentmesh.identity import Identity
from agentmesh.protocols.relay import CircuitStream, Relay, RelayClient, RelayConfig, Status, open_circuit, reserve
from agentmesh.protocols.relay.client import Place
from agentmesh.runtime.admission import AdmissionBook
from agentmesh.runtime.host import Host, open_host
from agentmesh.runtime.registry import Protocol
from agentmesh.testing import MemoryNetwork
from agentmesh.types import Address, PeerId

MIB = 1024 * 1024
EPOCH = 1_900_000_000.0
FOREVER = 1e12
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
    names: dict[PeerId, str] = attrs.Factory(dict[PeerId, str])

    async def join(self, serve: Serve = echo, *, admitted: bool = True) -> Host:
        """A member with a session to the relay, which takes circuits."""
        return await self.join_raw(RelayClient().protocol(Inbox(serve)), admitted=admitted)

    async def join_raw(
        self,
        *protocols: Protocol,
        admitted: bool = True,
        listen: str | None = None,
    ) -> Host:
        """A member with a session to the relay, and no protocols but these."""
        identity, name = Identity.generate(), f"member-{len(self.names)}"
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
    relay = Relay(config, is_admitted=is_admitted, wall_clock=wall_clock)
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
        yield Net(relay, router, network, stack)


async def read_all(stream: trio.abc.ReceiveStream) -> bytes:
    return b"".join([bytes(data) async for data in stream])


async def send_and_finish(stream: trio.abc.HalfCloseableStream, data: bytes) -> None:
    await stream.send_all(data)
    await stream.send_eof()


async def assert_nothing_left(net: Net, *members: Host) -> None:
    """No circuit in any book, no stream in any session, nothing being served."""
    await wait_all_tasks_blocked()
    assert net.relay.statistics().circuits == 0
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
