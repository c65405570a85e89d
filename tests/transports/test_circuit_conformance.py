"""A circuit through a router is a transport like another: the same suite, a relay and two members under it."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import trio
from trio.testing import wait_all_tasks_blocked

from agentmesh.abc import Admission, ByteStream, Transport
from agentmesh.identity import Identity
from agentmesh.protocols.relay import Relay, RelayClient, open_circuit, reserve
from agentmesh.runtime.admission import AdmissionBook
from agentmesh.runtime.host import Host, open_host
from agentmesh.runtime.registry import Protocol
from agentmesh.testing import MemoryNetwork, check_transport
from agentmesh.transports.circuit import CircuitTransport
from agentmesh.types import Address, PeerId

EPOCH = 1_900_000_000.0
ROUTER, NEAR, FAR = Identity.generate(), Identity.generate(), Identity.generate()
PLACE = Address.parse("/memory/1")


def wall_clock() -> float:
    return EPOCH + trio.current_time()


class Member:
    """A host that dials and takes circuits."""

    host: Host

    def __init__(self) -> None:
        self.transport = CircuitTransport(self.connect, self.open_circuit)

    async def connect(self, router: PeerId, addresses: Sequence[Address]) -> None:
        await self.host.connect(router, addresses)

    async def open_circuit(self, router: PeerId, peer: PeerId) -> ByteStream:
        return await open_circuit(self.host, router, peer)


@asynccontextmanager
async def make() -> AsyncGenerator[tuple[Transport, Transport]]:
    network = MemoryNetwork()

    async with AsyncExitStack() as stack:

        async def open_on(name: str, identity: Identity, protocol: Protocol, *listen: Address) -> Host:
            return await stack.enter_async_context(
                open_host(
                    identity=identity,
                    transports=[network.transport(name)],
                    protocols=[protocol],
                    listen=listen,
                    admissions=AdmissionBook(wall_clock),
                )
            )

        router = await open_on("router", ROUTER, Relay(wall_clock=wall_clock).protocol(), PLACE)
        near, far = Member(), Member()
        for name, identity, member in (("near", NEAR, near), ("far", FAR, far)):
            member.host = await open_on(name, identity, RelayClient().protocol(member.transport.incoming))
            await member.host.connect(router.peer, router.addresses)
            await wait_all_tasks_blocked()  # until the router has the session too
            router.admissions.admit(member.host.peer, Admission.MEMBER, EPOCH * 2)
        await reserve(far.host, router.peer)
        yield near.transport, far.transport


async def test_conforms(autojump_clock: trio.testing.MockClock) -> None:
    await check_transport(
        make,
        Address.parse(f"{PLACE}/p2p/{ROUTER.peer}/p2p-circuit"),
        dial_address=lambda address: address.with_peer(FAR.peer),
        exclusive=False,  # a second listener takes over
        max_buffered_bytes=8 * 1024 * 1024,  # the windows of both sessions, and what memory holds
        timeout=600,
    )
