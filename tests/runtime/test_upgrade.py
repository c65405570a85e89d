"""From bytes to a secure link: how many flights it takes, who is refused and how both sides hear of it."""

from collections.abc import Awaitable, Callable

import pytest
import trio
from OpenSSL import SSL
from trio.testing import MockClock

from agentmesh.errors import CertificateError, MeshError, PeerMismatchError, RejectedError, RemoteProtocolError
from agentmesh.identity import Identity
from agentmesh.runtime.multistream import GREETING, MAX_MESSAGE_BYTES, encode_message
from agentmesh.runtime.tls import TLS_PROTOCOL, YAMUX_PROTOCOL, Side, TlsContext
from agentmesh.runtime.upgrade import (
    ALERT_TIMEOUT,
    MAX_HANDSHAKE_BYTES,
    TLS_HANDSHAKE,
    Upgraded,
    upgrade_inbound,
    upgrade_outbound,
)
from agentmesh.testing.links import Conditions
from agentmesh.testing.network import MemoryNetwork
from agentmesh.transports.pipes import PipeStream
from agentmesh.types import Address, PeerId
from tests.runtime.pairs import ALICE, ALICES, BOB, BOBS, upgrade_both, what_it_hears
from tests.runtime.strangers import StrangerContext, StrangerLink, forged_proof_of, proof_of, stranger
from tests.runtime.wires import Tampered, duplex, watched_duplex

CAROL = Identity.generate()
PROPOSAL = GREETING + encode_message(TLS_PROTOCOL)
YAMUX = [YAMUX_PROTOCOL.encode()]
NO_CLIENT_HELLO = b"\x16\x03\x01\x00\x04junk"
MUXER = GREETING + encode_message(YAMUX_PROTOCOL)


async def outcome_of(act: Callable[[], Awaitable[Upgraded]]) -> Upgraded | Exception:
    try:
        return await act()
    except (MeshError, trio.BrokenResourceError) as exc:
        return exc


async def outcomes(
    contexts: tuple[TlsContext, TlsContext], expected: PeerId | None = BOB.peer
) -> tuple[Upgraded | Exception, Upgraded | Exception]:
    """What becomes of the dialer and of the listener; whoever fails says no more."""
    dialer, listener = duplex()
    found: dict[Side, Upgraded | Exception] = {}

    async def run(side: Side, stream: PipeStream, act: Callable[[], Awaitable[Upgraded]]) -> None:
        found[side] = await outcome_of(act)
        if isinstance(found[side], Exception):
            await stream.send_eof()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run, Side.DIALER, dialer, lambda: upgrade_outbound(dialer, contexts[0], expected))
        nursery.start_soon(run, Side.LISTENER, listener, lambda: upgrade_inbound(listener, contexts[1]))
    return found[Side.DIALER], found[Side.LISTENER]


# ── flights ──


async def test_the_proposal_and_the_client_hello_leave_together_and_so_do_their_answers() -> None:
    dialer, listener, log = watched_duplex()
    ours, theirs = await upgrade_both(dialer, listener)
    assert [sent.who for sent in log[:3]] == ["dialer", "listener", "dialer"]
    assert len(log) == 4  # the last are OpenSSL's session tickets, for which nobody waits
    for sent in log[:2]:
        assert sent.data.startswith(PROPOSAL)
        assert sent.data[len(PROPOSAL)] == 0x16  # a TLS handshake record
    assert (ours.peer, theirs.peer) == (BOB.peer, ALICE.peer)
    assert ours.early == theirs.early == b""


async def test_a_session_costs_the_dialer_one_round_trip_more_than_connecting(autojump_clock: MockClock) -> None:
    network = MemoryNetwork(conditions=Conditions(latency=0.1))
    arrived = trio.Event()

    async def accept(stream: trio.abc.Stream, source: Address | None) -> None:
        upgraded = await upgrade_inbound(stream, BOBS)
        assert bytes(await upgraded.link.receive_some()) == b"hello"
        arrived.set()

    async with network.transport("bob").listen(Address.parse("/memory/1")) as bob, trio.open_nursery() as nursery:
        nursery.start_soon(bob.serve, accept)
        async with network.transport("alice").dial(Address.parse("/memory/1")) as stream:
            start = trio.current_time()
            upgraded = await upgrade_outbound(stream, ALICES, BOB.peer)
            assert trio.current_time() - start == pytest.approx(0.2)
            await upgraded.link.send_all(b"hello")
            await arrived.wait()
            assert trio.current_time() - start == pytest.approx(0.3)
        nursery.cancel_scope.cancel()


# ── TLS first, as an address that ends in /tls asks for ──


@pytest.mark.parametrize("name", ["r1.example", ""])
async def test_tls_can_come_first_and_name_the_host(name: str) -> None:
    dialer, listener, log = watched_duplex()
    ours, theirs = await upgrade_both(dialer, listener, tls_name=name)
    assert (ours.peer, theirs.peer) == (BOB.peer, ALICE.peer)
    assert [sent.who for sent in log[:3]] == ["dialer", "listener", "dialer"]
    assert [sent.data[0] for sent in log[:2]] == [TLS_HANDSHAKE, TLS_HANDSHAKE]
    assert (b"r1.example" in log[0].data) == bool(name)
    await theirs.link.send_all(b"frames")
    assert bytes(await ours.link.receive_some()) == b"frames"


async def test_a_listener_that_negotiates_before_tls_is_told_by_an_alert() -> None:
    dialer, listener = duplex()
    await listener.send_all(GREETING)
    with pytest.raises(RemoteProtocolError, match="TLS handshake failed"):
        await upgrade_outbound(dialer, ALICES, BOB.peer, "r1.example")
    client_hello = await listener.receive_some()
    assert client_hello[0] == TLS_HANDSHAKE


async def test_garbage_behind_the_first_byte_of_tls_is_answered_by_an_alert() -> None:
    client, listener = duplex()
    await client.send_all(NO_CLIENT_HELLO)
    with pytest.raises(RemoteProtocolError, match="TLS handshake failed"):
        await upgrade_inbound(listener, BOBS)
    assert (await client.receive_some())[0] == 0x15  # an alert record


# ── the muxer, where ALPN names none ──


@pytest.mark.parametrize("alpn", [[], [b"libp2p"]])
async def test_two_peers_without_a_muxer_in_alpn_agree_by_multistream(alpn: list[bytes]) -> None:
    contexts = StrangerContext(lambda side: stranger(side, proof_of(ALICE), alpn=alpn)), BOBS
    ours, theirs = await upgrade_both(*duplex(), contexts)
    await ours.link.send_all(b"frames")
    assert bytes(await theirs.link.receive_some()) == b"frames"


async def test_frames_behind_the_dialers_proposal_are_early_data() -> None:
    dialer, listener = duplex()
    link = StrangerLink(dialer, stranger(Side.DIALER, proof_of(ALICE)))

    async def dial() -> None:
        await link.dial()
        await link.send(MUXER + b"frames")
        await link.expect(MUXER)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(dial)
        assert (await upgrade_inbound(listener, BOBS)).early == b"frames"


async def test_frames_behind_the_listeners_answer_are_early_data() -> None:
    dialer, listener = duplex()
    link = StrangerLink(listener, stranger(Side.LISTENER, proof_of(BOB)))

    async def listen() -> None:
        await link.listen()
        await link.expect(MUXER)
        await link.send(MUXER[:7])
        await link.send(MUXER[7:] + b"frames")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(listen)
        assert (await upgrade_outbound(dialer, ALICES, BOB.peer)).early == b"frames"


async def test_a_peer_without_our_muxer_or_without_tls_says_no() -> None:
    dialer, listener = duplex()
    link = StrangerLink(listener, stranger(Side.LISTENER, proof_of(BOB)))

    async def listen() -> None:
        await link.listen()
        await link.send(GREETING + encode_message("na"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(listen)
        with pytest.raises(RejectedError, match="does not speak /yamux"):
            await upgrade_outbound(dialer, ALICES, BOB.peer)

    dialer, listener = duplex()
    await listener.send_all(GREETING + encode_message("na"))
    with pytest.raises(RejectedError, match="does not speak /tls"):
        await upgrade_outbound(dialer, ALICES, BOB.peer)


async def test_a_dialer_may_try_another_security_first() -> None:
    dialer, listener = duplex()

    async def dial() -> None:
        await dialer.send_all(GREETING + encode_message("/noise"))
        answer = GREETING + encode_message("na")
        assert await dialer.receive_some(len(answer)) == answer
        await StrangerLink(_Behind(dialer), stranger(Side.DIALER, proof_of(ALICE), alpn=YAMUX)).dial()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(dial)
        assert (await upgrade_inbound(listener, BOBS)).peer == ALICE.peer


class _Behind(trio.abc.Stream):
    """The rest of a stream on which the greetings are over: they are neither sent nor received again."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._pretended = GREETING

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._stream.send_all(bytes(data).removeprefix(GREETING))

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        if self._pretended:
            greeting, self._pretended = self._pretended, b""
            return greeting
        return await self._stream.receive_some(max_bytes)

    async def aclose(self) -> None:
        await self._stream.aclose()


# ── who is refused, and how both sides hear of it ──


async def test_another_peer_than_the_dialled_one_gets_no_byte_of_a_protocol() -> None:
    dialled, reached = await outcomes((ALICES, BOBS), expected=CAROL.peer)
    assert isinstance(dialled, PeerMismatchError)
    assert str(CAROL.peer) in str(dialled)
    assert str(BOB.peer) in str(dialled)
    assert await what_it_hears(reached) == b""


async def test_whoever_expects_nobody_takes_anybody() -> None:
    ours, _ = await upgrade_both(*duplex(), expected=None)
    assert ours.peer == BOB.peer


async def test_a_client_without_a_certificate() -> None:
    dialled, reached = await outcomes((StrangerContext(lambda side: stranger(side, alpn=YAMUX)), BOBS))
    assert isinstance(reached, RemoteProtocolError)
    assert isinstance(dialled, Upgraded)  # it hears of the refusal with the first bytes
    assert "alert" in str(await what_it_hears(dialled))


async def test_a_client_with_a_forged_key() -> None:
    forger = StrangerContext(lambda side: stranger(side, forged_proof_of(ALICE), alpn=YAMUX))
    dialled, reached = await outcomes((forger, BOBS))
    assert isinstance(reached, CertificateError)
    assert await what_it_hears(dialled) == b""


async def test_a_server_with_a_forged_key() -> None:
    forger = StrangerContext(lambda side: stranger(side, forged_proof_of(BOB), answers=YAMUX))
    dialled, reached = await outcomes((ALICES, forger))
    assert isinstance(dialled, CertificateError)
    assert await what_it_hears(reached) == b""


async def test_a_client_with_two_certificates() -> None:
    above, _ = proof_of(BOB)
    many = StrangerContext(lambda side: stranger(side, proof_of(ALICE), above=[above], alpn=YAMUX))
    dialled, reached = await outcomes((many, BOBS))
    assert isinstance(reached, CertificateError)
    assert await what_it_hears(dialled) == b""


async def test_a_client_of_tls_1_2() -> None:
    old = StrangerContext(lambda side: stranger(side, proof_of(ALICE), version=SSL.TLS1_2_VERSION))
    dialled, reached = await outcomes((old, BOBS))
    assert isinstance(reached, RemoteProtocolError)
    assert isinstance(dialled, RemoteProtocolError)
    assert "alert" in str(dialled)


@pytest.mark.parametrize("first", [b"GET / HTTP/1.1\r\nHost: mesh\r\n\r\n", b"\x15\x03\x01\x00\x02\x02\x28", b"\n"])
async def test_a_plain_text_client_on_the_tls_port(first: bytes) -> None:
    client, listener = duplex()
    await client.send_all(first)
    with pytest.raises(RemoteProtocolError, match="expected /multistream"):
        await upgrade_inbound(listener, BOBS)


async def test_garbage_in_the_place_of_the_client_hello_is_answered_by_an_alert() -> None:
    client, listener = duplex()
    await client.send_all(PROPOSAL + NO_CLIENT_HELLO)
    with pytest.raises(RemoteProtocolError, match="TLS handshake failed"):
        await upgrade_inbound(listener, BOBS)
    answer = await client.receive_some()
    assert answer.startswith(PROPOSAL)
    assert answer[len(PROPOSAL)] == 0x15  # an alert record


async def test_a_peer_that_does_not_wait_for_the_alert() -> None:
    client, listener = duplex()
    await client.send_all(PROPOSAL + NO_CLIENT_HELLO)
    await client.aclose()
    with pytest.raises(RemoteProtocolError, match="TLS handshake failed"):
        await upgrade_inbound(listener, BOBS)


async def test_a_peer_that_does_not_read_the_alert_costs_a_moment(autojump_clock: MockClock) -> None:
    client, listener = duplex(1024, 8)
    await client.send_all(PROPOSAL + NO_CLIENT_HELLO)
    start = trio.current_time()
    with pytest.raises(RemoteProtocolError, match="TLS handshake failed"):
        await upgrade_inbound(listener, BOBS)
    assert trio.current_time() - start == pytest.approx(ALERT_TIMEOUT)


@pytest.mark.parametrize("kept", [0, 5, len(PROPOSAL), len(PROPOSAL) + 20])
async def test_a_peer_that_leaves_during_the_handshake(kept: int) -> None:
    client, listener = duplex()
    tls = ALICES.connection(Side.DIALER)
    tls.handshake()
    await client.send_all((PROPOSAL + tls.data_to_send())[:kept])
    await client.send_eof()
    with pytest.raises(trio.BrokenResourceError, match="left during the handshake"):
        await upgrade_inbound(listener, BOBS)


async def test_a_bit_flipped_on_the_way_ends_the_handshake_on_both_sides() -> None:
    dialer, listener = duplex()

    def flip(data: bytes) -> bytes:
        return data[:-1] + bytes((data[-1] ^ 1,))

    async with trio.open_nursery() as nursery:

        async def listen() -> None:
            with pytest.raises((RemoteProtocolError, trio.BrokenResourceError)):
                await upgrade_inbound(listener, BOBS)

        nursery.start_soon(listen)
        with pytest.raises(RemoteProtocolError):
            await upgrade_outbound(Tampered(dialer, flip), ALICES, BOB.peer)
        await dialer.aclose()


# ── how much a handshake may be ──


async def test_a_flood_of_proposals_is_cut_off() -> None:
    client, listener = duplex(1 << 20)
    await client.send_all(GREETING + encode_message("/" + "x" * (MAX_MESSAGE_BYTES - 2)) * 64)
    with pytest.raises(RemoteProtocolError, match=f"more than {MAX_HANDSHAKE_BYTES}"):
        await upgrade_inbound(listener, BOBS)


async def test_a_flood_inside_tls_is_cut_off() -> None:
    dialer, listener = duplex(1 << 20)
    link = StrangerLink(dialer, stranger(Side.DIALER, proof_of(ALICE)))

    async def dial() -> None:
        await link.dial()
        await link.send(GREETING + encode_message("/" + "x" * (MAX_MESSAGE_BYTES - 2)) * 64)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(dial)
        with pytest.raises(RemoteProtocolError, match=f"more than {MAX_HANDSHAKE_BYTES}"):
            await upgrade_inbound(listener, BOBS)


async def test_what_a_fast_dialer_sends_behind_its_handshake_does_not_count() -> None:
    dialer, listener = duplex(1 << 20)
    link = StrangerLink(dialer, stranger(Side.DIALER, proof_of(ALICE), alpn=YAMUX))
    size = 2 * MAX_HANDSHAKE_BYTES
    received = 0

    async def dial() -> None:
        await link.dial()
        await link.send(bytes(size))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(dial)
        upgraded = await upgrade_inbound(listener, BOBS)
        while received < size:
            received += len(await upgraded.link.receive_some())
