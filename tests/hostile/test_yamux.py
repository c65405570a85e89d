"""Frames that are legal one by one, and those that never are: what they cost the peer that sends them."""

import pytest
import trio
from trio.testing import MockClock

from agentmesh.abc import Stream
from agentmesh.errors import ErrorCode, LimitExceededError
from agentmesh.runtime.multistream import GREETING, encode_message
from agentmesh.runtime.registry import Protocol
from agentmesh.runtime.yamux import Allowance, MuxLimits
from agentmesh.runtime.yamux.frames import ACK, FIN, RST, SYN, FrameType, encode_header
from agentmesh.runtime.yamux.limits import INITIAL_WINDOW
from agentmesh.types import ProtocolId
from tests.hostile.attackers import NAME_ECHO, open_siege, opening
from tests.runtime.hosts import ECHO, serve_echo

FEW = Allowance(burst=20, per_second=1)


def ping(flags: int = SYN) -> bytes:
    return encode_header(FrameType.PING, flags, 0, 7)


def update(flags: int, stream_id: int, delta: int = 0) -> bytes:
    return encode_header(FrameType.WINDOW_UPDATE, flags, stream_id, delta)


def opened_and_reset(stream_id: int) -> bytes:
    return opening(stream_id, NAME_ECHO) + update(RST, stream_id)


def opened_finished_and_reset(stream_id: int) -> bytes:
    return opening(stream_id, NAME_ECHO, FIN) + update(RST, stream_id)


NUMBERS = range(1, 4000, 2)
HALF_A_WINDOW = (encode_header(FrameType.DATA, 0, 1, 1000) + bytes(1000)) * (INITIAL_WINDOW // 2000)
LATE = encode_header(FrameType.DATA, 0, 4001, 1) + b"x"


@pytest.mark.parametrize(
    ("limits", "flood"),
    [
        (MuxLimits(max_resets=FEW), b"".join(map(opened_and_reset, NUMBERS))),
        (MuxLimits(max_resets=FEW), b"".join(map(opened_finished_and_reset, NUMBERS))),
        (MuxLimits(max_refusals=FEW, max_inbound_streams=5), b"".join(map(opening, NUMBERS))),
        (MuxLimits(max_unnamed=FEW), b"".join(opening(number, b"GET / HTTP/1.1\r\n") for number in NUMBERS)),
        (MuxLimits(max_unnamed=FEW), b"".join(opening(number, b"", FIN) for number in NUMBERS)),
        (MuxLimits(max_unnamed=FEW), b"".join(map(opening, NUMBERS))),
        (MuxLimits(max_late_frames=FEW), LATE * 2000),
        (MuxLimits(max_late_frames=FEW), update(0, 2, 1000) * 2000),
        (MuxLimits(max_empty_frames=FEW), opening(1, NAME_ECHO) + update(0, 1) * 2000),
        (MuxLimits(max_empty_frames=FEW), opening(1, NAME_ECHO) + encode_header(FrameType.DATA, ACK, 1, 0) * 2000),
        (MuxLimits(max_pings=FEW), ping() * 2000),
        (MuxLimits(max_pings=FEW), ping(ACK) * 2000),
        (MuxLimits(max_go_aways=FEW), encode_header(FrameType.GO_AWAY, 0, 0, 0) * 2000),
    ],
    ids=[
        *("open and reset", "finish and reset", "beyond the streams allowed", "garbage for a protocol's name"),
        *(
            "ended without a name",
            "opened and never used",
            "data for an unknown stream",
            "credit for an unknown stream",
        ),
        *("empty updates", "empty data", "pings", "pongs", "go-aways"),
    ],
)
async def test_waste_beyond_its_limit_costs_the_session(
    autojump_clock: MockClock, limits: MuxLimits, flood: bytes
) -> None:
    (kind,) = (waste.value for waste, allowance in limits.allowances.items() if allowance == FEW)
    async with open_siege(limits) as siege, siege.intruder() as mallory:
        await siege.undisturbed_by(lambda: mallory.attack(flood))
        assert siege.abused == {kind: 1}
        assert isinstance(mallory.session.failure, LimitExceededError)
        assert mallory.session.failure.limit == kind
        assert bytes(mallory.heard).endswith(encode_header(FrameType.GO_AWAY, 0, 0, 1))
        assert siege.bob.session(mallory.session.peer) is None


@pytest.mark.parametrize(
    ("kind", "frames"),
    [
        ("window_overrun", encode_header(FrameType.DATA, SYN, 1, INITIAL_WINDOW + 1)),
        ("window_overflow", opening(1, NAME_ECHO) + update(0, 1, 2**32 - 1)),
        ("protocol_violation", opening(1) + opening(1)),
        ("protocol_violation", opening(2)),
        ("protocol_violation", b"GET / HTTP/1.1\r\n"),
        ("protocol_violation", encode_header(FrameType.PING, SYN, 1, 0)),
        ("protocol_violation", encode_header(FrameType.DATA, SYN, 0, 0)),
    ],
)
async def test_what_no_honest_peer_sends_costs_the_session_at_once(
    autojump_clock: MockClock, kind: str, frames: bytes
) -> None:
    async with open_siege() as siege, siege.intruder() as mallory:
        await siege.undisturbed_by(lambda: mallory.attack(frames))
        assert siege.abused == {kind: 1}
        assert mallory.session.failure is not None


async def test_what_may_be_wasted_is_and_comes_back(autojump_clock: MockClock) -> None:
    async with open_siege(MuxLimits(max_pings=FEW)) as siege, siege.intruder() as mallory:
        for _ in range(10):
            await mallory.send(ping() * 10)
            await siege.echo_time()
            await trio.sleep(10)
        assert siege.abused == {}
        assert mallory.session.is_open


async def test_a_flood_of_streams_at_the_default_limits_holds_no_more_than_they_say(autojump_clock: MockClock) -> None:
    """All the streams that there may be, each with all the bytes that it may send, to nobody who reads them."""
    limits = MuxLimits(max_inbound_streams=64)
    body = bytes(INITIAL_WINDOW)
    async with open_siege(limits) as siege, siege.intruder() as mallory:

        async def attack() -> None:
            for number in range(1, 201, 2):
                await mallory.send(opening(number, body))

        await siege.undisturbed_by(attack)
        streams, received, queued = mallory.held
        assert streams <= limits.max_inbound_streams
        assert received <= limits.max_inbound_streams * INITIAL_WINDOW
        assert queued == 0


async def hold(stream: Stream) -> None:
    """Take nothing."""
    await trio.sleep_forever()


async def test_bytes_that_nobody_takes_cost_the_session(autojump_clock: MockClock) -> None:
    """Each stream keeps to its window, and together they are too much."""
    limits = MuxLimits(max_buffered_bytes=4 * 1024 * 1024)
    holding = ProtocolId("/test/hold")
    name = GREETING + encode_message(holding)
    body = name + bytes(INITIAL_WINDOW - len(name))
    protocols = (Protocol(ECHO, serve_echo), Protocol(holding, hold))
    async with open_siege(limits, protocols=protocols) as siege, siege.intruder() as mallory:
        most: list[int] = []

        async def attack() -> None:
            for number in range(1, 201, 2):
                await mallory.send(opening(number, body))
                await trio.sleep(0.1)
                most.append(mallory.held[1])
            await mallory.over.wait()

        await siege.undisturbed_by(attack)
        assert siege.abused == {"max_buffered_bytes": 1}
        assert limits.max_buffered_bytes - INITIAL_WINDOW <= max(most) <= limits.max_buffered_bytes
        assert mallory.session.streams == ()


async def test_a_peer_that_gives_no_credit_loses_the_stream(autojump_clock: MockClock) -> None:
    """The zero window: the echo of what was sent waits for credit that never comes."""
    limits = MuxLimits(stall_timeout=100.0)
    async with open_siege(limits) as siege, siege.intruder() as mallory:
        await mallory.send(opening(1, NAME_ECHO))
        for _ in range(4):
            await siege.undisturbed_by(lambda: mallory.send(HALF_A_WINDOW))  # and each time Bob gives credit for more
        streams, received, queued = mallory.held
        assert streams == 1
        assert received <= INITIAL_WINDOW
        assert 0 < queued <= INITIAL_WINDOW
        await trio.sleep(100)
        assert mallory.held == (0, 0, 0)
        assert mallory.session.mux.statistics().stalled_streams == 1
        assert update(RST, 1, ErrorCode.GARBAGE_COLLECTED) in mallory.heard
        assert siege.abused == {}


async def test_pings_of_a_peer_that_does_not_read(autojump_clock: MockClock) -> None:
    limits = MuxLimits(max_control_bytes=1200, max_pings=Allowance(10_000, 1))
    async with open_siege(limits) as siege, siege.intruder() as mallory:
        await siege.undisturbed_by(lambda: mallory.attack(ping() * 5000))
        assert siege.abused == {"max_control_bytes": 1}


async def test_after_its_go_away_a_peer_opens_nothing(autojump_clock: MockClock) -> None:
    async with open_siege() as siege, siege.intruder() as mallory:
        await mallory.send(encode_header(FrameType.GO_AWAY, 0, 0, 0) + opening(1, NAME_ECHO))
        await siege.echo_time()
        assert update(RST, 1, ErrorCode.SHUTDOWN) in mallory.heard
        assert mallory.held[0] == 0


async def test_honest_bursts_cost_nothing(autojump_clock: MockClock) -> None:
    """As many calls as may be open are opened at once and cancelled, twice, at the default limits."""
    async with open_siege() as siege:
        count = MuxLimits().max_inbound_streams
        for _ in range(2):
            streams = [await siege.alice.open_stream(siege.bob.peer, ECHO) for _ in range(count)]
            for stream in streams:
                await stream.send_all(b"hello")
            for stream in streams:
                stream.reset()
            await siege.echo_time()
        assert siege.abused == {}
