"""Streams that never become of use: what is said for a protocol's name, and how slowly the first message comes."""

from collections.abc import Sequence

import pytest
import trio
from trio.testing import MockClock

from agentmesh.errors import ErrorCode
from agentmesh.protocols import ping
from agentmesh.protocols.http import HTTP_ID, protocol
from agentmesh.protocols.http.asgi import Receive, Scope, Send
from agentmesh.protocols.http.wire import HttpLimits
from agentmesh.protocols.ping.machine import IDLE_TIMEOUT
from agentmesh.runtime.config import SessionConfig
from agentmesh.runtime.multistream import GREETING, MAX_MESSAGE_BYTES, MAX_PROPOSALS, encode_message
from agentmesh.runtime.registry import Protocol
from agentmesh.runtime.yamux.frames import RST, FrameType, encode_header
from tests.hostile.attackers import Intruder, open_siege, opening
from tests.runtime.hosts import ECHO, serve_echo

NEGOTIATION_FAILED = encode_header(FrameType.WINDOW_UPDATE, RST, 1, ErrorCode.PROTOCOL_NEGOTIATION_FAILED)


async def answer_nothing(scope: Scope, receive: Receive, send: Send) -> None:
    raise AssertionError("no request was ever whole")


SPOKEN = (Protocol(ECHO, serve_echo), ping.protocol(), protocol(answer_nothing))


@pytest.mark.parametrize(
    "said",
    [
        GREETING + encode_message("/test/nothing") * (MAX_PROPOSALS + 1),
        GREETING + encode_message("/" + "x" * MAX_MESSAGE_BYTES),
        GREETING + b"\x80" * 20,
        b"\x00" * 100,
        b"GET / HTTP/1.1\r\n\r\n",
        GREETING + b"\x03\xff\xfe\n",
    ],
    ids=["endless proposals", "a line too long", "endless length", "zeros", "HTTP", "no UTF-8"],
)
async def test_garbage_for_a_protocols_name_costs_the_stream(autojump_clock: MockClock, said: bytes) -> None:
    async with open_siege(protocols=SPOKEN) as siege, siege.intruder() as mallory:
        await siege.undisturbed_by(lambda: mallory.send(opening(1, said)))
        assert NEGOTIATION_FAILED in mallory.heard
        assert mallory.held == (0, 0, 0)
        assert mallory.session.is_open
        outcomes = siege.bob.statistics().streams.outcomes
        assert outcomes["unnamed"] + outcomes["unknown"] == 1


@pytest.mark.parametrize("pieces", [[], [bytes([byte]) for byte in GREETING]], ids=["silence", "a byte a second"])
async def test_a_slow_negotiation_costs_the_stream(autojump_clock: MockClock, pieces: Sequence[bytes]) -> None:
    async with open_siege(protocols=SPOKEN) as siege, siege.intruder() as mallory, trio.open_nursery() as nursery:
        await mallory.send(opening(1))
        nursery.start_soon(drip, mallory, pieces)
        await siege.echo_time()
        await trio.sleep(SessionConfig().negotiation_timeout - 2)
        assert mallory.held[0] == 1
        await trio.sleep(2)
        assert mallory.held == (0, 0, 0)
        assert siege.bob.statistics().streams.outcomes["unnamed"] == 1
        assert mallory.session.is_open


async def drip(mallory: Intruder, pieces: Sequence[bytes]) -> None:
    for piece in pieces:
        await mallory.send(encode_header(FrameType.DATA, 0, 1, len(piece)) + piece)
        await trio.sleep(1)


@pytest.mark.parametrize(
    ("name", "first", "seconds"),
    [
        (ping.PING_ID, b"", IDLE_TIMEOUT),
        (ping.PING_ID, b"x" * 31, IDLE_TIMEOUT),
        (HTTP_ID, b"", HttpLimits().head_timeout),
        (HTTP_ID, b"GET / HTTP/1.1\r\nX-Slow: ", HttpLimits().head_timeout),
    ],
)
async def test_a_first_message_that_does_not_come_costs_the_stream(
    autojump_clock: MockClock, name: str, first: bytes, seconds: float
) -> None:
    async with open_siege(protocols=SPOKEN) as siege, siege.intruder() as mallory:
        await mallory.send(opening(1, GREETING + encode_message(name) + first))
        await siege.echo_time()
        assert mallory.held[0] == 1
        await trio.sleep(seconds - 1)
        assert siege.bob.statistics().streams.serving == 1
        await trio.sleep(HttpLimits().drain_timeout + 2)  # what it was answered may have to be read first
        assert siege.bob.statistics().streams.serving == 0
        await trio.sleep(SessionConfig().mux.linger_timeout + SessionConfig().ping_interval)
        assert mallory.held == (0, 0, 0)
        assert siege.abused == {}
