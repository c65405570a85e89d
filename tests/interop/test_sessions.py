"""Our host and one that nobody here wrote, on loopback: each dials the other.

docs/interoperability.md says what came out.
"""

import pytest
import trio

from agentmesh.abc import Stream
from agentmesh.errors import DialError, ErrorCode, PeerMismatchError, RejectedError, StreamResetError
from agentmesh.identity import Identity
from agentmesh.protocols import identify, ping
from agentmesh.runtime.registry import Protocol
from agentmesh.types import ProtocolId
from tests.interop.hosts import CHUNK, COUNT, ECHO, GATED, HUNDRED_MIB, MIB, TEN_MIB, count, echo, open_our_host
from tests.interop.peer import KINDS, Kind, open_peer

pytestmark = pytest.mark.parametrize("kind", KINDS, ids=str)

HELD = ProtocolId("/test/held/1.0.0")
STREAMS = 64


class Cut:
    """A protocol that answers and then waits to be reset."""

    def __init__(self) -> None:
        self.seen = trio.Event()

    async def serve(self, stream: Stream) -> None:
        await stream.send_all(b"x")
        with pytest.raises(StreamResetError):
            while await stream.receive_some():
                pass
        self.seen.set()


async def test_it_dials_us(kind: Kind) -> None:
    async with open_our_host(listen=kind.listen) as host, open_peer(kind) as peer:
        await peer.do("connect", address=host.addresses[0])
        assert (await peer.do("connections"))["peers"] == [str(host.peer)]
        await peer.do("ping", peer=host.peer, count=3)
        identity = await peer.do("identify", peer=host.peer)
        assert identity["agent"].startswith("agentmesh/")
        assert ECHO in identity["protocols"]
        assert identity["listen"] == [str(host.addresses[0].without_peer())]
        assert bytes.fromhex(identity["public_key"]) == host.identity.public_key_bytes
        answer = await peer.do("echo", peer=host.peer, size=HUNDRED_MIB)
        assert answer["size"] == HUNDRED_MIB
        assert answer["received"] == answer["sent"]
        session = host.session(peer.peer)
        assert session is not None
        assert session.address is not None


async def test_we_dial_it(kind: Kind) -> None:
    async with open_our_host(listen=kind.listen) as host, open_peer(kind) as peer:
        session = await host.connect(peer.peer, [peer.address])
        assert session.peer == peer.peer
        async with await host.open_stream(peer.peer, ping.PING_ID) as stream:
            assert await ping.ping(stream) > 0
            assert await ping.ping(stream) > 0
        async with await host.open_stream(peer.peer, identify.IDENTIFY_ID) as stream:
            info = await identify.identify(stream)
        assert info.agent_version.startswith(f"{kind.name}/")
        assert ECHO in info.protocols
        assert info.addresses == (peer.address.without_peer(),)
        await echo(await host.open_stream(peer.peer, ECHO), HUNDRED_MIB)
        assert session.streams == ()


async def test_one_session_carries_both_directions_at_once(kind: Kind) -> None:
    async with open_our_host(listen=kind.listen) as host, open_peer(kind) as peer:
        await peer.do("connect", address=host.addresses[0])
        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(echo, await host.open_stream(peer.peer, ECHO), MIB)
            answer = await peer.do("echo", peer=host.peer, size=TEN_MIB)
        assert answer["received"] == answer["sent"]


async def test_each_ends_one_direction_and_reads_on(kind: Kind) -> None:
    async with open_our_host(listen=kind.listen) as host, open_peer(kind) as peer:
        await peer.do("connect", address=host.addresses[0])
        assert (await peer.do("count", peer=host.peer, size=MIB))["count"] == MIB
        await count(await host.open_stream(peer.peer, COUNT), MIB)


async def test_many_streams_at_once(kind: Kind) -> None:
    async with open_our_host(listen=kind.listen) as host, open_peer(kind) as peer:
        session = await host.connect(peer.peer, [peer.address])
        await peer.do("wait_connected", peer=host.peer)
        async with trio.open_nursery() as nursery:
            for _ in range(STREAMS):
                nursery.start_soon(echo, await host.open_stream(peer.peer, ECHO), CHUNK)
        assert (await peer.do("many", peer=host.peer, size=CHUNK, streams=STREAMS))["intact"] == STREAMS
        assert session.streams == ()


async def test_it_resets_a_stream_and_no_other(kind: Kind) -> None:
    cut = Cut()
    async with open_our_host(Protocol(HELD, cut.serve), listen=kind.listen) as host, open_peer(kind) as peer:
        await peer.do("connect", address=host.addresses[0])
        await peer.do("reset", peer=host.peer, protocol=HELD)
        with trio.fail_after(5):
            await cut.seen.wait()
        await peer.do("ping", peer=host.peer)


async def test_we_reset_a_stream_and_no_other(kind: Kind) -> None:
    async with open_our_host(listen=kind.listen) as host, open_peer(kind) as peer:
        session = await host.connect(peer.peer, [peer.address])
        async with await host.open_stream(peer.peer, ECHO) as kept:
            stream = await host.open_stream(peer.peer, ECHO)
            await stream.send_all(b"x")
            assert await stream.receive_some() == b"x"
            stream.reset()
            await echo(kept, CHUNK)
        assert session.streams == ()


async def test_neither_takes_the_other_for_somebody_else(kind: Kind) -> None:
    stranger = Identity.generate().peer
    async with open_our_host(listen=kind.listen) as host, open_peer(kind) as peer:
        assert not (await peer.ask("connect", address=host.addresses[0].with_peer(stranger)))["ok"]
        with pytest.raises(DialError) as failure:
            await host.connect(stranger, [peer.address.with_peer(stranger)])
        assert isinstance(failure.value.__cause__, PeerMismatchError)


async def test_each_refuses_what_it_does_not_speak(kind: Kind) -> None:
    async with open_our_host(listen=kind.listen) as host, open_peer(kind) as peer:
        await peer.do("connect", address=host.addresses[0])
        assert (await peer.do("refused", peer=host.peer, protocol="/test/unknown"))["refused"]
        async with await host.open_stream(peer.peer, ProtocolId("/test/unknown")) as stream:
            with pytest.raises(RejectedError) as refusal:
                await stream.receive_some()
        assert refusal.value.code == ErrorCode.PROTOCOL_NEGOTIATION_FAILED


async def test_the_gate_stays_shut_and_the_session_open(kind: Kind) -> None:
    async with open_our_host(listen=kind.listen) as host, open_peer(kind) as peer:
        await peer.do("connect", address=host.addresses[0])
        assert (await peer.do("refused", peer=host.peer, protocol=GATED))["refused"]
        await peer.do("ping", peer=host.peer)


async def test_each_notices_that_the_other_is_gone(kind: Kind) -> None:
    async with open_our_host(listen=kind.listen) as host, open_peer(kind) as peer:
        session = await host.connect(peer.peer, [peer.address])
        await peer.do("wait_connected", peer=host.peer)
        await peer.do("disconnect", peer=host.peer)
        with trio.fail_after(5):
            await session.ended.wait()
        again = await host.connect(peer.peer, [peer.address])
        await peer.do("wait_connected", peer=host.peer)
        await again.aclose()
        await peer.do("wait_connected", peer=host.peer, connected=False)
