"""Connections that never become sessions: slow in any phase, garbled, endless, or with certificates of absurd size."""

from collections.abc import Awaitable, Callable

import pytest
import trio
from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256
from trio.testing import MockClock, wait_all_tasks_blocked

from agentmesh.abc import ByteStream
from agentmesh.errors import DialError
from agentmesh.identity import Identity
from agentmesh.runtime.config import ConnectionLimits, HostConfig
from agentmesh.runtime.multistream import GREETING, encode_message
from agentmesh.runtime.tls import TLS_PROTOCOL, YAMUX_PROTOCOL, Side
from agentmesh.runtime.upgrade import MAX_HANDSHAKE_BYTES
from tests.hostile.attackers import Siege, open_siege
from tests.runtime.hosts import open_named, works
from tests.runtime.strangers import Proof, StrangerLink, proof_of, stranger

Attack = Callable[[ByteStream], Awaitable[None]]
IN_TIME = HostConfig().handshake_timeout + 1.5  # seconds; the alert and the way there and back included


async def say_nothing(stream: ByteStream) -> None:
    """The multistream phase, not begun."""


async def drip_the_greeting(stream: ByteStream) -> None:
    """The multistream phase, a byte a second."""
    await drip(stream, GREETING + encode_message("/noise") * 3)


async def stop_before_tls(stream: ByteStream) -> None:
    """The TLS phase, not begun."""
    await stream.send_all(GREETING + encode_message(TLS_PROTOCOL))


async def drip_the_client_hello(stream: ByteStream) -> None:
    """The TLS phase, a byte a second."""
    tls = stranger(Side.DIALER, proof_of(Identity.generate()))
    tls.handshake()
    await stop_before_tls(stream)
    await drip(stream, tls.data_to_send())


async def stop_before_the_muxer(stream: ByteStream) -> None:
    """The phase of the muxer, not begun: none was named in ALPN."""
    await StrangerLink(stream, stranger(Side.DIALER, proof_of(Identity.generate()))).dial()


async def drip_the_muxer(stream: ByteStream) -> None:
    """The phase of the muxer, a byte a second."""
    link = StrangerLink(stream, stranger(Side.DIALER, proof_of(Identity.generate())))
    await link.dial()
    for byte in GREETING + encode_message(YAMUX_PROTOCOL):
        await link.send(bytes([byte]))
        await trio.sleep(1)


async def drip(stream: ByteStream, data: bytes) -> None:
    for byte in data:
        await stream.send_all(bytes([byte]))
        await trio.sleep(1)


async def run(siege: Siege, attack: Attack) -> None:
    """Run an attack on a connection of its own, and wait for Bob to close it."""
    async with siege.connection() as stream:
        try:
            await attack(stream)
            while await stream.receive_some():
                pass
        except trio.BrokenResourceError:
            return


@pytest.mark.parametrize(
    "attack",
    [
        say_nothing,
        drip_the_greeting,
        stop_before_tls,
        drip_the_client_hello,
        stop_before_the_muxer,
        drip_the_muxer,
    ],
)
async def test_a_slow_handshake_ends_at_its_deadline_whatever_the_phase(
    autojump_clock: MockClock, attack: Attack
) -> None:
    async with open_siege() as siege:
        start = trio.current_time()
        await siege.undisturbed_by(lambda: run(siege, attack))
        assert trio.current_time() - start < IN_TIME + 1
        assert siege.failed == {"timeout": 1}
        assert siege.bob.statistics().connections.handshakes == 0


async def propose_without_end(stream: ByteStream) -> None:
    await stream.send_all(GREETING + encode_message("/noise") * 3000)


async def send_a_line_without_end(stream: ByteStream) -> None:
    await stream.send_all(GREETING + b"\xff\xff\x03" + bytes(65535))


async def talk_http(stream: ByteStream) -> None:
    await stream.send_all(b"GET / HTTP/1.1\r\nHost: router\r\n\r\n")


async def garble_tls(stream: ByteStream) -> None:
    await stop_before_tls(stream)
    await stream.send_all(bytes(1000))


def handshake_with(proof: Proof, *above: x509.Certificate) -> Attack:
    async def attack(stream: ByteStream) -> None:
        tls = stranger(Side.DIALER, proof, above=above, alpn=[YAMUX_PROTOCOL.encode()])
        await StrangerLink(stream, tls).dial()

    return attack


def fat_proof(extensions: int, size: int) -> Proof:
    """A certificate with so many more extensions of that size."""
    honest, key = proof_of(Identity.generate())
    builder = (
        x509.CertificateBuilder()
        .subject_name(honest.subject)
        .issuer_name(honest.issuer)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(honest.not_valid_before_utc)
        .not_valid_after(honest.not_valid_after_utc)
        .add_extension(next(iter(honest.extensions)).value, critical=False)
    )
    for number in range(extensions):
        oid = x509.ObjectIdentifier(f"1.3.6.1.4.1.53594.9.{number}")
        builder = builder.add_extension(x509.UnrecognizedExtension(oid, bytes(size)), critical=False)
    return builder.sign(key, SHA256()), key


HONEST = proof_of(Identity.generate())


@pytest.mark.parametrize(
    ("kind", "attack"),
    [
        ("too_long", propose_without_end),
        ("too_long", send_a_line_without_end),
        ("protocol_violation", talk_http),
        ("protocol_violation", garble_tls),
        ("certificate", handshake_with(HONEST, HONEST[0])),
        ("certificate", handshake_with(fat_proof(1, 20_000))),
        ("certificate", handshake_with(fat_proof(500, 20))),
        ("too_long", handshake_with(fat_proof(1, MAX_HANDSHAKE_BYTES))),
        ("too_long", handshake_with(HONEST, *[fat_proof(1, 8_000)[0]] * 10)),
    ],
    ids=[
        *("endless proposals", "endless line", "HTTP", "garbage for TLS"),
        *(
            "a chain",
            "a fat extension",
            "500 extensions",
            "an extension beyond everything",
            "a chain beyond everything",
        ),
    ],
)
async def test_what_a_handshake_may_not_hold_ends_it_at_once(
    autojump_clock: MockClock, kind: str, attack: Attack
) -> None:
    async with open_siege() as siege:
        start = trio.current_time()
        await siege.undisturbed_by(lambda: run(siege, attack))
        assert trio.current_time() - start < 5
        assert siege.failed == {kind: 1}
        assert siege.bob.statistics().connections.handshakes == 0


async def test_half_open_handshakes_take_the_places_for_a_while_and_no_more(autojump_clock: MockClock) -> None:
    limits = ConnectionLimits(max_handshakes=8)
    async with open_siege(connections=limits) as siege, open_named(siege.network, "carol") as carol:
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(run, siege, say_nothing)
            await trio.sleep(1)
            figures = siege.bob.statistics().connections
            assert (figures.handshakes, figures.refused["handshake_limit"]) == (8, 12)
            assert await siege.echo_time() < 1
            with pytest.raises(DialError):
                await carol.connect(siege.bob.peer, siege.bob.addresses)
        await wait_all_tasks_blocked()
        assert siege.failed == {"timeout": 8}
        assert await works(carol, siege.bob)
