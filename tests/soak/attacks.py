"""What routers and members meet on an open port. None of it may cost an honest member a byte."""

import random
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

import attrs
import trio

from agentmesh.abc import ByteStream, Transport
from agentmesh.errors import MeshError
from agentmesh.identity import Identity
from agentmesh.protocols.relay import HOP_ID, open_circuit
from agentmesh.runtime.host import Host
from agentmesh.runtime.multistream import GREETING, encode_message
from agentmesh.runtime.tls import TLS_PROTOCOL, TlsContext
from agentmesh.runtime.upgrade import upgrade_outbound
from agentmesh.runtime.yamux.frames import RST, SYN, FrameType, encode_header
from agentmesh.runtime.yamux.limits import INITIAL_WINDOW
from agentmesh.types import Address, PeerId
from tests.soak.scenario import Attack

NAME_HOP = GREETING + encode_message(HOP_ID)
OFFER_TLS = GREETING + encode_message(TLS_PROTOCOL)
NOISE_BYTES = 4096
RAPID_STREAMS = 1000
SQUATTED_STREAMS = 200
FAILURES = (MeshError, trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError)


@attrs.frozen
class Target:
    """Who is attacked, once, and with what.

    Attributes:
        transport: how the router is reached.
        address: where, with its peer ID.
        member: a member with bad intentions, for what only members can do.
        victim: a member that may be reachable through the router.
        identity: whom a stranger pretends to be.
        security: makes a stranger's TLS.
        chance: where the noise comes from.
    """

    transport: Transport
    address: Address
    router: PeerId
    member: Host
    victim: PeerId
    identity: Identity
    security: Callable[[Identity], TlsContext]
    chance: random.Random


async def attack(kind: Attack, target: Target, seconds: float) -> None:
    """Attack, hold on to what that has given, and be gone after `seconds` at the latest."""
    with trio.move_on_after(seconds), suppress(*FAILURES):
        await ATTACKS[kind](target)


async def noise(target: Target) -> None:
    await over_connection(target, target.chance.randbytes(NOISE_BYTES))


async def half_open(target: Target) -> None:
    await over_connection(target, OFFER_TLS[: target.chance.randint(0, len(OFFER_TLS))])


async def mux_noise(target: Target) -> None:
    await over_link(target, target.chance.randbytes(NOISE_BYTES))


async def rapid_reset(target: Target) -> None:
    cut = [opening(number) + encode_header(FrameType.WINDOW_UPDATE, RST, number, 0) for number in odd(RAPID_STREAMS)]
    await over_link(target, b"".join(cut))


async def squatting(target: Target) -> None:
    await over_link(target, b"".join(map(opening, odd(SQUATTED_STREAMS))))


async def overrun(target: Target) -> None:
    too_much = 2 * INITIAL_WINDOW
    await over_link(target, opening(1) + encode_header(FrameType.DATA, 0, 1, too_much) + bytes(too_much))


async def circuit_noise(target: Target) -> None:
    async with await open_circuit(target.member, target.router, target.victim) as stream:
        await hear(stream, target.chance.randbytes(NOISE_BYTES))


async def circuit_silence(target: Target) -> None:
    async with await open_circuit(target.member, target.router, target.victim) as stream:
        await hear(stream, OFFER_TLS)


ATTACKS: Mapping[Attack, Callable[[Target], Awaitable[None]]] = {
    Attack.NOISE: noise,
    Attack.HALF_OPEN: half_open,
    Attack.MUX_NOISE: mux_noise,
    Attack.RAPID_RESET: rapid_reset,
    Attack.SQUATTING: squatting,
    Attack.OVERRUN: overrun,
    Attack.CIRCUIT_NOISE: circuit_noise,
    Attack.CIRCUIT_SILENCE: circuit_silence,
}


async def over_connection(target: Target, data: bytes) -> None:
    """Say this instead of a handshake."""
    async with target.transport.dial(target.address) as stream:
        await hear(stream, data)


async def over_link(target: Target, data: bytes) -> None:
    """Say this instead of yamux, behind an honest handshake."""
    async with target.transport.dial(target.address) as stream:
        link = (await upgrade_outbound(stream, target.security(target.identity), target.router)).link
        await link.send_all(data)
        while await link.receive_some():
            pass


async def hear(stream: ByteStream, data: bytes) -> None:
    """Say this, and listen until the other side has had enough."""
    await stream.send_all(data)
    while await stream.receive_some():
        pass


def odd(count: int) -> range:
    """The numbers that a dialer gives its streams."""
    return range(1, 2 * count, 2)


def opening(number: int) -> bytes:
    """The frame that opens a stream, and names a protocol on it."""
    return encode_header(FrameType.DATA, SYN, number, len(NAME_HOP)) + NAME_HOP
