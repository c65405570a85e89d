"""Dialling: one dial for everyone who asks, address after address, and an error that says why for each."""

import weakref
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from agentmesh.abc import ByteStream, Listener, Transport
from agentmesh.errors import DialError
from agentmesh.identity import Identity
from agentmesh.runtime.config import HostConfig
from agentmesh.runtime.dialing import Dial
from agentmesh.runtime.host import Host, open_host
from agentmesh.runtime.session import MuxSession
from agentmesh.testing import run
from agentmesh.testing.links import Conditions
from agentmesh.testing.network import MemoryNetwork
from agentmesh.types import Address, PeerId
from tests.runtime.hosts import dials, echo, far, open_named, works
from tests.runtime.wires import Watched

NOBODY = Address.parse("/memory/99")
STRANGER = Identity.generate().peer


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
        assert await works(alice, bob)


async def _give_up(host: Host, other: Host, after: float) -> None:
    with trio.move_on_after(after) as scope:
        await host.connect(other.peer, other.addresses)
    assert scope.cancelled_caught


async def test_who_asks_while_a_dial_is_being_given_up_gets_a_new_one(autojump_clock: MockClock) -> None:
    network = far()
    async with open_named(network, "bob") as bob, open_named(network, "alice") as alice:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(connect, alice, bob, list[MuxSession]())
                await wait_all_tasks_blocked()
                scope.cancel()
        assert await works(alice, bob)
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


async def test_a_dial_that_was_won_forgets_what_failed() -> None:
    """It lives as long as its session, and an error holds on to all that its traceback goes through."""
    network = MemoryNetwork()
    async with open_named(network, "bob") as bob, open_named(network, "alice") as alice:
        session = await alice.connect(bob.peer, bob.addresses)
        addresses = [Address.parse(f"/memory/{number}") for number in (1, 2, 3)]
        dial = Dial(bob.peer, addresses)
        kept: list[weakref.ref[DialError]] = []
        for address in addresses:
            if address == addresses[1]:
                assert dial.won(session, address)
                continue
            error = DialError("no luck")
            kept.append(weakref.ref(error))
            dial.failed(address, error)
            del error
        assert [error() for error in kept] == [None, None]
        assert dial.outcome() is session


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


class Together(Transport):
    """Dials by another transport; the second write of two connections, each a handshake's last, ends in one instant."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._last_writes = 0
        self._both = trio.Event()

    def can_dial(self, address: Address) -> bool:
        return self._transport.can_dial(address)

    def can_listen(self, address: Address) -> bool:
        return False

    @asynccontextmanager
    async def dial(self, address: Address) -> AsyncGenerator[ByteStream]:
        async with self._transport.dial(address) as stream:
            yield Watched(stream, "alice", [], self._written)

    def listen(self, address: Address) -> AbstractAsyncContextManager[Listener]:
        return self._transport.listen(address)

    async def _written(self, writes: int) -> None:
        self._last_writes += writes == 2
        if writes == 2 and self._last_writes == 1:
            await self._both.wait()
        elif writes == 2:
            self._both.set()
            await trio.lowlevel.cancel_shielded_checkpoint()


async def test_of_two_handshakes_that_end_in_one_instant_one_leaves_nothing(autojump_clock: MockClock) -> None:
    network = MemoryNetwork()
    places = [Address.parse("/memory/1"), Address.parse("/memory/2")]
    async with open_named(network, "bob", listen=places) as bob:
        transport = Together(network.transport("alice"))
        async with open_host(identity=Identity.generate(), transports=[transport]) as alice:
            session = await alice.connect(bob.peer, bob.addresses)
            await trio.sleep(1)
            assert list(alice.connections) == [session]
            assert len(bob.connections) == 1
            assert await echo(alice, bob.peer) == b"hello"


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
        assert trio.current_time() - start == pytest.approx(0.25 + 0.4)
        assert session.address in fast.addresses
        await trio.sleep(10)
        assert len(slow.connections) == 0


@pytest.mark.parametrize("dial_stagger", [0.05, 0.25])
async def test_the_next_address_is_tried_when_the_last_is_slow(autojump_clock: MockClock, dial_stagger: float) -> None:
    network = far(latency=10.0)
    places = [Address.parse(f"/memory/{number}") for number in range(1, 4)]
    config = HostConfig(dial_stagger=dial_stagger, dial_timeout=1.0)
    async with open_named(network, "bob", listen=places) as bob, open_named(network, "alice", config=config) as alice:
        with pytest.raises(DialError, match="no answer in time"):
            await alice.connect(bob.peer, places)
        began = [entry.at for entry in network.trace if entry.what == "dial"]
        assert [at - began[0] for at in began] == pytest.approx([0.0, dial_stagger, 2 * dial_stagger])


async def test_the_next_address_is_tried_at_once_when_the_last_failed(autojump_clock: MockClock) -> None:
    network = MemoryNetwork()
    async with open_named(network, "bob") as bob, open_named(network, "alice") as alice:
        session = await alice.connect(bob.peer, [NOBODY, *bob.addresses])
        assert session.address in bob.addresses
        assert trio.current_time() == 0.0


async def test_an_address_that_answers_is_the_last_that_is_tried(autojump_clock: MockClock) -> None:
    network = far(latency=0.01)
    places = [Address.parse(f"/memory/{number}") for number in range(1, 4)]
    async with open_named(network, "bob", listen=places) as bob, open_named(network, "alice") as alice:
        await alice.connect(bob.peer, places)
        await trio.sleep(1)
        assert dials(network) == 1


async def test_the_addresses_of_the_first_transport_come_first(autojump_clock: MockClock) -> None:
    network = MemoryNetwork()
    one, two = Address.parse("/memory/1"), Address.parse("/memory/2")
    async with open_named(network, "bob", listen=[one, two]) as bob:
        transports = [Only(network.transport("alice"), two), network.transport("alice")]
        async with open_host(identity=Identity.generate(), transports=transports) as alice:
            session = await alice.connect(bob.peer, [one, two])
            assert session.address == two


class Only(Together):
    """Dials one address and no other."""

    def __init__(self, transport: Transport, address: Address) -> None:
        super().__init__(transport)
        self._address = address

    def can_dial(self, address: Address) -> bool:
        return address.without_peer() == self._address

    async def _written(self, writes: int) -> None:
        await trio.lowlevel.checkpoint()


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
