"""Dialling: one dial for everyone who asks, all addresses at once, and an error that says why for each."""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import cast

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from agentmesh.abc import ByteStream, Listener, Transport
from agentmesh.errors import AddressError, DialError, PeerMismatchError, RemoteProtocolError, SessionClosedError
from agentmesh.identity import Identity
from agentmesh.runtime.config import HostConfig
from agentmesh.runtime.dialing import Dial
from agentmesh.runtime.host import Host, open_host
from agentmesh.runtime.nursery import open_background
from agentmesh.runtime.session import MuxSession
from agentmesh.testing import run
from agentmesh.testing.links import Conditions
from agentmesh.testing.network import MemoryNetwork
from agentmesh.types import Address, PeerId
from tests.runtime.hosts import echo, open_named

NOBODY = Address.parse("/memory/99")
STRANGER = Identity.generate().peer


def dials(network: MemoryNetwork) -> int:
    return sum(entry.what == "dial" for entry in network.trace)


def far(latency: float = 0.1) -> MemoryNetwork:
    return MemoryNetwork(conditions=Conditions(latency=latency))


async def connect(host: Host, other: Host, into: list[MuxSession]) -> None:
    into.append(await host.connect(other.peer, other.addresses))


# ── one dial for everyone ──


async def test_fifty_callers_cost_one_handshake(autojump_clock: MockClock) -> None:
    network = far()
    async with open_named(network, "bob") as bob, open_named(network, "alice") as alice:
        sessions: list[MuxSession] = []
        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(connect, alice, bob, sessions)
            await wait_all_tasks_blocked()
            assert alice.statistics().dialing == 1
        assert len(sessions) == 50
        assert len(set(map(id, sessions))) == 1
        assert dials(network) == 1
        assert alice.statistics().dialing == 0
        await alice.connect(bob.peer, bob.addresses)
        assert await alice.connect(bob.peer) is sessions[0]
        assert dials(network) == 1


async def test_a_caller_who_gives_up_does_not_end_it_for_the_others(autojump_clock: MockClock) -> None:
    network = far()
    async with open_named(network, "bob") as bob, open_named(network, "alice") as alice:
        sessions: list[MuxSession] = []
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(connect, alice, bob, sessions)
            await wait_all_tasks_blocked()
            with trio.move_on_after(0.05) as scope:
                await alice.connect(bob.peer, bob.addresses)
            assert scope.cancelled_caught
        assert len(sessions) == 3
        assert dials(network) == 1


@pytest.mark.parametrize("after", [0.0, 0.05, 0.15, 0.25, 0.35])
async def test_the_last_caller_who_gives_up_ends_it(autojump_clock: MockClock, after: float) -> None:
    """Before the connection is there, or at any point of the handshake."""
    network = far()
    async with open_named(network, "bob") as bob, open_named(network, "alice") as alice:
        async with trio.open_nursery() as nursery:
            for wait in (after / 2, after):
                nursery.start_soon(_give_up, alice, bob, wait)
        await wait_all_tasks_blocked()
        assert alice.statistics().dialing == 0
        await trio.sleep(1)
        for host in (alice, bob):
            assert len(host.connections) == 0
            assert host.statistics().connections.handshakes == 0
        assert await _works(alice, bob)


async def _give_up(host: Host, other: Host, after: float) -> None:
    with trio.move_on_after(after) as scope:
        await host.connect(other.peer, other.addresses)
    assert scope.cancelled_caught


async def _works(host: Host, other: Host) -> bool:
    await host.connect(other.peer, other.addresses)
    return await echo(host, other.peer) == b"hello"


async def test_who_asks_while_a_dial_is_being_given_up_gets_a_new_one(autojump_clock: MockClock) -> None:
    network = far()
    async with open_named(network, "bob") as bob, open_named(network, "alice") as alice:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(connect, alice, bob, list[MuxSession]())
                await wait_all_tasks_blocked()
                scope.cancel()
        assert await _works(alice, bob)
        assert dials(network) == 2


async def test_a_lost_session_is_dialled_again() -> None:
    network = MemoryNetwork()
    async with open_named(network, "bob") as bob, open_named(network, "alice") as alice:
        first = await alice.connect(bob.peer, bob.addresses)
        network.reset("alice", "bob")
        await first.ended.wait()
        with pytest.raises(DialError, match="no address"):
            await alice.connect(bob.peer)
        second = await alice.connect(bob.peer, bob.addresses)
        assert second is not first
        assert await echo(alice, bob.peer) == b"hello"


async def test_a_draining_session_is_not_used(autojump_clock: MockClock) -> None:
    network = MemoryNetwork()
    async with open_named(network, "bob") as bob, open_named(network, "alice") as alice:
        first = await alice.connect(bob.peer, bob.addresses)
        first.drain()
        second = await alice.connect(bob.peer, bob.addresses)
        assert second is not first
        assert alice.session(bob.peer) is second
        assert first.is_open


async def test_two_hosts_that_dial_each_other_at_once_both_succeed(autojump_clock: MockClock) -> None:
    network = far()
    async with open_named(network, "bob") as bob, open_named(network, "alice") as alice:
        sessions: list[MuxSession] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connect, alice, bob, sessions)
            nursery.start_soon(connect, bob, alice, sessions)
        await trio.sleep(1)
        for host, other in ((alice, bob), (bob, alice)):
            figures = host.statistics().connections
            assert (figures.inbound, figures.outbound, figures.peers) == (1, 1, 1)
            assert await echo(host, other.peer) == b"hello"
        disconnected: list[PeerId] = []
        alice.on_disconnect(disconnected.append)
        await sessions[0].aclose()
        await trio.sleep(1)
        assert not disconnected  # another session to the same peer is open
        for host, other in ((alice, bob), (bob, alice)):
            assert await echo(host, other.peer) == b"hello"
        await sessions[1].aclose()
        await trio.sleep(1)
        assert disconnected == [bob.peer]


async def test_a_dial_is_won_once() -> None:
    """Two attempts may succeed in one instant."""
    network = MemoryNetwork()
    async with open_named(network, "bob") as bob, open_named(network, "alice") as alice:
        first = await alice.connect(bob.peer, bob.addresses)
        one, other = Address.parse("/memory/1"), Address.parse("/memory/2")
        dial = Dial(bob.peer, [one, other])
        assert dial.won(first, one)
        assert not dial.scope(one).cancel_called
        assert dial.scope(other).cancel_called
        assert not dial.won(first, other)
        dial.failed(other, DialError("too late"))
        assert dial.outcome() is first


# ── several addresses ──


async def test_the_first_address_that_works_wins_and_the_losers_leave_nothing(autojump_clock: MockClock) -> None:
    network = far()
    places = [Address.parse(f"/memory/{number}") for number in (1, 2, 3)]
    async with open_named(network, "bob", listen=places) as bob, open_named(network, "alice") as alice:
        session = await alice.connect(bob.peer, [NOBODY, *bob.addresses])
        await trio.sleep(1)
        assert session.address in bob.addresses
        for host in (alice, bob):
            assert len(host.connections) == 1
            assert host.statistics().connections.handshakes == 0
        assert await echo(alice, bob.peer) == b"hello"


@pytest.mark.parametrize("seed", range(20))
def test_of_addresses_that_work_at_once_one_wins_in_whatever_order(seed: int) -> None:
    async def dial() -> None:
        network = MemoryNetwork()
        places = [Address.parse(f"/memory/{number}") for number in range(1, 9)]
        async with open_named(network, "bob", listen=places) as bob, open_named(network, "alice") as alice:
            await alice.connect(bob.peer, bob.addresses)
            await trio.sleep(1)
            assert len(alice.connections) == len(bob.connections) == 1
            assert await echo(alice, bob.peer) == b"hello"

    run(dial, seed=seed)


async def test_a_slow_address_loses(autojump_clock: MockClock) -> None:
    network = far()
    network.set_conditions("alice", "slow", Conditions(latency=2.0))
    identity = Identity.generate()
    async with (
        open_named(network, "slow", identity=identity) as slow,
        open_named(network, "fast", identity=identity) as fast,
        open_named(network, "alice") as alice,
    ):
        start = trio.current_time()
        session = await alice.connect(fast.peer, [*slow.addresses, *fast.addresses])
        assert trio.current_time() - start == pytest.approx(0.4)
        assert session.address in fast.addresses
        await trio.sleep(10)
        assert len(slow.connections) == 0


@pytest.mark.parametrize("limit", [1, 3])
async def test_so_many_addresses_are_tried(limit: int) -> None:
    network = MemoryNetwork()
    config = HostConfig(max_dial_addresses=limit)
    places = [Address.parse(f"/memory/{number}") for number in range(1, 6)]
    async with open_named(network, "bob", listen=places), open_named(network, "alice", config=config) as alice:
        with pytest.raises(DialError):
            await alice.connect(STRANGER, places)
        assert dials(network) == limit


async def test_one_address_given_twice_is_tried_once() -> None:
    network = MemoryNetwork()
    async with open_named(network, "bob") as bob, open_named(network, "alice") as alice:
        await alice.connect(bob.peer, [*bob.addresses, *bob.addresses])
        assert dials(network) == 1


# ── what goes wrong ──


async def test_an_address_that_names_another_peer_is_left_out() -> None:
    network = MemoryNetwork()
    async with open_named(network, "bob") as bob, open_named(network, "alice") as alice:
        with pytest.raises(DialError, match=r"no address .* \(2 given\)"):
            await alice.connect(STRANGER, [*bob.addresses, Address.parse("/ip4/192.0.2.1/tcp/1")])
        assert dials(network) == 0


async def test_a_host_does_not_dial_itself() -> None:
    async with open_named(MemoryNetwork(), "alice") as alice:
        with pytest.raises(DialError, match="itself"):
            await alice.connect(alice.peer, alice.addresses)


async def test_one_failure_is_the_cause_itself() -> None:
    network = MemoryNetwork()
    async with open_named(network, "bob") as bob, open_named(network, "alice") as alice:
        place = bob.addresses[0].without_peer()
        with pytest.raises(DialError) as caught:
            await alice.connect(STRANGER, [place])
        assert isinstance(caught.value.__cause__, PeerMismatchError)
        assert str(bob.peer) in str(caught.value)
        assert alice.statistics().dialing == 0
        await wait_all_tasks_blocked()
        assert len(bob.connections) == 0
        assert await _works(alice, bob)


async def test_several_failures_are_all_told_each_with_its_address(autojump_clock: MockClock) -> None:
    network = far()
    async with (
        open_named(network, "bob") as bob,
        open_named(network, "carol"),
        open_named(network, "alice") as alice,
        _listen_and_say(network, "plain", b"HTTP/1.1 400 Bad Request\r\n\r\n") as plain,
        _listen_and_say(network, "quiet", b"") as quiet,
    ):
        network.block("alice", "carol")
        blocked = Address.parse("/memory/2")
        refused, wrong = NOBODY, bob.addresses[0].without_peer()
        start = trio.current_time()
        with pytest.raises(DialError) as caught:
            await alice.connect(STRANGER, [refused, wrong, plain, quiet, blocked])
        assert trio.current_time() - start == pytest.approx(15)
        text = str(caught.value)
        for address, reason in [
            (refused, "nobody ever listened"),
            (wrong, "dialled"),
            (plain, "expected /multistream"),
            (quiet, "no answer in time"),
            (blocked, "no answer in time"),
        ]:
            assert f"{address}: {reason}" in text
        cause = cast("ExceptionGroup[Exception]", caught.value.__cause__)
        kinds = {type(error) for error in cause.exceptions}
        assert kinds == {DialError, PeerMismatchError, RemoteProtocolError, trio.TooSlowError}


@asynccontextmanager
async def _listen_and_say(network: MemoryNetwork, name: str, said: bytes) -> AsyncGenerator[Address]:
    """Somebody who takes connections, says something, and waits."""

    async def handle(stream: trio.abc.Stream, source: Address | None) -> None:
        if said:
            await stream.send_all(said)
        await trio.sleep_forever()

    async with network.transport(name).listen(Address.parse("/memory/0")) as listener, open_background() as nursery:
        nursery.start_soon(listener.serve, handle)
        yield listener.addresses[0]


@pytest.mark.parametrize("timeout", [5.0, 15.0])
async def test_a_dial_that_nobody_answers_ends(autojump_clock: MockClock, timeout: float) -> None:
    network = MemoryNetwork()
    async with (
        open_named(network, "bob") as bob,
        open_named(network, "alice", config=HostConfig(dial_timeout=timeout)) as alice,
    ):
        network.block("alice", "bob")
        start = trio.current_time()
        with pytest.raises(DialError, match="no answer in time") as caught:
            await alice.connect(bob.peer, bob.addresses)
        assert trio.current_time() - start == pytest.approx(timeout)
        assert caught.value.__cause__ is None
        await wait_all_tasks_blocked()
        assert alice.statistics().dialing == 0
        network.heal("alice", "bob")
        assert await _works(alice, bob)


@pytest.mark.parametrize("timeout", [2.0, 10.0])
async def test_a_peer_that_does_not_shake_hands_is_given_up(autojump_clock: MockClock, timeout: float) -> None:
    network = MemoryNetwork()
    async with (
        _listen_and_say(network, "quiet", b"") as quiet,
        open_named(network, "alice", config=HostConfig(handshake_timeout=timeout)) as alice,
    ):
        start = trio.current_time()
        with pytest.raises(DialError, match="no answer in time") as caught:
            await alice.connect(STRANGER, [quiet])
        assert isinstance(caught.value.__cause__, trio.TooSlowError)
        assert trio.current_time() - start == pytest.approx(timeout)


class Refusal(AbstractAsyncContextManager[ByteStream]):
    """A dial that fails."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def __aenter__(self) -> ByteStream:
        await trio.lowlevel.checkpoint()
        raise self._error

    async def __aexit__(self, *_: object) -> None:
        raise AssertionError("it was never entered")


class Choosy(Transport):
    """Says that it can dial everything, and then cannot."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def can_dial(self, address: Address) -> bool:
        return True

    def can_listen(self, address: Address) -> bool:
        return False

    def dial(self, address: Address) -> AbstractAsyncContextManager[ByteStream]:
        return Refusal(self._error)

    def listen(self, address: Address) -> AbstractAsyncContextManager[Listener]:
        raise AddressError("it does not listen")


@pytest.mark.parametrize(
    "error",
    [AddressError("not like this"), trio.BrokenResourceError(), SessionClosedError("the router's"), DialError("no")],
    ids=repr,
)
async def test_whatever_a_transport_raises_of_ours_is_a_failed_attempt(error: Exception) -> None:
    async with open_host(identity=Identity.generate(), transports=[Choosy(error)]) as host:
        with pytest.raises(DialError, match=str(error) or "BrokenResourceError") as caught:
            await host.connect(STRANGER, [NOBODY])
        assert caught.value.__cause__ is error
        assert host.statistics().dialing == 0


async def test_a_host_that_closes_ends_its_dials_for_those_who_still_wait(autojump_clock: MockClock) -> None:
    network = MemoryNetwork()
    async with open_named(network, "bob") as bob, trio.open_nursery() as nursery:
        start = trio.current_time()

        async def dial(host: Host) -> None:
            with pytest.raises(DialError, match="no answer in time"):
                await host.connect(bob.peer, bob.addresses)
            assert trio.current_time() == start

        async with open_named(network, "alice") as alice:
            network.block("alice", "bob")
            nursery.start_soon(dial, alice)
            await wait_all_tasks_blocked()
