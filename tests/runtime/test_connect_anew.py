"""More than one session to a peer."""

import pytest
from trio.testing import MockClock, wait_all_tasks_blocked

from agentmesh.errors import DialError
from agentmesh.testing.cancellation import cancel_at_every_await
from tests.runtime.hosts import ECHO, open_two


async def test_a_session_of_its_own(autojump_clock: MockClock) -> None:
    async with open_two() as (alice, bob):
        standing = alice.session(bob.peer)
        another = await alice.connect_anew(bob.peer, bob.addresses)
        assert another is not standing
        for session in alice.connections.sessions_of(bob.peer):
            async with await session.open_stream(ECHO) as stream:
                await stream.send_all(b"hello")
                assert await stream.receive_some() == b"hello"
        await another.aclose()
        await wait_all_tasks_blocked()
        assert alice.connections.sessions_of(bob.peer) == (standing,)


async def test_who_cannot_be_dialled(autojump_clock: MockClock) -> None:
    async with open_two() as (alice, bob):
        for peer, addresses in ((alice.peer, alice.addresses), (bob.peer, ())):
            with pytest.raises(DialError):
                await alice.connect_anew(peer, addresses)
        alice.admissions.is_barred = bob.peer.__eq__
        with pytest.raises(DialError, match="barred"):
            await alice.connect_anew(bob.peer, bob.addresses)


async def test_a_dial_cancelled_anywhere_leaves_no_session(autojump_clock: MockClock) -> None:
    async with open_two() as (alice, bob):
        standing = alice.connections.sessions_of(bob.peer)

        async def dial() -> None:
            session = await alice.connect_anew(bob.peer, bob.addresses)
            session.abort("done")

        async def check() -> None:
            await wait_all_tasks_blocked()
            assert alice.connections.sessions_of(bob.peer) == standing
            assert alice.statistics().dialing == 0

        assert await cancel_at_every_await(dial, check=check) >= 1
