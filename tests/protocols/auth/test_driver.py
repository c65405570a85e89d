"""The handshake between hosts, with real credentials."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from agentmesh.abc import Admission, Stream
from agentmesh.credentials import ROLE_NODE, ROLE_ROUTER, Credential, SigningKey, TrustedKeys, mint, verify
from agentmesh.errors import CredentialError, ErrorCode, RejectedError, RemoteProtocolError
from agentmesh.identity import Identity
from agentmesh.protocols.auth import AUTH_ID, AuthPolicy, AuthStatistics, Result, authenticate, protocol
from agentmesh.protocols.auth.driver import MAX_STREAMS_PER_PEER
from agentmesh.protocols.auth.machine import AUTH_TIMEOUT
from agentmesh.protocols.auth.wire import Answer, encode_answer, encode_frame_message
from agentmesh.runtime.admission import AdmissionBook
from agentmesh.runtime.host import Host, open_host
from agentmesh.runtime.messages import write_message
from agentmesh.runtime.registry import Protocol
from agentmesh.testing import MemoryNetwork, cancel_at_every_await
from agentmesh.types import Address, PeerId, ProtocolId
from agentmesh.wire.framing import encode_varint

EPOCH = 1_900_000_000.0
KEY = SigningKey.generate()
GATED_ID = ProtocolId("/test/gated/1.0.0")


def wall_clock() -> float:
    return EPOCH + trio.current_time()


def check(token: bytes, peer: PeerId) -> Credential:
    return verify(token, peer=peer, trusted=TrustedKeys(frozenset({KEY.public})), now=wall_clock())


def credential_of(peer: PeerId, *, key: SigningKey = KEY, role: str = ROLE_NODE, lasting: float = 1000.0) -> bytes:
    return mint(key, peer=peer, role=role, labels={}, expires_at=wall_clock() + lasting)


async def serve_gated(stream: Stream) -> None:
    await stream.send_all(b"welcome")


@attrs.define
class Pair:
    """A router that answers handshakes and a member with a session to it."""

    router: Host
    member: Host
    statistics: AuthStatistics
    banned: set[PeerId] = attrs.Factory(set[PeerId])

    async def authenticate(self, token: bytes | None = None, required_role: str | None = ROLE_ROUTER) -> Credential:
        async with await self.member.open_stream(self.router.peer, AUTH_ID) as stream:
            return await authenticate(
                stream,
                token=credential_of(self.member.peer) if token is None else token,
                verify=check,
                required_role=required_role,
            )

    async def knock(self) -> bytes | bytearray:
        """What the gated protocol says to the member."""
        async with await self.member.open_stream(self.router.peer, GATED_ID) as stream:
            return await stream.receive_some()

    def results(self) -> dict[str, int]:
        return {str(result): count for result, count in self.statistics.results.items() if count}


@asynccontextmanager
async def open_pair(own: Callable[[PeerId], bytes] | None = None) -> AsyncGenerator[Pair]:
    network, identity = MemoryNetwork(), Identity.generate()
    admissions, statistics, banned = AdmissionBook(wall_clock), AuthStatistics(), set[PeerId]()

    def admit(peer: PeerId, credential: Credential) -> None:
        admissions.admit(peer, Admission.MEMBER, credential.expires_at)

    policy = AuthPolicy(
        verify=check,
        own=lambda: own(identity.peer) if own else credential_of(identity.peer, role=ROLE_ROUTER),
        admit=admit,
        is_banned=banned.__contains__,
    )
    async with (
        open_host(
            identity=identity,
            transports=[network.transport("router")],
            protocols=[protocol(policy, statistics=statistics), Protocol(GATED_ID, serve_gated, Admission.MEMBER)],
            listen=[Address.parse("/memory/1")],
            admissions=admissions,
        ) as router,
        open_host(identity=Identity.generate(), transports=[network.transport("member")]) as member,
    ):
        await member.connect(router.peer, router.addresses)
        yield Pair(router, member, statistics, banned)


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


def foreign(me: PeerId) -> bytes:
    return credential_of(me, key=SigningKey.generate(), role=ROLE_ROUTER)


def expired(me: PeerId) -> bytes:
    return credential_of(me, role=ROLE_ROUTER, lasting=-10)


def anothers(me: PeerId) -> bytes:
    return credential_of(Identity.generate().peer, role=ROLE_ROUTER)


def garbage(me: PeerId) -> bytes:
    return b"biscuit"


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


# ── answerers that are not what they should be ──


@pytest.mark.parametrize(
    ("own", "reason"),
    [
        (credential_of, "wrong_role"),
        (expired, "expired"),
        (foreign, "untrusted"),
        (anothers, "wrong_peer"),
        (garbage, "malformed"),
    ],
)
async def test_the_answerers_credential_is_held_to_the_same(
    own: Callable[[PeerId], bytes], reason: str, autojump_clock: MockClock
) -> None:
    async with open_pair(own) as pair:
        with pytest.raises(CredentialError) as wrong:
            await pair.authenticate()
        assert wrong.value.reason == reason


async def test_any_role_will_do_when_none_is_asked_for(autojump_clock: MockClock) -> None:
    async with open_pair(credential_of) as pair:
        assert (await pair.authenticate(required_role=None)).role == ROLE_NODE


async def with_answerer(serve: Callable[[Stream], Awaitable[None]]) -> None:
    network = MemoryNetwork()
    async with (
        open_host(
            identity=Identity.generate(),
            transports=[network.transport("router")],
            protocols=[Protocol(AUTH_ID, serve)],
            listen=[Address.parse("/memory/1")],
        ) as router,
        open_host(identity=Identity.generate(), transports=[network.transport("member")]) as member,
    ):
        await member.connect(router.peer, router.addresses)
        async with await member.open_stream(router.peer, AUTH_ID) as stream:
            await authenticate(stream, token=credential_of(member.peer), verify=check)


async def test_a_polite_refusal_is_one_too(autojump_clock: MockClock) -> None:
    async def decline(stream: Stream) -> None:
        await write_message(stream, encode_answer(Answer(False, error="closed today")))

    with pytest.raises(RejectedError, match="closed today") as refused:
        await with_answerer(decline)
    assert refused.value.code == ErrorCode.GATED


async def test_nonsense_is_the_answerers_fault(autojump_clock: MockClock) -> None:
    async def babble(stream: Stream) -> None:
        await stream.send_all(b"\x03\xff\xff\xff")

    with pytest.raises(RemoteProtocolError):
        await with_answerer(babble)


async def test_silence_is_not_waited_out(autojump_clock: MockClock) -> None:
    async def hang(stream: Stream) -> None:
        await trio.sleep_forever()

    with pytest.raises(trio.TooSlowError):
        await with_answerer(hang)


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

        assert await cancel_at_every_await(operation, check=check_nothing_left) >= 4
