"""Reservations and circuits through our relay, with py-libp2p at one end or at both."""

import math
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import attrs
import pytest

from agentmesh.abc import Admission
from agentmesh.errors import DialError, RejectedError
from agentmesh.protocols import relay as relay_protocol
from agentmesh.protocols.relay import Relay, RelayClient, Status
from agentmesh.runtime.host import Host
from agentmesh.transports.circuit import CircuitTransport
from agentmesh.types import Address, PeerId
from tests.interop.hosts import ECHO, TEN_MIB, echo, open_our_host
from tests.interop.peer import PyPeer, open_peer


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
async def open_router() -> AsyncGenerator[Router]:
    relay = Relay()
    async with open_our_host(relay.protocol()) as host:
        yield Router(host, relay)


@asynccontextmanager
async def open_member(router: Router) -> AsyncGenerator[Host]:
    """A host of ours with a session to the router, reachable through it."""
    client = RelayClient()
    circuits = CircuitTransport(client.connect, client.open_circuit)
    async with open_our_host(client.protocol(circuits.incoming), transports=[circuits]) as host:
        await host.connect(router.host.peer, [router.address])
        router.admit(host.peer)
        async with host.listening(router.address / "p2p-circuit"):
            await relay_protocol.reserve(host, router.host.peer)
            yield host


async def attach(peer: PyPeer, router: Router) -> None:
    """A session from py-libp2p to the router, and a reservation."""
    await peer.do("connect", address=router.address)
    router.admit(peer.peer)
    answer = await peer.do("reserve", relay=router.host.peer)
    assert answer["granted"]
    assert answer["expires"] > 0


async def test_a_circuit_between_two_of_them() -> None:
    async with open_router() as router, open_peer() as near, open_peer() as far:
        await near.do("connect", address=router.address)
        router.admit(near.peer)
        await attach(far, router)
        await near.do("relay_connect", address=router.to(far.peer))
        answer = await near.do("echo", peer=far.peer, size=TEN_MIB)
        assert answer["received"] == answer["sent"]
        await far.do("ping", peer=near.peer)
        found = router.relay.statistics()
        assert (found.reservations, found.circuits, found.opened) == (1, 1, 1)
        assert found.relayed_bytes > 2 * TEN_MIB


async def test_a_circuit_from_one_of_them_to_us() -> None:
    async with open_router() as router, open_member(router) as member, open_peer() as peer:
        await peer.do("connect", address=router.address)
        router.admit(peer.peer)
        await peer.do("relay_connect", address=router.to(member.peer))
        answer = await peer.do("echo", peer=member.peer, size=TEN_MIB)
        assert answer["received"] == answer["sent"]
        session = member.session(peer.peer)
        assert session is not None
        assert session.address == router.to(peer.peer)


async def test_a_circuit_from_us_to_one_of_them() -> None:
    async with open_router() as router, open_member(router) as member, open_peer() as peer:
        await attach(peer, router)
        await member.connect(peer.peer, [router.to(peer.peer)])
        await echo(await member.open_stream(peer.peer, ECHO), TEN_MIB)
        await peer.do("ping", peer=member.peer)


async def test_a_reservation_outlives_its_renewal() -> None:
    async with open_router() as router, open_peer() as peer:
        await attach(peer, router)
        assert (await peer.do("reserve", relay=router.host.peer))["granted"]
        found = router.relay.statistics()
        assert (found.reservations, found.granted) == (1, 2)


async def test_no_reservation_without_admission() -> None:
    async with open_router() as router, open_peer() as peer:
        await peer.do("connect", address=router.address)
        assert not (await peer.do("reserve", relay=router.host.peer))["granted"]
        assert router.relay.statistics().refusals[Status.PERMISSION_DENIED] == 1


async def test_no_circuit_without_a_reservation() -> None:
    async with open_router() as router, open_member(router) as member, open_peer() as near, open_peer() as far:
        for peer in (near, far):
            await peer.do("connect", address=router.address)
            router.admit(peer.peer)
        refusal = await near.ask("relay_connect", address=router.to(far.peer))
        assert re.search(rf"status \D*{Status.NO_RESERVATION.value}", refusal["error"])
        with pytest.raises(DialError) as failure:
            await member.connect(far.peer, [router.to(far.peer)])
        cause = failure.value.__cause__
        assert isinstance(cause, DialError)
        assert isinstance(cause.__cause__, RejectedError)


async def test_a_circuit_ends_with_the_session_in_it() -> None:
    async with open_router() as router, open_member(router) as member, open_peer() as peer:
        await attach(peer, router)
        session = await member.connect(peer.peer, [router.to(peer.peer)])
        assert router.relay.statistics().circuits == 1
        await session.aclose()
        await peer.do("wait_connected", peer=member.peer, connected=False)
        await echo(await router.host.open_stream(peer.peer, ECHO), 1)  # the session below it goes on
        assert router.relay.statistics().circuits == 0
