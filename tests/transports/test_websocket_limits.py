"""What a peer may send over a WebSocket, and what costs it the connection."""

import pytest
import trio
import trio_websocket
from hypothesis import given
from hypothesis import strategies as st

from agentmesh.errors import LimitExceededError
from agentmesh.transports.floods import FLOOD_BURST, FLOOD_PER_SECOND
from agentmesh.transports.websocket_limits import MAX_FRAGMENTS, FrameGate
from tests.transports.test_websocket import visit

REQUEST = b"GET /ws HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\n\r\n"
ANSWER = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n"
CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10


def frame(opcode: int, payload: bytes = b"", *, last: bool = True, masked: bool = True) -> bytes:
    size = len(payload)
    first = bytes([opcode | (0x80 if last else 0)])
    mask = 0x80 if masked else 0
    if size < 126:
        length = bytes([mask | size])
    elif size < 65536:
        length = bytes([mask | 126]) + size.to_bytes(2)
    else:
        length = bytes([mask | 127]) + size.to_bytes(8)
    return first + length + (bytes(4) if masked else b"") + payload


FLOODS = {
    "pings": frame(PING, b"there?"),
    "pongs": frame(PONG),
    "closings": frame(CLOSE),
    "empty messages": frame(BINARY),
    "empty texts": frame(TEXT),
    "empty fragments": frame(BINARY, b"x", last=False) + frame(CONTINUATION),
}


@pytest.mark.parametrize("head", [REQUEST, ANSWER])
@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS)
def test_frames_that_carry_nothing_are_paid_for(head: bytes, flood: bytes) -> None:
    gate = FrameGate()
    gate.check(head + flood * FLOOD_BURST, 0.0)
    gate.check(flood * int(FLOOD_PER_SECOND), 1.0)  # at this rate for ever
    with pytest.raises(LimitExceededError) as caught:
        gate.check(flood, 1.0)
    assert caught.value.limit == "FLOOD_BURST"


def test_a_message_has_an_end() -> None:
    gate = FrameGate()
    gate.check(REQUEST, 0.0)
    whole = frame(BINARY, b"x", last=False) + frame(CONTINUATION, b"x", last=False) * (MAX_FRAGMENTS - 1)
    gate.check(whole, 0.0)
    gate.check(whole, 0.0)  # a new one begins
    with pytest.raises(LimitExceededError) as caught:
        gate.check(frame(CONTINUATION, b"x"), 0.0)
    assert caught.value.limit == "MAX_FRAGMENTS"


@given(
    sizes=st.lists(st.sampled_from([1, 125, 126, 127, 65535, 65536, 70000]), max_size=5),
    masked=st.booleans(),
    cuts=st.lists(st.integers(1, 40_000), min_size=1),
)
def test_frames_are_told_however_they_are_cut(sizes: list[int], masked: bool, cuts: list[int]) -> None:
    """Bytes of a payload are never taken for headers: these would be pings."""
    data = REQUEST + b"".join(frame(BINARY, bytes([0x89]) * size, masked=masked) for size in sizes)
    gate = FrameGate()
    at = turn = 0
    while at < len(data):
        step = cuts[turn % len(cuts)]
        gate.check(data[at : at + step], 0.0)
        at, turn = at + step, turn + 1
    gate.check(frame(PING) * FLOOD_BURST, 0.0)
    with pytest.raises(LimitExceededError):
        gate.check(frame(PING), 0.0)


def test_the_body_of_a_refusal_is_no_frames() -> None:
    gate = FrameGate()
    gate.check(b"HTTP/1.1 403 Forbidden\r\n\r\n" + frame(PING) * 2 * FLOOD_BURST, 0.0)


@pytest.mark.parametrize("flood", [FLOODS["pings"], FLOODS["empty fragments"]], ids=["pings", "empty fragments"])
async def test_a_flood_costs_the_connection(flood: bytes) -> None:
    async with visit() as on:
        await on.tcp.send_all(flood * (FLOOD_BURST + 1))
        with pytest.raises(trio.BrokenResourceError):
            while True:
                await on.stream.receive_some()
        with pytest.raises(trio_websocket.ConnectionClosed):
            await on.client.get_message()
