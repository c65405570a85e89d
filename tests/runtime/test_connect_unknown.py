"""Sessions to whoever is at an address."""

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from agentmesh.errors import DialError, PeerMismatchError
from agentmesh.identity import Identity
from agentmesh.testing.cancellation import cancel_at_every_await
from agentmesh.testing.network import MemoryNetwork
from agentmesh.types import Address
from tests.runtime.hosts import ECHO, open_named, open_two


async def test_who_answered_is_known_by_its_proof(autojump_clock: MockClock) -> None:
    async with open_two() as (alice, bob):
        standing = alice.session(bob.peer)
        session = await alice.connect_unknown(bob.addresses[0].without_peer())
        assert session.peer == bob.peer
        assert session is not standing
        async with await session.open_stream(ECHO) as stream:
            await stream.send_all(b"hello")
            assert await stream.receive_some() == b"hello"


async def test_each_dial_may_reach_another_peer(autojump_clock: MockClock) -> None:
    network = MemoryNetwork()
    async with open_named(network, "alice", listen=()) as alice:
        async with open_named(network, "bob", listen=[Address.parse("/memory/7")]) as bob:
            assert (await alice.connect_unknown(Address.parse("/memory/7"))).peer == bob.peer
        async with open_named(network, "carol", listen=[Address.parse("/memory/7")]) as carol:
            assert (await alice.connect_unknown(Address.parse("/memory/7"))).peer == carol.peer


async def test_a_peer_in_the_address_has_to_be_the_one(autojump_clock: MockClock) -> None:
    async with open_two() as (alice, bob):
        assert (await alice.connect_unknown(bob.addresses[0])).peer == bob.peer
        with pytest.raises(DialError) as caught:
            await alice.connect_unknown(bob.addresses[0].with_peer(Identity.generate().peer))
        assert isinstance(caught.value.__cause__, PeerMismatchError)


async def test_who_is_not_to_be_reached(autojump_clock: MockClock) -> None:
    async with open_two() as (alice, bob):
        nobody, there = Address.parse("/memory/99"), bob.addresses[0].without_peer()
        with pytest.raises(DialError, match="^cannot reach /memory/99: nobody ever listened on it$"):
            await alice.connect_unknown(nobody)
        with pytest.raises(DialError, match="no address that can be dialled"):
            await alice.connect_unknown(Address.parse("/ip4/127.0.0.1/udp/9"))
        with pytest.raises(DialError, match="the host itself"):
            await alice.connect_unknown(alice.addresses[0].without_peer())
        standing = alice.connections.sessions_of(bob.peer)
        bob.admissions.is_barred = alice.peer.__eq__
        alice.admissions.is_barred = bob.peer.__eq__
        with pytest.raises(DialError, match="barred"):
            await alice.connect_unknown(there)
        await trio.sleep(5)
        assert alice.connections.sessions_of(bob.peer) == standing
        assert alice.connections.sessions_of(alice.peer) == ()


async def test_a_dial_cancelled_anywhere_leaves_no_session(autojump_clock: MockClock) -> None:
    async with open_two() as (alice, bob):
        standing = alice.connections.sessions_of(bob.peer)

        async def dial() -> None:
            session = await alice.connect_unknown(bob.addresses[0].without_peer())
            session.abort("done")

        async def check() -> None:
            await wait_all_tasks_blocked()
            assert alice.connections.sessions_of(bob.peer) == standing
            assert alice.statistics().dialing == 0

        assert await cancel_at_every_await(dial, check=check) >= 1
