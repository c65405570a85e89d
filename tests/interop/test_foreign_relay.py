"""A relay that nobody here wrote: our host reserves there, is reached through it and reaches others through it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import trio

from agentmesh.protocols import relay as relay_protocol
from agentmesh.protocols.relay import RelayClient
from agentmesh.runtime.host import Host
from agentmesh.transports.circuit import CircuitTransport
from agentmesh.transports.tcp import TcpTransport
from agentmesh.types import Address, PeerId
from tests.interop.hosts import ECHO, TEN_MIB, echo, open_our_host
from tests.interop.peer import KINDS, PY, Kind, Peer, open_peer

RELAYS = [kind for kind in KINDS if kind.name != PY.name]
pytestmark = pytest.mark.parametrize("kind", RELAYS, ids=str)


def through(relay: Peer, peer: PeerId) -> Address:
    """The address of `peer` at this relay."""
    return relay.address / f"p2p-circuit/p2p/{peer}"


@asynccontextmanager
async def open_member(relay: Peer, kind: Kind) -> AsyncGenerator[Host]:
    """A host of ours with a reservation at the relay. It asks for data paths, which the relay knows nothing of."""
    client = RelayClient(TcpTransport())
    circuits = CircuitTransport(client.connect, client.open_circuit)
    async with open_our_host(client.protocol(circuits.incoming), listen=kind.listen, transports=[circuits]) as host:
        await host.connect(relay.peer, [relay.address])
        await relay.do("wait_connected", peer=host.peer)
        async with host.listening(relay.address / "p2p-circuit"):
            granted = await relay_protocol.reserve(host, relay.peer)
            assert granted.expires_at > 0
            yield host


async def test_two_of_ours_meet_there(kind: Kind) -> None:
    async with open_peer(kind, "--relay") as relay, open_member(relay, kind) as near, open_member(relay, kind) as far:
        await near.connect(far.peer, [through(relay, far.peer)])
        await echo(await near.open_stream(far.peer, ECHO), TEN_MIB)
        session = far.session(near.peer)
        assert session is not None
        assert session.address == through(relay, near.peer)


async def test_one_of_them_reaches_us_there(kind: Kind) -> None:
    async with open_peer(kind, "--relay") as relay, open_member(relay, kind) as member, open_peer(kind) as peer:
        await peer.do("relay_connect", address=through(relay, member.peer))
        answer = await peer.do("echo", peer=member.peer, size=TEN_MIB)
        assert answer["received"] == answer["sent"]


async def test_we_reach_one_of_them_there(kind: Kind) -> None:
    async with open_peer(kind, "--relay") as relay, open_member(relay, kind) as member, open_peer(kind) as peer:
        await peer.do("connect", address=relay.address)
        assert (await peer.do("reserve", relay=relay.peer))["granted"]
        await member.connect(peer.peer, [through(relay, peer.peer)])
        await echo(await member.open_stream(peer.peer, ECHO), TEN_MIB)


async def test_the_member_is_told_that_the_relay_is_gone(kind: Kind) -> None:
    async with open_peer(kind, "--relay") as relay, open_member(relay, kind) as member:
        session = member.session(relay.peer)
        assert session is not None
        await relay.do("disconnect", peer=member.peer)
        with trio.fail_after(5):
            await session.ended.wait()
