"""A router and members as hosts, over memory and in virtual time: what crosses a circuit, and what breaks one."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import attrs
import trio

from agentmesh.abc import ByteStream, Transport
from agentmesh.identity import Identity
from agentmesh.protocols.relay import Relay, RelayClient, reserve
from agentmesh.runtime.host import Host, open_host
from agentmesh.runtime.registry import Protocol
from agentmesh.runtime.session import MuxSession
from agentmesh.runtime.tls import TlsContext
from agentmesh.transports.circuit import CircuitTransport
from agentmesh.transports.memory import MemoryHub, MemoryTransport
from agentmesh.types import Address, ProtocolId

ECHO = ProtocolId("/test/echo/1.0.0")
SINK = ProtocolId("/test/sink/1.0.0")
LISTEN = Address.parse("/memory/1")


async def echo(stream: ByteStream) -> None:
    while data := await stream.receive_some():
        await stream.send_all(data)


async def count(stream: ByteStream) -> None:
    """Take everything, then say how many bytes it was."""
    received = 0
    while data := await stream.receive_some():
        received += len(data)
    await stream.send_all(str(received).encode())


PROTOCOLS = (Protocol(ECHO, echo), Protocol(SINK, count))


@attrs.define
class Mesh:
    """The hosts of one test, closed with it."""

    relay: Relay
    router: Host
    stack: AsyncExitStack
    transport: Callable[[str], Transport]

    async def member(self, name: str, protocols: Sequence[Protocol] = PROTOCOLS, *, reachable: bool = True) -> Host:
        """A host with a session to the router; others can reach it through the router if it is reachable."""
        client = RelayClient()
        circuits = CircuitTransport(client.connect, client.open_circuit)
        host = await self.stack.enter_async_context(
            open_host(
                identity=Identity.generate(),
                transports=[self.transport(name), circuits],
                protocols=[*protocols, client.protocol(circuits.incoming)],
            )
        )
        await host.connect(self.router.peer, self.router.addresses)
        if reachable:
            await self.stack.enter_async_context(host.listening(self.router.addresses[0] / "p2p-circuit"))
            await reserve(host, self.router.peer)
        return host

    async def circuit(self, caller: Host, callee: Host) -> MuxSession:
        """A session of two members through the router."""
        return await caller.connect(callee.peer, [self.router.addresses[0] / f"p2p-circuit/p2p/{callee.peer}"])


@asynccontextmanager
async def open_mesh(
    transport: Callable[[str], Transport] | None = None,
    security: Callable[[Identity], TlsContext] = TlsContext,
    listen: Address = LISTEN,
) -> AsyncGenerator[Mesh]:
    """A router called "router"; `transport` gives each named host its own."""
    hub = MemoryHub()
    transport = transport or (lambda name: MemoryTransport(hub))
    relay = Relay(is_admitted=lambda peer: True, wall_clock=trio.current_time)
    async with AsyncExitStack() as stack:
        router = await stack.enter_async_context(
            open_host(
                identity=Identity.generate(),
                transports=[transport("router")],
                protocols=[relay.protocol()],
                listen=[listen],
                security=security,
            )
        )
        yield Mesh(relay, router, stack, transport)
