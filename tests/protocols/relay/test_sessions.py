"""Sessions over circuits: two members behind a relay, each with a key of its own, and TLS from end to end."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from agentmesh.abc import Admission, Stream
from agentmesh.errors import DialError, PeerMismatchError, RejectedError
from agentmesh.identity import Identity
from agentmesh.protocols.relay import HOP_ID, STOP_ID, Relay, RelayClient, Status, reserve
from agentmesh.runtime.admission import AdmissionBook
from agentmesh.runtime.host import Host, open_host
from agentmesh.runtime.registry import Protocol
from agentmesh.runtime.stream import MuxStream
from agentmesh.testing import cancel_at_every_await
from agentmesh.transports.circuit import CircuitTransport
from agentmesh.types import Address, PeerId, ProtocolId
from tests.protocols.relay.net import FOREVER, MIB, Net, assert_nothing_left, open_net, wall_clock

ECHO_ID = ProtocolId("/test/echo/1.0.0")
MARKER = b"nobody on the way may read this"

pytestmark = pytest.mark.usefixtures("carriers")


async def serve_echo(stream: Stream) -> None:
    async for data in stream:
        await stream.send_all(data)
    await stream.send_eof()


@asynccontextmanager
async def open_member(net: Net, *protocols: Protocol, reachable: bool = True) -> AsyncGenerator[Host]:
    """A host that dials through circuits, and takes them."""
    identity = Identity.generate()
    name = f"host-{identity.peer}"
    client = RelayClient(net.dialer(name))
    circuits = CircuitTransport(client.connect, client.open_circuit)
    async with open_host(
        identity=identity,
        transports=[net.network.transport(name), circuits],
        protocols=[client.protocol(circuits.incoming), Protocol(ECHO_ID, serve_echo), *protocols],
        admissions=AdmissionBook(wall_clock),
    ) as host:
        net.names[host.peer] = name
        await host.connect(net.router.peer, net.router.addresses)
        await wait_all_tasks_blocked()
        net.admit(host)
        if not reachable:
            yield host
            return
        granted = await reserve(host, net.router.peer)
        async with host.listening(granted.addresses[0]):
            yield host


def circuit_to(net: Net, peer: PeerId) -> Address:
    return net.router.addresses[0] / f"p2p-circuit/p2p/{peer}"


async def echo(host: Host, peer: PeerId, data: bytes) -> bytes:
    got = b""
    async with await host.open_stream(peer, ECHO_ID) as stream, trio.open_nursery() as nursery:

        async def send() -> None:
            await stream.send_all(data)
            await stream.send_eof()

        nursery.start_soon(send)
        async for piece in stream:
            got += piece
    return got


async def test_members_reach_each_other_through_the_relay(autojump_clock: MockClock) -> None:
    async with open_net() as net, open_member(net) as far, open_member(net, reachable=False) as near:
        address = circuit_to(net, far.peer)
        assert far.addresses == (address,)
        session = await near.connect(far.peer, [address])
        assert (session.peer, session.address) == (far.peer, address)
        assert await echo(near, far.peer, bytes(2 * MIB)) == bytes(2 * MIB)
        back = far.session(near.peer)
        assert back is not None
        assert back.address == circuit_to(net, near.peer)
        assert await echo(far, near.peer, b"and back") == b"and back"
        await session.aclose()
        await assert_nothing_left(net)


async def test_the_relay_sees_nothing_but_ciphertext(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    relayed, spoken = bytearray(), bytearray()
    receive_some = MuxStream.receive_some

    async def record(stream: MuxStream, max_bytes: int | None = None) -> bytes:
        data = await receive_some(stream, max_bytes)
        if stream.protocol in (HOP_ID, STOP_ID):
            relayed.extend(data)
        elif stream.protocol == ECHO_ID:
            spoken.extend(data)
        return data

    monkeypatch.setattr(MuxStream, "receive_some", record)
    async with open_net() as net, open_member(net) as far, open_member(net) as near:
        if net.splicer is not None:
            net.splicer.record = relayed
        await near.connect(far.peer, [circuit_to(net, far.peer)])
        text = MARKER * 1000
        assert await echo(near, far.peer, text) == text
        assert net.relay.statistics().relayed_bytes > 2 * len(text)
    assert spoken.count(MARKER) >= 2 * 1000 - 10
    assert len(relayed) > 2 * len(text)
    for secret in (MARKER, ECHO_ID.encode()):
        assert secret not in relayed


async def test_a_relay_that_joins_the_wrong_peer_is_found_out(autojump_clock: MockClock) -> None:
    """The relay's word for who is at the other end counts for nothing."""
    async with open_net() as net, open_member(net) as far, open_member(net) as near:
        expected = Identity.generate().peer
        client = RelayClient()

        async def misdirect(relay: PeerId, peer: PeerId) -> trio.abc.Stream:
            assert peer == expected
            return await client.open_circuit(relay, far.peer)

        circuits = CircuitTransport(client.connect, misdirect)
        async with open_host(
            identity=Identity.generate(),
            transports=[net.network.transport("victim"), circuits],
            protocols=[Protocol(ECHO_ID, serve_echo, run=client.run)],
        ) as victim:
            net.admit(victim)
            with pytest.raises(DialError) as failed:
                await victim.connect(expected, [circuit_to(net, expected)])
            assert isinstance(failed.value.__cause__, PeerMismatchError)
        assert near.session(expected) is None


async def test_a_peer_that_is_not_reachable_is_a_dial_error(autojump_clock: MockClock) -> None:
    async with open_net() as net, open_member(net) as near:
        with pytest.raises(DialError) as failed:
            await near.connect(CALLED, [circuit_to(net, CALLED)])
        cause = failed.value.__cause__
        assert isinstance(cause, DialError)
        assert isinstance(cause.__cause__, RejectedError)
        assert cause.__cause__.code is Status.NO_RESERVATION


CALLED = Identity.generate().peer


async def test_circuits_do_not_go_over_circuits(autojump_clock: MockClock) -> None:
    second = Relay(is_admitted=lambda peer: True, wall_clock=wall_clock)
    async with open_net() as net, open_member(net, second.protocol()) as behind, open_member(net) as near:
        await near.connect(behind.peer, [circuit_to(net, behind.peer)])
        behind.admissions.admit(near.peer, Admission.MEMBER, FOREVER)
        with pytest.raises(RejectedError) as refused:
            await reserve(near, behind.peer)
        assert refused.value.code is Status.PERMISSION_DENIED


async def test_a_relay_keeps_its_circuit_addresses_to_itself(autojump_clock: MockClock) -> None:
    second = Relay(is_admitted=lambda peer: True, wall_clock=wall_clock)
    async with open_net() as net:
        client = await net.join()
        async with open_member(net, second.protocol()) as behind, behind.listening(Address.parse("/memory/9")):
            assert len(behind.addresses) == 2
            await client.connect(behind.peer, [Address.parse("/memory/9")])
            granted = await reserve(client, behind.peer)
        assert [str(address) for address in granted.addresses] == [f"/memory/9/p2p/{behind.peer}/p2p-circuit"]


async def test_announced_addresses_are_granted_instead(autojump_clock: MockClock) -> None:
    public = Address.parse("/dns4/router.example/tcp/443/wss")
    second = Relay(is_admitted=lambda peer: True, announced=lambda: [public], wall_clock=wall_clock)
    async with open_net() as net:
        client = await net.join()
        async with open_member(net, second.protocol()) as relay, relay.listening(Address.parse("/memory/9")):
            await client.connect(relay.peer, [Address.parse("/memory/9")])
            granted = await reserve(client, relay.peer)
        assert granted.addresses == (public.with_peer(relay.peer) / "p2p-circuit",)


async def test_connecting_cancelled_anywhere_leaves_nothing(autojump_clock: MockClock) -> None:
    async with open_net() as net, open_member(net) as far, open_member(net) as near:

        async def operation() -> None:
            await near.connect(far.peer, [circuit_to(net, far.peer)])

        async def check() -> None:
            if (session := near.session(far.peer)) is not None:
                await session.aclose()
            await assert_nothing_left(net)
            assert near.statistics().dialing == 0

        assert await cancel_at_every_await(operation, check=check) >= 2
