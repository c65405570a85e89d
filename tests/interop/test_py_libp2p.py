"""Our host and py-libp2p's, over TCP on loopback: each dials the other. docs/interoperability.md says what came out."""

import pytest
import trio

from agentmesh.errors import DialError, ErrorCode, PeerMismatchError, RejectedError
from agentmesh.identity import Identity
from agentmesh.protocols import identify, ping
from agentmesh.types import ProtocolId
from tests.interop.hosts import ECHO, GATED, TEN_MIB, echo, open_our_host
from tests.interop.peer import open_peer


async def test_it_dials_us() -> None:
    async with open_our_host() as host, open_peer() as peer:
        await peer.do("connect", address=host.addresses[0])
        assert (await peer.do("connections"))["peers"] == [str(host.peer)]
        await peer.do("ping", peer=host.peer, count=3)
        identity = await peer.do("identify", peer=host.peer)
        assert identity["agent"].startswith("agentmesh/")
        assert ECHO in identity["protocols"]
        assert identity["listen"] == [str(host.addresses[0].without_peer())]
        assert bytes.fromhex(identity["public_key"]) == host.identity.public_key_bytes
        answer = await peer.do("echo", peer=host.peer, size=TEN_MIB)
        assert answer["size"] == TEN_MIB
        assert answer["received"] == answer["sent"]
        session = host.session(peer.peer)
        assert session is not None
        assert session.address is not None


async def test_we_dial_it() -> None:
    async with open_our_host() as host, open_peer() as peer:
        session = await host.connect(peer.peer, [peer.address])
        assert session.peer == peer.peer
        async with await host.open_stream(peer.peer, ping.PING_ID) as stream:
            assert await ping.ping(stream) > 0
            assert await ping.ping(stream) > 0
        async with await host.open_stream(peer.peer, identify.IDENTIFY_ID) as stream:
            info = await identify.identify(stream)
        assert info.agent_version == "py-libp2p/0.8.1"
        assert ECHO in info.protocols
        assert info.addresses == (peer.address.without_peer(),)
        await echo(await host.open_stream(peer.peer, ECHO), TEN_MIB)
        assert session.streams == ()


async def test_one_session_carries_both_directions_at_once() -> None:
    async with open_our_host() as host, open_peer() as peer:
        await peer.do("connect", address=host.addresses[0])
        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(echo, await host.open_stream(peer.peer, ECHO), 1024 * 1024)
            answer = await peer.do("echo", peer=host.peer, size=TEN_MIB)
        assert answer["received"] == answer["sent"]


async def test_it_offers_noise_first_and_takes_tls() -> None:
    async with open_our_host() as host, open_peer("--security", "noise", "--security", "tls") as peer:
        await peer.do("connect", address=host.addresses[0])
        await peer.do("ping", peer=host.peer)


async def test_a_peer_without_tls_is_turned_away() -> None:
    async with open_our_host() as host, open_peer("--security", "noise") as peer:
        assert not (await peer.ask("connect", address=host.addresses[0]))["ok"]
        with pytest.raises(DialError) as failure:
            await host.connect(peer.peer, [peer.address])
        assert isinstance(failure.value.__cause__, RejectedError)
        assert host.statistics().connections.peers == 0


async def test_neither_takes_the_other_for_somebody_else() -> None:
    stranger = Identity.generate().peer
    async with open_our_host() as host, open_peer() as peer:
        assert not (await peer.ask("connect", address=host.addresses[0].with_peer(stranger)))["ok"]
        with pytest.raises(DialError) as failure:
            await host.connect(stranger, [peer.address.with_peer(stranger)])
        assert isinstance(failure.value.__cause__, PeerMismatchError)


async def test_each_refuses_what_it_does_not_speak() -> None:
    async with open_our_host() as host, open_peer() as peer:
        await peer.do("connect", address=host.addresses[0])
        refused = str((await peer.do("refused", peer=host.peer, protocol="/test/unknown"))["refused"])
        assert "protocol not supported" in refused
        async with await host.open_stream(peer.peer, ProtocolId("/test/unknown")) as stream:
            with pytest.raises(RejectedError) as refusal:
                await stream.receive_some()
        assert refusal.value.code == ErrorCode.PROTOCOL_NEGOTIATION_FAILED


async def test_the_gate_stays_shut_and_the_session_open() -> None:
    async with open_our_host() as host, open_peer() as peer:
        await peer.do("connect", address=host.addresses[0])
        assert (await peer.do("refused", peer=host.peer, protocol=GATED))["refused"]
        await peer.do("ping", peer=host.peer)


async def test_each_notices_that_the_other_is_gone() -> None:
    async with open_our_host() as host, open_peer() as peer:
        session = await host.connect(peer.peer, [peer.address])
        await peer.do("wait_connected", peer=host.peer)
        await peer.do("disconnect", peer=host.peer)
        with trio.fail_after(5):
            await session.ended.wait()
        again = await host.connect(peer.peer, [peer.address])
        await peer.do("wait_connected", peer=host.peer)
        await again.aclose()
        await peer.do("wait_connected", peer=host.peer, connected=False)
