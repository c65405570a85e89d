"""The answering side, between hosts and with real credentials."""

from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from agentmesh.credentials import ROLE_ROUTER, Credential
from agentmesh.errors import ErrorCode, RejectedError
from agentmesh.identity import Identity
from agentmesh.protocols.auth import AUTH_ID, AuthPolicy, AuthStatistics, Result, authenticate, protocol
from agentmesh.protocols.auth.driver import MAX_STREAMS_PER_PEER
from agentmesh.protocols.auth.machine import AUTH_TIMEOUT
from agentmesh.protocols.auth.wire import encode_frame_message
from agentmesh.runtime.host import open_host
from agentmesh.testing import MemoryNetwork, cancel_at_every_await
from agentmesh.types import Address, PeerId
from agentmesh.wire.framing import encode_varint
from tests.protocols.auth.net import anothers, check, credential_of, expired, foreign, garbage, open_pair, wall_clock


async def test_each_learns_the_others_credential_and_the_gate_opens(autojump_clock: MockClock) -> None:
    async with open_pair() as pair:
        with pytest.raises(RejectedError):
            await pair.knock()
        credential = await pair.authenticate()
        assert (credential.peer, credential.role) == (pair.router.peer, ROLE_ROUTER)
        assert pair.router.admissions.expires_at(pair.member.peer) == pytest.approx(wall_clock() + 1000, abs=1)
        assert await pair.knock() == b"welcome"
        assert pair.results() == {"ok": 1}


async def test_the_gate_closes_when_the_credential_expires_and_a_new_one_keeps_it_open(
    autojump_clock: MockClock,
) -> None:
    async with open_pair() as pair:
        await pair.authenticate(credential_of(pair.member.peer, lasting=100))
        await trio.sleep(90)
        await pair.authenticate(credential_of(pair.member.peer, lasting=100))
        await trio.sleep(90)
        assert await pair.knock() == b"welcome"
        await trio.sleep(20)
        with pytest.raises(RejectedError):
            await pair.knock()


@pytest.mark.parametrize("make", [foreign, expired, anothers, garbage])
async def test_a_credential_that_does_not_admit_its_bearer_is_reset(
    make: Callable[[PeerId], bytes], autojump_clock: MockClock
) -> None:
    async with open_pair() as pair:
        with pytest.raises(RejectedError) as refused:
            await pair.authenticate(make(pair.member.peer))
        assert refused.value.code == ErrorCode.GATED
        assert pair.results() == {"unauthorized": 1}
        assert pair.member.peer not in pair.router.admissions
        await pair.authenticate()


async def test_the_banned_are_refused_whatever_they_show(autojump_clock: MockClock) -> None:
    async with open_pair() as pair:
        pair.banned.add(pair.member.peer)
        with pytest.raises(RejectedError) as refused:
            await pair.authenticate()
        assert refused.value.code == ErrorCode.GATED
        assert pair.results() == {"banned": 1}


async def test_a_ban_that_comes_while_the_frame_is_read_counts(autojump_clock: MockClock) -> None:
    async with open_pair() as pair:
        async with await pair.member.open_stream(pair.router.peer, AUTH_ID) as stream:
            await stream.send_all(encode_varint(200))
            await wait_all_tasks_blocked()
            pair.banned.add(pair.member.peer)
            await stream.send_all(encode_frame_message(credential_of(pair.member.peer)).ljust(200, b"\0")[:200])
            with pytest.raises(trio.BrokenResourceError):
                await stream.receive_some()
        assert pair.member.peer not in pair.router.admissions


async def test_the_eleventh_handshake_at_once_is_one_too_many(autojump_clock: MockClock) -> None:
    async with open_pair() as pair:
        for _ in range(10):
            await pair.authenticate()
        with pytest.raises(RejectedError) as refused:
            await pair.authenticate()
        assert refused.value.code == ErrorCode.RATE_LIMITED
        assert pair.results() == {"ok": 10, "rate_limited": 1}
        await trio.sleep(0.2)
        await pair.authenticate()


async def test_a_full_admission_book_refuses(autojump_clock: MockClock) -> None:
    def full(peer: PeerId, credential: Credential) -> None:
        raise RejectedError("max_peers are admitted")

    async with open_pair() as pair:
        statistics = AuthStatistics()
        policy = AuthPolicy(verify=check, own=lambda: b"", admit=full)
        served = protocol(policy, statistics=statistics)
        network = MemoryNetwork()
        async with (
            open_host(
                identity=Identity.generate(),
                transports=[network.transport("full")],
                protocols=[served],
                listen=[Address.parse("/memory/1")],
            ) as host,
            open_host(identity=pair.member.identity, transports=[network.transport("member")]) as member,
        ):
            await member.connect(host.peer, host.addresses)
            async with await member.open_stream(host.peer, AUTH_ID) as stream:
                with pytest.raises(RejectedError) as refused:
                    await authenticate(stream, token=credential_of(member.peer), verify=check)
            assert refused.value.code == ErrorCode.RESOURCE_LIMIT_EXCEEDED
            assert statistics.results[Result.UNAUTHORIZED] == 1


@pytest.mark.parametrize(
    ("data", "result"),
    [
        (b"\x02\xff\xff", Result.INVALID_FRAME),
        (encode_varint(64 * 1024 + 1), Result.INVALID_FRAME),
        (b"\x05ab", Result.READ_FAILED),
        (b"", Result.READ_FAILED),
    ],
)
async def test_a_frame_that_is_none_is_reset(data: bytes, result: Result, autojump_clock: MockClock) -> None:
    async with open_pair() as pair:
        async with await pair.member.open_stream(pair.router.peer, AUTH_ID) as stream:
            if data:
                await stream.send_all(data)
            await stream.send_eof()
            with pytest.raises(trio.BrokenResourceError) as cut:
                await stream.receive_some()
            assert getattr(cut.value, "code", None) == ErrorCode.PROTOCOL_VIOLATION
        assert pair.results() == {str(result): 1}
        await pair.authenticate()


async def test_a_frame_is_due_within_ten_seconds(autojump_clock: MockClock) -> None:
    async with open_pair() as pair:
        async with await pair.member.open_stream(pair.router.peer, AUTH_ID) as stream:
            start = trio.current_time()
            await stream.send_all(b"\x05")
            with pytest.raises(trio.BrokenResourceError):
                await stream.receive_some()
            assert trio.current_time() - start == pytest.approx(AUTH_TIMEOUT)
        assert pair.results() == {"read_failed": 1}


async def test_a_peer_has_four_handshakes_at_once(autojump_clock: MockClock) -> None:
    async with open_pair() as pair:
        streams = [await pair.member.open_stream(pair.router.peer, AUTH_ID) for _ in range(MAX_STREAMS_PER_PEER)]
        for stream in streams:
            await stream.send_all(b"\x05")
        await wait_all_tasks_blocked()
        with pytest.raises(RejectedError) as refused:
            await pair.authenticate()
        assert refused.value.code == ErrorCode.RESOURCE_LIMIT_EXCEEDED
        for stream in streams:
            stream.reset()
        await wait_all_tasks_blocked()
        await pair.authenticate()


async def test_an_opener_that_resets_is_counted(autojump_clock: MockClock) -> None:
    async with open_pair() as pair:
        stream = await pair.member.open_stream(pair.router.peer, AUTH_ID)
        await stream.send_all(b"\x05")
        await wait_all_tasks_blocked()
        stream.reset()
        await wait_all_tasks_blocked()
        assert pair.results() == {"read_failed": 1}


async def test_every_result_is_there_from_the_start() -> None:
    assert AuthStatistics().results == dict.fromkeys(Result, 0)
    assert [str(result) for result in Result] == [
        *("ok", "banned", "rate_limited", "read_failed", "invalid_frame", "unauthorized")
    ]


async def test_a_handshake_cancelled_anywhere_leaves_nothing(autojump_clock: MockClock) -> None:
    async with open_pair() as pair:

        async def operation() -> None:
            await trio.sleep(1)  # so that the limiter has tries to give
            await pair.authenticate()

        async def check_nothing_left() -> None:
            await wait_all_tasks_blocked()
            session = pair.member.session(pair.router.peer)
            assert session is not None
            assert session.streams == ()
            assert pair.router.statistics().streams.serving == 0

        assert await cancel_at_every_await(operation, check=check_nothing_left) >= 3
