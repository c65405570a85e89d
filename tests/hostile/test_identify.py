"""A peer that says too much of itself."""

import pytest
import trio
from trio.testing import MockClock

from agentmesh.abc import Stream
from agentmesh.errors import LimitExceededError, RemoteProtocolError
from agentmesh.identity import Identity
from agentmesh.protocols.identify import IDENTIFY_ID, identify
from agentmesh.protocols.identify import protocol as identify_protocol
from agentmesh.protocols.identify.wire import (
    MAX_ADDRESSES,
    MAX_MESSAGE_BYTES,
    MAX_PROTOCOLS,
    MAX_STREAMS_PER_PEER,
    MAX_VERSION_CHARS,
)
from agentmesh.runtime.messages import write_message
from agentmesh.runtime.multistream import GREETING, encode_message
from agentmesh.runtime.registry import Protocol, Serve
from agentmesh.types import Address
from agentmesh.wire.framing import encode_varint
from agentmesh.wire.messages.libp2p.identify import Identify
from tests.hostile.attackers import open_siege, opening
from tests.runtime.hosts import ECHO, open_named, serve_echo

ADDRESSES = [Address.parse(f"/ip4/192.0.2.{n % 256}/tcp/{n + 1}").to_bytes() for n in range(1000)]


async def test_of_a_thousand_addresses_some_are_kept(autojump_clock: MockClock) -> None:
    mallory = Identity.generate()
    message = Identify(
        public_key=mallory.public_key_bytes,
        listen_addrs=ADDRESSES,
        protocols=[f"/test/{n}" for n in range(1000)],
        agent_version="x" * 10_000,
    )
    assert len(bytes(message)) < MAX_MESSAGE_BYTES

    async def brag(stream: Stream) -> None:
        await write_message(stream, bytes(message))

    async with (
        open_siege() as siege,
        open_named(siege.network, "mallory", [Protocol(IDENTIFY_ID, brag)], identity=mallory) as host,
    ):
        await siege.bob.connect(host.peer, host.addresses)

        async def ask() -> None:
            async with await siege.bob.open_stream(host.peer, IDENTIFY_ID) as stream:
                info = await identify(stream)
            assert len(info.addresses) == MAX_ADDRESSES
            assert len(info.protocols) == MAX_PROTOCOLS
            assert len(info.agent_version) == MAX_VERSION_CHARS

        await siege.undisturbed_by(ask)


async def test_who_asks_and_asks_is_served_a_few_times_at_once(autojump_clock: MockClock) -> None:
    protocols = (Protocol(ECHO, serve_echo), identify_protocol())
    question = GREETING + encode_message(IDENTIFY_ID)
    async with open_siege(protocols=protocols) as siege, siege.intruder() as mallory:

        async def ask() -> None:
            await mallory.send(b"".join(opening(number, question + bytes(100)) for number in range(1, 401, 2)))

        await siege.undisturbed_by(ask)
        assert siege.bob.statistics().streams.outcomes["limited"] == 200 - MAX_STREAMS_PER_PEER
        assert mallory.held[0] <= MAX_STREAMS_PER_PEER
        assert mallory.session.is_open


async def brag_for_ever(stream: Stream) -> None:
    await stream.send_all(encode_varint(MAX_MESSAGE_BYTES))
    while True:
        await stream.send_all(bytes(1024))


async def claim_too_much(stream: Stream) -> None:
    await stream.send_all(encode_varint(MAX_MESSAGE_BYTES + 1))


async def drip(stream: Stream) -> None:
    for _ in range(1000):
        await stream.send_all(b"\x0a")
        await trio.sleep(1)


@pytest.mark.parametrize(
    ("serve", "error"),
    [(brag_for_ever, RemoteProtocolError), (claim_too_much, LimitExceededError), (drip, trio.TooSlowError)],
)
async def test_a_message_without_end_costs_the_stream(
    autojump_clock: MockClock, serve: Serve, error: type[Exception]
) -> None:
    async with open_siege() as siege, open_named(siege.network, "mallory", [Protocol(IDENTIFY_ID, serve)]) as host:
        session = await siege.bob.connect(host.peer, host.addresses)

        async def ask() -> None:
            stream = await siege.bob.open_stream(host.peer, IDENTIFY_ID)
            with pytest.raises(error):
                await identify(stream)
            stream.reset()

        await siege.undisturbed_by(ask)
        assert session.is_open
