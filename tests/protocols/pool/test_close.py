"""One router has another close a connection of its."""

import contextlib
import json

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from agentmesh.abc import Admission, Stream
from agentmesh.errors import DialError, LimitExceededError, RemoteProtocolError
from agentmesh.protocols.pool import CLOSE_ID, CloseRequest, Closing, ConnEpoch, ask_close, close_protocol
from agentmesh.protocols.pool.close_wire import (
    MAX_CLOSE_BYTES,
    decode_close,
    decode_closing,
    encode_close,
    encode_closing,
)
from agentmesh.protocols.pool.driver import REQUEST_TIMEOUT
from agentmesh.protocols.pool.values import MAX_EPOCH
from agentmesh.runtime.host import Host
from agentmesh.runtime.messages import write_message
from agentmesh.runtime.registry import Protocol, Serve
from agentmesh.runtime.session import MuxSession
from agentmesh.testing.cancellation import cancel_at_every_await
from agentmesh.testing.strategies import damaged
from agentmesh.wire.framing import encode_frame
from tests.protocols.ping.test_driver import two_hosts
from tests.protocols.pool.values import CLOSES

REQUEST = CloseRequest("agent", "c1", ConnEpoch(MAX_EPOCH))


# ── the wire ──


@given(CLOSES, st.sampled_from(Closing))
def test_what_is_sent_comes_back(request: CloseRequest, closing: Closing) -> None:
    assert decode_close(encode_close(request)) == request
    assert decode_closing(encode_closing(closing)) is closing
    assert len(encode_close(request)) <= MAX_CLOSE_BYTES


@given(CLOSES)
def test_any_epoch_survives_a_reader_of_doubles(request: CloseRequest) -> None:
    said = json.loads(encode_close(request))
    rounded = {**said, "connection_epoch": float(said["connection_epoch"])}
    assert decode_close(json.dumps(rounded).encode()) == request


@pytest.mark.parametrize(
    "change",
    [
        {"connection_epoch": 0, "connection_epoch_decimal": None},  # any life of it is none
        {"connection_epoch_decimal": "0"},
        {"connection_epoch_decimal": "-1"},
        {"connection_epoch_decimal": str(2**63)},
        {"connection_epoch": None, "connection_epoch_decimal": None},
        {"agent_id": ""},
        {"agent_id": "a b"},
        {"connection_id": None},
        {"connection_id": []},
    ],
)
def test_what_is_no_request(change: dict[str, object]) -> None:
    said = json.loads(encode_close(REQUEST)) | change
    with pytest.raises(RemoteProtocolError):
        decode_close(json.dumps(said).encode())


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"status": "done"}', b'{"status": 1}'])
def test_what_is_no_answer(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_closing(data)


def test_a_request_is_bounded() -> None:
    with pytest.raises(LimitExceededError):
        decode_close(encode_close(REQUEST) + b" " * MAX_CLOSE_BYTES)


@given(damaged(CLOSES.map(encode_close)) | damaged(st.sampled_from(Closing).map(encode_closing)))
def test_damaged_bytes_are_a_message_or_the_peers_fault(data: bytes) -> None:
    with contextlib.suppress(RemoteProtocolError):
        decode_close(data)
    with contextlib.suppress(RemoteProtocolError):
        decode_closing(data)


# ── two routers ──


def session_of(dialer: Host, listener: Host) -> MuxSession:
    session = dialer.session(listener.peer)
    assert session is not None
    return session


def answering(closing: Closing, asked: list[CloseRequest]) -> Protocol:
    def close(request: CloseRequest) -> Closing:
        asked.append(request)
        return closing

    return close_protocol(close, Admission.ANYONE)


@pytest.mark.parametrize("closing", Closing)
async def test_the_owner_says_what_becomes_of_it(autojump_clock: MockClock, closing: Closing) -> None:
    asked: list[CloseRequest] = []
    async with two_hosts([answering(closing, asked)]) as (dialer, listener):
        session = session_of(dialer, listener)
        assert await ask_close(session, REQUEST) is closing
        assert asked == [REQUEST]
        await wait_all_tasks_blocked()
        assert session.streams == ()


async def silent(stream: Stream) -> None:
    await trio.sleep_forever()


async def hang_up(stream: Stream) -> None:
    await stream.receive_some()


async def babble(stream: Stream) -> None:
    await write_message(stream, b'{"status": "perhaps"}')


@pytest.mark.parametrize(("serve", "seconds"), [(silent, REQUEST_TIMEOUT), (hang_up, 0.0), (babble, 0.0)])
async def test_an_owner_that_does_not_say(autojump_clock: MockClock, serve: Serve, seconds: float) -> None:
    async with two_hosts([Protocol(CLOSE_ID, serve, Admission.ANYONE)]) as (dialer, listener):
        session = session_of(dialer, listener)
        with pytest.raises(DialError):
            await ask_close(session, REQUEST)
        assert trio.current_time() == pytest.approx(seconds)
        await wait_all_tasks_blocked()
        assert session.streams == ()


async def test_an_owner_that_is_gone_or_knows_nothing_of_it(autojump_clock: MockClock) -> None:
    async with two_hosts([]) as (dialer, listener):
        session = session_of(dialer, listener)
        for _ in range(2):
            with pytest.raises(DialError):
                await ask_close(session, REQUEST)
            session.abort("gone")


async def test_only_routers_may_ask(autojump_clock: MockClock) -> None:
    asked: list[CloseRequest] = []

    def close(request: CloseRequest) -> Closing:
        asked.append(request)
        return Closing.BEGUN

    async with two_hosts([close_protocol(close)]) as (dialer, listener):
        with pytest.raises(DialError):
            await ask_close(session_of(dialer, listener), REQUEST)
        assert asked == []


async def test_half_a_request_is_none(autojump_clock: MockClock) -> None:
    asked: list[CloseRequest] = []
    async with two_hosts([answering(Closing.BEGUN, asked)]) as (dialer, listener):
        stream = await session_of(dialer, listener).open_stream(CLOSE_ID)
        await stream.send_all(encode_frame(encode_close(REQUEST))[:-1])
        with pytest.raises(trio.BrokenResourceError):
            await stream.receive_some()
        assert trio.current_time() == pytest.approx(REQUEST_TIMEOUT)
        assert asked == []


async def test_asking_cancelled_anywhere_leaves_nothing(autojump_clock: MockClock) -> None:
    async with two_hosts([answering(Closing.BEGUN, [])]) as (dialer, listener):
        session = session_of(dialer, listener)

        async def ask() -> None:
            await ask_close(session, REQUEST)

        async def check() -> None:
            await wait_all_tasks_blocked()
            assert session.streams == ()

        assert await cancel_at_every_await(ask, check=check) >= 2
