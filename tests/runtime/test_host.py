"""A host: what its block opens and closes, what it refuses, and that nothing of a peer's brings it down."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from agentmesh.abc import Stream
from agentmesh.errors import AddressError, DialError, SessionClosedError
from agentmesh.identity import Identity
from agentmesh.runtime.config import ConnectionLimits, HostConfig, SessionConfig
from agentmesh.runtime.host import Host, open_host
from agentmesh.runtime.multistream import GREETING, encode_message
from agentmesh.runtime.registry import Protocol, ProtocolRegistry
from agentmesh.runtime.tls import TLS_PROTOCOL, TlsContext
from agentmesh.runtime.upgrade import upgrade_outbound
from agentmesh.runtime.writer import FAREWELL_TIMEOUT
from agentmesh.testing.cancellation import leaves_nothing
from agentmesh.testing.links import Conditions
from agentmesh.testing.network import MemoryNetwork
from agentmesh.testing.streams import hang_at
from agentmesh.types import Address, PeerId, ProtocolId
from tests.runtime.hosts import ANYWHERE, ECHO, admit, echo, open_named, open_two, serve_echo

TCP = Address.parse("/ip4/127.0.0.1/tcp/0")


@asynccontextmanager
async def dialled(network: MemoryNetwork, host: Host, name: str = "mallory") -> AsyncGenerator[trio.abc.Stream]:
    """A bare connection to a host."""
    async with network.transport(name).dial(host.addresses[0].without_peer()) as stream:
        yield stream


# ── listening ──


async def test_it_tells_where_it_listens_and_who_is_there() -> None:
    network = MemoryNetwork()
    places = [Address.parse("/memory/7"), ANYWHERE]
    async with open_named(network, "alice", listen=places) as alice:
        assert alice.peer == alice.identity.peer
        assert [address.peer for address in alice.addresses] == [alice.peer, alice.peer]
        assert alice.addresses[0].without_peer() == places[0]
        async with alice.listening(Address.parse("/memory/9")) as more:
            assert more == (Address.parse("/memory/9").with_peer(alice.peer),)
            assert alice.addresses[2:] == more
            async with open_named(network, "bob") as bob:
                await bob.connect(alice.peer, more)
                assert await echo(bob, alice.peer) == b"hello"
        assert len(alice.addresses) == 2
    assert not alice.addresses


async def test_it_says_when_it_listens_elsewhere() -> None:
    async with open_named(MemoryNetwork(), "alice") as alice:
        heard: list[int] = []
        alice.on_listening(lambda: heard.append(len(alice.addresses)))
        before = len(alice.addresses)
        async with alice.listening(ANYWHERE):
            assert heard == [before + 1]
        assert heard == [before + 1, before]


async def test_an_address_with_a_number_to_be_found_can_be_listened_on_twice() -> None:
    network = MemoryNetwork()
    async with open_named(network, "alice", listen=[ANYWHERE, ANYWHERE]) as alice:
        async with alice.listening(ANYWHERE):
            assert len(set(alice.addresses)) == 3
        assert len(set(alice.addresses)) == 2
    assert not network.hub.numbers


async def test_what_it_cannot_listen_on_it_says_and_leaves_nothing() -> None:
    network = MemoryNetwork()
    async with open_named(network, "bob") as bob:
        taken = bob.addresses[0].without_peer()
        for address, error in [(taken, OSError), (TCP, AddressError)]:
            async with leaves_nothing():
                with pytest.raises(error):
                    async with open_named(network, "alice", listen=[ANYWHERE, address]):
                        pytest.fail("it opened")
        assert network.hub.numbers == (1,)
        with pytest.raises(AddressError, match="no transport here listens"):
            async with bob.listening(TCP):
                pytest.fail("it listens")
        assert bob.addresses == (taken.with_peer(bob.peer),)


# ── protocols ──


def test_two_protocols_with_one_id_are_an_error() -> None:
    ids = (ECHO, ProtocolId("/test/other"), ECHO)
    with pytest.raises(ValueError, match=r"given twice: \['/test/echo'\]"):
        ProtocolRegistry([Protocol(one, serve_echo) for one in ids])


async def test_a_host_with_such_protocols_does_not_open() -> None:
    with pytest.raises(ValueError, match="given twice"):
        async with open_host(identity=Identity.generate(), transports=[], protocols=[Protocol(ECHO, serve_echo)] * 2):
            pytest.fail("it opened")


async def test_it_knows_what_it_speaks() -> None:
    protocol = Protocol(ECHO, serve_echo)
    async with open_named(MemoryNetwork(), "alice", [protocol]) as alice:
        assert alice.registry.ids == (ECHO,)
        assert list(alice.registry) == [protocol]
        assert alice.registry.get(ECHO) is protocol
        assert alice.registry.get("/test/unknown") is None


async def test_a_protocols_background_work_runs_for_as_long_as_the_host() -> None:
    told: list[object] = []

    async def run(host: Host) -> None:
        told.append(host)
        try:
            await trio.sleep_forever()
        finally:
            told.append("over")

    async with open_named(MemoryNetwork(), "alice", [Protocol(ECHO, serve_echo, run=run)]) as alice:
        await wait_all_tasks_blocked()
        assert told == [alice]
    assert told == [alice, "over"]


async def test_background_work_that_raises_takes_the_host_down(autojump_clock: MockClock) -> None:
    async def run(host: Host) -> None:
        await trio.sleep(1)
        raise ZeroDivisionError("a bug")

    network = MemoryNetwork()
    start = trio.current_time()
    with pytest.raises(ExceptionGroup) as caught:
        async with open_two([Protocol(ECHO, serve_echo, run=run)], network=network) as (alice, bob):
            await alice.open_stream(bob.peer, ECHO)
            await trio.sleep_forever()
    assert caught.group_contains(ZeroDivisionError, match="a bug")
    assert trio.current_time() - start == pytest.approx(1)
    assert not network.hub.numbers


# ── leaving the block ──


async def test_a_users_exception_leaves_the_block_bare() -> None:
    with pytest.raises(KeyError, match="mine"):
        async with open_two() as (alice, bob):
            stream = await alice.open_stream(bob.peer, ECHO)
            await stream.send_all(b"hello")
            raise KeyError("mine")


async def test_a_cancelled_block_closes_everything(autojump_clock: MockClock) -> None:
    network = MemoryNetwork()
    async with leaves_nothing():
        with trio.move_on_after(5) as scope:
            async with open_two(network=network) as (alice, bob):
                stream = await alice.open_stream(bob.peer, ECHO)
                await stream.receive_some()
        assert scope.cancelled_caught
    assert not network.hub.numbers


async def test_leaving_sends_what_is_queued_and_ends_the_streams(autojump_clock: MockClock) -> None:
    network = MemoryNetwork(conditions=Conditions(latency=0.1, bandwidth=1e6))
    async with open_named(network, "bob") as bob:
        async with open_named(network, "alice") as alice:
            await alice.connect(bob.peer, bob.addresses)
            stream = await alice.open_stream(bob.peer, ECHO)
            await trio.sleep(1)
            (theirs,) = bob.connections
            await stream.send_all(bytes(200_000))
        with pytest.raises(SessionClosedError):
            await stream.send_all(b"more")
        await trio.sleep(1)
        assert theirs.statistics().bytes_received > 200_000
        assert len(bob.connections) == 0


@pytest.mark.parametrize("timeout", [1.0, 3.0])
async def test_leaving_is_bounded_though_no_peer_reads(autojump_clock: MockClock, timeout: float) -> None:
    network = MemoryNetwork()
    config = HostConfig(close_timeout=timeout, session=SessionConfig(close_timeout=60.0))

    async def push(stream: Stream) -> None:
        with pytest.raises(SessionClosedError):
            while True:
                await stream.send_all(bytes(1 << 20))

    async with (
        open_named(network, "bob") as bob,
        open_named(network, "carol") as carol,
        trio.open_nursery() as nursery,
    ):
        async with open_named(network, "alice", config=config, listen=[ANYWHERE, ANYWHERE]) as alice:
            await alice.connect(bob.peer, bob.addresses)
            await carol.connect(alice.peer, alice.addresses)
            await wait_all_tasks_blocked()  # for Alice to have it too
            for name, host in (("bob", bob), ("carol", carol)):
                network.freeze(name)
                for _ in range(8):
                    nursery.start_soon(push, await alice.open_stream(host.peer, ECHO))
            await trio.sleep(1)
            start = trio.current_time()
        assert timeout <= trio.current_time() - start <= timeout + FAREWELL_TIMEOUT
        for name in ("bob", "carol"):
            network.thaw(name)


async def test_leaving_with_a_handshake_under_way(autojump_clock: MockClock) -> None:
    network = MemoryNetwork()
    async with leaves_nothing():
        async with open_named(network, "bob") as bob, dialled(network, bob) as stream:
            await stream.send_all(GREETING)
            await wait_all_tasks_blocked()
            start = trio.current_time()
        assert trio.current_time() == start


# ── sessions ──


async def test_a_stream_needs_a_session() -> None:
    async with open_named(MemoryNetwork(), "alice") as alice:
        with pytest.raises(DialError, match="no session"):
            await alice.open_stream(Identity.generate().peer, ECHO)


async def test_the_end_of_the_last_session_is_told_and_ends_the_admission() -> None:
    disconnected: list[PeerId] = []
    async with open_two() as (alice, bob):
        bob.on_disconnect(disconnected.append)
        admit(bob, alice.peer)
        assert bob.statistics().admitted == 1
        session = bob.session(alice.peer)
        assert session is not None
        session.abort("enough")
        await session.ended.wait()
        await wait_all_tasks_blocked()
        assert disconnected == [alice.peer]
        assert bob.statistics().admitted == 0
        assert bob.session(alice.peer) is None


async def test_it_trims_what_is_above_the_high_watermark() -> None:
    network = MemoryNetwork()
    config = HostConfig(connections=ConnectionLimits(high_watermark=2, low_watermark=1))
    async with (
        open_named(network, "bob", config=config) as bob,
        open_named(network, "alice") as alice,
        open_named(network, "carol") as carol,
        open_named(network, "dave") as dave,
    ):
        for host in (alice, carol, dave):
            await host.connect(bob.peer, bob.addresses)
        await wait_all_tasks_blocked()
        assert bob.connections.peers == (dave.peer,)
        assert bob.statistics().connections.trimmed == 2
        assert len(alice.connections) == 0
        assert await echo(dave, bob.peer) == b"hello"


async def test_a_source_that_has_all_it_may_have_is_refused(autojump_clock: MockClock) -> None:
    network = MemoryNetwork()
    config = HostConfig(connections=ConnectionLimits(max_per_source=1))
    async with open_named(network, "bob", config=config) as bob, open_named(network, "alice") as alice:
        session = await alice.connect(bob.peer, bob.addresses)
        async with dialled(network, bob, "alice") as second:
            assert await second.receive_some() == b""
        assert bob.statistics().connections.refused["per_ip_limit"] == 1
        async with open_named(network, "carol") as carol:
            await carol.connect(bob.peer, bob.addresses)
        await session.aclose()
        await wait_all_tasks_blocked()
        await alice.connect(bob.peer, bob.addresses)


# ── handshakes ──


@pytest.mark.parametrize("timeout", [2.0, 10.0])
@pytest.mark.parametrize("steps", [1, 2, 3])
async def test_a_client_that_stops_in_the_handshake_is_cut_at_the_deadline(
    autojump_clock: MockClock, timeout: float, steps: int
) -> None:
    """Before its first byte, before it reads the answer, before its own Finished."""
    network = MemoryNetwork()
    config = HostConfig(handshake_timeout=timeout)
    async with (
        open_named(network, "bob", config=config) as bob,
        dialled(network, bob) as stream,
        trio.open_nursery() as nursery,
    ):
        start = trio.current_time()
        stopped = hang_at(stream, steps)
        nursery.start_soon(upgrade_outbound, stopped, TlsContext(Identity.generate()), bob.peer)
        await stopped.hanging.wait()
        assert bob.statistics().connections.handshakes == 1
        while await stream.receive_some():
            pass
        assert trio.current_time() - start == pytest.approx(timeout)
        nursery.cancel_scope.cancel()
    assert bob.statistics().handshake_failures == 1
    assert bob.statistics().connections.handshakes == 0


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\nHost: mesh\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        GREETING + encode_message(TLS_PROTOCOL) + b"\x16\x03\x01\x00\x04junk",
        GREETING + encode_message("/x") * 65,
    ],
)
async def test_whoever_does_not_shake_hands_is_counted_and_the_host_lives_on(said: bytes) -> None:
    network = MemoryNetwork()
    async with open_two(network=network) as (alice, bob):
        async with dialled(network, bob) as stream:
            await stream.send_all(said)
            while await stream.receive_some():
                pass
        figures = bob.statistics()
        assert figures.handshake_failures == 1
        assert (figures.connections.handshakes, figures.connections.inbound) == (0, 1)
        assert await echo(alice, bob.peer) == b"hello"


async def test_so_many_handshakes_at_once(autojump_clock: MockClock) -> None:
    network = MemoryNetwork()
    config = HostConfig(connections=ConnectionLimits(max_handshakes=2))
    async with open_named(network, "bob", config=config) as bob, open_named(network, "alice") as alice:
        async with dialled(network, bob), dialled(network, bob):
            await wait_all_tasks_blocked()
            async with dialled(network, bob) as third:
                assert await third.receive_some() == b""
            assert bob.statistics().connections.refused["handshake_limit"] == 1
        await wait_all_tasks_blocked()
        await alice.connect(bob.peer, bob.addresses)


async def test_its_links_are_secured_by_what_it_is_given() -> None:
    made: list[Identity] = []

    def secure(identity: Identity) -> TlsContext:
        made.append(identity)
        return TlsContext(identity)

    identity = Identity.generate()
    async with open_host(identity=identity, transports=[], security=secure):
        assert made == [identity]


async def test_a_book_of_admissions_can_be_brought_along() -> None:
    async with open_named(MemoryNetwork(), "alice") as alice:
        async with open_host(identity=Identity.generate(), transports=[], admissions=alice.admissions) as host:
            assert host.admissions is alice.admissions
        async with open_host(identity=Identity.generate(), transports=[]) as host:
            assert host.admissions is not alice.admissions


# ── figures ──


async def test_its_figures_are_those_of_its_parts(autojump_clock: MockClock) -> None:
    network = MemoryNetwork()
    async with open_two(network=network) as (alice, bob), open_named(network, "carol") as carol:
        await carol.connect(bob.peer, bob.addresses)
        await wait_all_tasks_blocked()
        await bob.connect(carol.peer, carol.addresses)
        for host, inbound, outbound, peers in [(bob, 2, 0, 2), (alice, 0, 1, 1), (carol, 0, 1, 1)]:
            figures = host.statistics().connections
            assert (figures.inbound, figures.outbound, figures.peers) == (inbound, outbound, peers)
            assert figures.inbound + figures.outbound == len(host.connections) == len(list(host.connections))
        streams = [await alice.open_stream(bob.peer, ECHO) for _ in range(3)]
        for stream in streams:
            await stream.send_all(b"hello")
            await stream.receive_some()
        assert bob.statistics().streams.serving == 3
        admit(bob, carol.peer)
        assert bob.statistics().admitted == 1
        assert bob.statistics().dialing == 0
