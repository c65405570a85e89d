"""The opening side, and answerers that are not what they should be."""

from collections.abc import Awaitable, Callable

import pytest
import trio
from trio.testing import MockClock

from agentmesh.abc import Stream
from agentmesh.credentials import ROLE_NODE
from agentmesh.errors import CredentialError, ErrorCode, RejectedError, RemoteProtocolError
from agentmesh.identity import Identity
from agentmesh.protocols.auth import AUTH_ID, authenticate
from agentmesh.protocols.auth.wire import Answer, encode_answer
from agentmesh.runtime.host import open_host
from agentmesh.runtime.messages import write_message
from agentmesh.runtime.registry import Protocol
from agentmesh.testing import MemoryNetwork
from agentmesh.types import Address, PeerId
from tests.protocols.auth.net import (
    anothers,
    check,
    credential_of,
    expired,
    foreign,
    garbage,
    open_pair,
)


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
