"""Our relay and our members, for the tests with real peers. Between two of ours circuits would be spliced."""

import math
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import attrs

from agentmesh.abc import Admission
from agentmesh.protocols import relay as relay_protocol
from agentmesh.protocols.relay import Relay, RelayClient
from agentmesh.runtime.host import Host
from agentmesh.transports.circuit import CircuitTransport
from agentmesh.transports.splice import open_splicer
from agentmesh.transports.tcp import TcpTransport
from agentmesh.types import Address, PeerId
from tests.interop.hosts import open_our_host
from tests.interop.peer import Kind, Peer


@attrs.frozen
class Router:
    """Our relay and its host."""

    host: Host
    relay: Relay

    @property
    def address(self) -> Address:
        return self.host.addresses[0]

    def to(self, peer: PeerId) -> Address:
        """The address of `peer` through this relay."""
        return self.address / f"p2p-circuit/p2p/{peer}"

    def admit(self, *peers: PeerId) -> None:
        for peer in peers:
            self.host.admissions.admit(peer, Admission.MEMBER, math.inf)


@asynccontextmanager
async def open_router(kind: Kind) -> AsyncGenerator[Router]:
    with open_splicer() as splicer:
        relay = Relay(splicer=splicer)
        async with open_our_host(relay.protocol(), listen=kind.listen) as host:
            yield Router(host, relay)


@asynccontextmanager
async def open_member(router: Router, kind: Kind) -> AsyncGenerator[Host]:
    """A host of ours with a session to the router, reachable through it."""
    client = RelayClient(TcpTransport())
    circuits = CircuitTransport(client.connect, client.open_circuit)
    async with open_our_host(client.protocol(circuits.incoming), transports=[circuits]) as host:
        await host.connect(router.host.peer, [router.address])
        router.admit(host.peer)
        async with host.listening(router.address / "p2p-circuit"):
            await relay_protocol.reserve(host, router.host.peer)
            yield host


async def attach(peer: Peer, router: Router) -> None:
    """A session from the peer to the router, and a reservation."""
    await peer.do("connect", address=router.address)
    router.admit(peer.peer)
    answer = await peer.do("reserve", relay=router.host.peer)
    assert answer["granted"]
    assert answer["expires"] > 0
