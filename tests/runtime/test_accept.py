"""Inbound streams: who may open what, how many, and what a protocol that fails costs."""

import gc
import logging
import weakref
from collections.abc import Mapping

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from agentmesh.abc import Admission, Direction, Stream, StreamLimits
from agentmesh.errors import (
    ErrorCode,
    LimitExceededError,
    LocalProtocolError,
    RejectedError,
    RemoteProtocolError,
    StreamResetError,
)
from agentmesh.runtime.accept import OUTCOMES
from agentmesh.runtime.config import HostConfig, SessionConfig
from agentmesh.runtime.host import Host
from agentmesh.runtime.multistream import GREETING, MAX_PROPOSALS, encode_message
from agentmesh.runtime.registry import Protocol
from agentmesh.runtime.session import MuxSession
from agentmesh.runtime.stream import MuxStream
from agentmesh.testing.network import MemoryNetwork
from agentmesh.types import ProtocolId
from tests.runtime.hosts import ECHO, admit, echo, open_named, open_two, serve_echo

FAILING = ProtocolId("/test/failing")
GATED = ProtocolId("/test/gated")
ROUTERS_ONLY = ProtocolId("/test/routers-only")
LOGGER = "agentmesh.runtime.accept"


def outcomes(host: Host) -> Mapping[str, int]:
    """The outcomes that there were, without those that there were not."""
    counted = host.statistics().streams.outcomes
    assert set(counted) == set(OUTCOMES)
    return {outcome: count for outcome, count in counted.items() if count}


def raising(error: BaseException) -> Protocol:
    async def serve(stream: Stream) -> None:
        await stream.receive_some()
        raise error

    return Protocol(FAILING, serve)


async def use(host: Host, session: MuxSession, protocol: ProtocolId) -> StreamResetError:
    """Open a stream and say hello. Returns the error that it ends with."""
    stream = await session.open_stream(protocol)
    async with stream:
        await stream.send_all(b"hello")
        with pytest.raises(StreamResetError) as caught:
            await stream.receive_some()
    return caught.value


def session_of(host: Host, other: Host) -> MuxSession:
    session = host.session(other.peer)
    assert session is not None
    return session


async def raw(session: MuxSession) -> MuxStream:
    """A stream on which nothing is said but what the test says."""
    return MuxStream(session, Direction.OUTBOUND)


# ── what a failure costs ──

TOO_MUCH = LimitExceededError("too much")
EXPECTED = [
    (RemoteProtocolError("theirs"), ErrorCode.PROTOCOL_VIOLATION, "peer_failed"),
    (TOO_MUCH, ErrorCode.RESOURCE_LIMIT_EXCEEDED, "peer_failed"),
    (RejectedError("later", ErrorCode.RATE_LIMITED), ErrorCode.RATE_LIMITED, "peer_failed"),
    (trio.BrokenResourceError("gone"), ErrorCode.NO_ERROR, "peer_failed"),
    (trio.ClosedResourceError("reset by our own gate"), ErrorCode.NO_ERROR, "peer_failed"),
    (trio.TooSlowError(), ErrorCode.NO_ERROR, "peer_failed"),
    (LocalProtocolError("ours"), ErrorCode.PROTOCOL_VIOLATION, "failed"),
    (ZeroDivisionError("ours"), ErrorCode.NO_ERROR, "failed"),
    (ExceptionGroup("", [trio.TooSlowError(), RemoteProtocolError("")]), ErrorCode.NO_ERROR, "peer_failed"),
    (ExceptionGroup("", [trio.TooSlowError(), KeyError("ours")]), ErrorCode.NO_ERROR, "failed"),
    (
        ExceptionGroup("", [ExceptionGroup("", [TOO_MUCH])]),
        ErrorCode.RESOURCE_LIMIT_EXCEEDED,
        "peer_failed",
    ),
]


@pytest.mark.parametrize(("error", "code", "outcome"), EXPECTED)
async def test_a_serve_that_raises_costs_its_stream_only(
    error: Exception, code: ErrorCode, outcome: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    async with open_two([raising(error), Protocol(ECHO, serve_echo)]) as (alice, bob):
        standing = await alice.open_stream(bob.peer, ECHO)
        await standing.send_all(b"before")
        told = await use(alice, session_of(alice, bob), FAILING)
        assert told.code == code
        assert await standing.receive_some() == b"before"
        await standing.aclose()
        await wait_all_tasks_blocked()
        assert outcomes(bob) == {outcome: 1, "served": 1}
        assert bob.statistics().streams.serving == 0
    record = next(record for record in caplog.records if record.name == LOGGER)
    assert vars(record)["peer"] == alice.peer
    assert vars(record)["protocol"] == FAILING
    assert record.levelno == (logging.ERROR if outcome == "failed" else logging.INFO)
    assert bool(record.exc_info) == (outcome == "failed")
    assert outcome == "failed" or (vars(record)["reason"] and "sub-exception" not in vars(record)["reason"])


async def test_a_serve_that_fails_while_it_is_cancelled_costs_no_more(caplog: pytest.LogCaptureFixture) -> None:
    """Its session ends, and what it does about that raises: beside the cancellation of its other tasks."""

    async def fail_at_the_end() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise KeyError("ours")

    async def serve(stream: Stream) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail_at_the_end)
            nursery.start_soon(trio.sleep_forever)

    async with open_two([Protocol(FAILING, serve), Protocol(ECHO, serve_echo)]) as (alice, bob):
        stream = await alice.open_stream(bob.peer, FAILING)
        await stream.send_all(b"hello")
        await wait_all_tasks_blocked()
        await session_of(alice, bob).aclose()
        await wait_all_tasks_blocked()
        assert outcomes(bob) == {"failed": 1}
        await alice.connect(bob.peer, bob.addresses)
        assert await echo(alice, bob.peer) == b"hello"
    assert [record.getMessage() for record in caplog.records if record.name == LOGGER] == ["protocol failed"]


async def test_a_serve_that_is_cancelled_is_no_failure() -> None:
    async def serve(stream: Stream) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            nursery.start_soon(trio.sleep_forever)

    async with open_two([Protocol(FAILING, serve)]) as (alice, bob):
        stream = await alice.open_stream(bob.peer, FAILING)
        await stream.send_all(b"hello")
        await wait_all_tasks_blocked()
        assert bob.statistics().streams.serving == 1
        await session_of(alice, bob).aclose()
        await wait_all_tasks_blocked()
        assert outcomes(bob) == {}
        assert bob.statistics().streams.serving == 0


async def test_a_serve_that_returns_closes_its_stream() -> None:
    async def serve(stream: Stream) -> None:
        await stream.send_all(b"that is all")

    async with open_two([Protocol(FAILING, serve)]) as (alice, bob):
        assert await echo(alice, bob.peer, b"", FAILING) == b"that is all"
        assert outcomes(bob) == {"served": 1}


# ── the gate ──


async def test_the_gate_opens_for_whoever_is_admitted_high_enough() -> None:
    protocols = [
        Protocol(GATED, serve_echo, Admission.MEMBER),
        Protocol(ROUTERS_ONLY, serve_echo, Admission.ROUTER),
        Protocol(ECHO, serve_echo),
    ]
    async with open_two(protocols) as (alice, bob):
        session = session_of(alice, bob)
        opened: dict[Admission, set[ProtocolId]] = {
            Admission.ANYONE: set(),
            Admission.MEMBER: {GATED},
            Admission.ROUTER: {GATED, ROUTERS_ONLY},
        }
        for level, open_to_it in opened.items():
            admit(bob, alice.peer, level)
            for protocol in (GATED, ROUTERS_ONLY):
                if protocol in open_to_it:
                    assert await echo(alice, bob.peer, protocol=protocol) == b"hello"
                else:
                    told = await use(alice, session, protocol)
                    assert isinstance(told, RejectedError)
                    assert told.code == ErrorCode.GATED
            assert await echo(alice, bob.peer) == b"hello"
        assert outcomes(bob) == {"gated": 3, "served": 6}


async def test_an_admission_that_ends_takes_what_it_let_in_along(autojump_clock: MockClock) -> None:
    protocols = [Protocol(GATED, serve_echo, Admission.MEMBER), Protocol(ECHO, serve_echo)]
    async with open_two(protocols) as (alice, bob):
        admit(bob, alice.peer, seconds=100)
        gated = [await alice.open_stream(bob.peer, GATED) for _ in range(3)]
        free = await alice.open_stream(bob.peer, ECHO)
        for stream in (*gated, free):
            await stream.send_all(b"hello")
            assert await stream.receive_some() == b"hello"
        start = trio.current_time()
        for stream in gated:
            with pytest.raises(StreamResetError) as caught:
                await stream.receive_some()
            assert caught.value.code == ErrorCode.GATED
            await stream.aclose()
        assert trio.current_time() - start == pytest.approx(100)
        await free.send_all(b"still here")
        assert await free.receive_some() == b"still here"
        assert isinstance(await use(alice, session_of(alice, bob), GATED), RejectedError)
        assert outcomes(bob) == {"peer_failed": 3, "gated": 1}
        admit(bob, alice.peer, seconds=100)
        assert await echo(alice, bob.peer, protocol=GATED) == b"hello"


async def test_streams_of_others_stay_when_one_admission_ends() -> None:
    network = MemoryNetwork()
    async with (
        open_two([Protocol(GATED, serve_echo, Admission.MEMBER)], network=network) as (alice, bob),
        open_named(network, "carol") as carol,
    ):
        await carol.connect(bob.peer, bob.addresses)
        streams: list[Stream] = []
        for host in (alice, carol):
            admit(bob, host.peer)
            streams.append(await host.open_stream(bob.peer, GATED))
            await streams[-1].send_all(b"hello")
            assert await streams[-1].receive_some() == b"hello"
        bob.admissions.revoke(alice.peer)
        with pytest.raises(StreamResetError):
            await streams[0].receive_some()
        await streams[1].send_all(b"hello")
        assert await streams[1].receive_some() == b"hello"


async def test_nothing_holds_a_stream_that_is_over() -> None:
    served: list[weakref.ref[Stream]] = []

    async def serve(stream: Stream) -> None:
        served.append(weakref.ref(stream))
        await serve_echo(stream)

    async with open_two([Protocol(GATED, serve, Admission.MEMBER)]) as (alice, bob):
        admit(bob, alice.peer)
        for _ in range(20):
            assert await echo(alice, bob.peer, protocol=GATED) == b"hello"
        await wait_all_tasks_blocked()
        gc.collect()
        assert [stream() for stream in served] == [None] * 20


# ── limits ──


@pytest.mark.parametrize("limit", [1, 2])
async def test_each_peer_may_open_so_many_streams_of_a_protocol(limit: int) -> None:
    network = MemoryNetwork()
    protocol = Protocol(ECHO, serve_echo, limits=StreamLimits(max_streams_per_peer=limit))
    async with open_two([protocol], network=network) as (alice, bob), open_named(network, "carol") as carol:
        await carol.connect(bob.peer, bob.addresses)
        streams = [await alice.open_stream(bob.peer, ECHO) for _ in range(limit)]
        for stream in streams:
            await stream.send_all(b"hello")
            assert await stream.receive_some() == b"hello"
        told = await use(alice, session_of(alice, bob), ECHO)
        assert isinstance(told, RejectedError)
        assert told.code == ErrorCode.RESOURCE_LIMIT_EXCEEDED
        assert await echo(carol, bob.peer) == b"hello"
        await streams[0].aclose()
        await wait_all_tasks_blocked()
        assert await echo(alice, bob.peer) == b"hello"
        assert bob.statistics().streams.serving == limit - 1
        assert outcomes(bob) == {"limited": 1, "served": 3}


# ── naming a protocol ──


@pytest.mark.parametrize("timeout", [3.0, 10.0])
@pytest.mark.parametrize("said", [b"", GREETING, GREETING + b"\x05/te"])
async def test_a_stream_that_names_no_protocol_is_cut_at_the_deadline(
    autojump_clock: MockClock, timeout: float, said: bytes
) -> None:
    config = HostConfig(session=SessionConfig(negotiation_timeout=timeout))
    async with open_two(bobs=config) as (alice, bob):
        stream = await raw(session_of(alice, bob))
        await stream.send_all(said)
        start = trio.current_time()
        with pytest.raises(StreamResetError) as caught:
            while True:
                await stream.receive_some()
        assert caught.value.code == ErrorCode.PROTOCOL_NEGOTIATION_FAILED
        assert trio.current_time() - start == pytest.approx(timeout)
        assert outcomes(bob) == {"unnamed": 1}
        assert await echo(alice, bob.peer) == b"hello"


@pytest.mark.parametrize(
    ("said", "outcome"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "unnamed"),
        (GREETING + b"\xff" * 10, "unnamed"),
        (GREETING + encode_message("/no") + b"\xff" * 10, "unknown"),
        (GREETING + encode_message("/no") * (MAX_PROPOSALS + 1), "unknown"),
    ],
)
async def test_what_is_no_negotiation_costs_the_stream(said: bytes, outcome: str) -> None:
    async with open_two() as (alice, bob):
        stream = await raw(session_of(alice, bob))
        await stream.send_all(said)
        with pytest.raises(StreamResetError) as caught:
            while True:
                await stream.receive_some()
        assert caught.value.code == ErrorCode.PROTOCOL_NEGOTIATION_FAILED
        assert outcomes(bob) == {outcome: 1}
        assert await echo(alice, bob.peer) == b"hello"


async def test_an_unknown_protocol_is_refused_by_name() -> None:
    async with open_two() as (alice, bob):
        told = await use(alice, session_of(alice, bob), ProtocolId("/test/unknown"))
        assert isinstance(told, RejectedError)
        assert told.code == ErrorCode.PROTOCOL_NEGOTIATION_FAILED
        await wait_all_tasks_blocked()
        assert outcomes(bob) == {"unknown": 1}


async def test_a_peer_may_wait_for_the_answer_before_it_says_anything() -> None:
    """Most do; and a protocol that listens first must not keep it waiting."""
    async with open_two() as (alice, bob):
        stream = await raw(session_of(alice, bob))
        await stream.send_all(GREETING + encode_message(ECHO))
        answer = GREETING + encode_message(ECHO)
        while answer:
            answer = answer.removeprefix(await stream.receive_some())
        await stream.send_all(b"hello")
        assert await stream.receive_some() == b"hello"
        await stream.aclose()


async def test_a_peer_may_propose_again() -> None:
    async with open_two() as (alice, bob):
        stream = await raw(session_of(alice, bob))
        await stream.send_all(GREETING + encode_message("/test/newer"))
        assert await stream.receive_some() == GREETING + encode_message("na")
        await stream.send_all(encode_message(ECHO) + b"hello")
        received = b""
        while len(received) < len(encode_message(ECHO)) + 5:
            received += await stream.receive_some()
        assert received == encode_message(ECHO) + b"hello"
        await stream.aclose()
        await wait_all_tasks_blocked()
        assert outcomes(bob) == {"served": 1}
