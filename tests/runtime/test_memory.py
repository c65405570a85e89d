"""What all sessions of a host together may take of its memory."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio
from trio.testing import MockClock

from agentmesh.abc import Stream
from agentmesh.runtime.config import ConnectionLimits, HostConfig
from agentmesh.runtime.host import Host
from agentmesh.runtime.registry import Protocol
from agentmesh.runtime.yamux.limits import INITIAL_WINDOW
from agentmesh.testing.links import Conditions
from agentmesh.testing.network import MemoryNetwork
from agentmesh.types import ProtocolId
from tests.runtime.hosts import ECHO, echo, open_named, serve_echo

HOLD, TAKE = ProtocolId("/test/hold"), ProtocolId("/test/take")
KIB = 1024


async def hold(stream: Stream) -> None:
    """Take nothing."""
    await trio.sleep_forever()


async def take(stream: Stream) -> None:
    async for _ in stream:
        pass


@asynccontextmanager
async def open_three(
    limits: ConnectionLimits, conditions: Conditions | None = None
) -> AsyncGenerator[tuple[Host, Host, Host]]:
    """Bob, with these limits; Alice and Carol, who have dialled him."""
    network = MemoryNetwork(conditions=conditions or Conditions())
    protocols = (Protocol(ECHO, serve_echo), Protocol(HOLD, hold), Protocol(TAKE, take))
    async with (
        open_named(network, "bob", protocols, config=HostConfig(connections=limits)) as bob,
        open_named(network, "alice") as alice,
        open_named(network, "carol") as carol,
    ):
        for caller in (alice, carol):
            await caller.connect(bob.peer, bob.addresses)
        await trio.sleep(1)
        yield bob, alice, carol


async def leave_bytes(caller: Host, bob: Host, streams: int) -> list[Stream]:
    """Send to streams that nobody reads."""
    opened: list[Stream] = [await caller.open_stream(bob.peer, HOLD) for _ in range(streams)]
    for stream in opened:
        await stream.send_all(bytes(200 * KIB))
    await trio.sleep(1)
    return opened


async def test_the_session_that_holds_most_ends_when_all_hold_too_much(autojump_clock: MockClock) -> None:
    async with open_three(ConnectionLimits(max_held_bytes=KIB * KIB)) as (bob, alice, carol):
        modest = await leave_bytes(carol, bob, 2)
        assert 398 * KIB <= bob.statistics().connections.held_bytes <= 400 * KIB  # some is read with the names
        await leave_bytes(alice, bob, 3)
        assert 995 * KIB <= bob.statistics().connections.held_bytes <= 1000 * KIB
        await leave_bytes(carol, bob, 1)  # it is hers that are too much, and Alice who holds most
        assert bob.connections.peers == (carol.peer,)
        statistics = bob.statistics().connections
        assert (statistics.abused["max_held_bytes"], sum(statistics.abused.values())) == (1, 1)
        assert 597 * KIB <= statistics.held_bytes <= 600 * KIB
        assert await echo(carol, bob.peer) == b"hello"
        for stream in modest:
            stream.reset()
        await trio.sleep(1)
        assert 199 * KIB <= bob.statistics().connections.held_bytes <= 200 * KIB
    assert bob.statistics().connections.held_bytes == 0


async def test_bytes_that_wait_for_a_peer_count_like_those_that_wait_for_us(autojump_clock: MockClock) -> None:
    async def pour(stream: Stream) -> None:
        await stream.send_all(bytes(10 * KIB * KIB))

    pouring = Protocol(ProtocolId("/test/pour"), pour)
    config = HostConfig(connections=ConnectionLimits(max_held_bytes=900 * KIB))
    piece = config.session.write_bytes
    network = MemoryNetwork()
    async with open_named(network, "bob", (pouring,), config=config) as bob, open_named(network, "alice") as alice:
        await alice.connect(bob.peer, bob.addresses)
        for waiting in range(1, 5):  # a window has been sent of each, and a piece of each waits for credit
            await (await alice.open_stream(bob.peer, pouring.id)).send_all(b"")
            await trio.sleep(1)
            assert waiting * piece <= bob.statistics().connections.held_bytes <= waiting * (piece + KIB)
        await trio.sleep(config.session.ping_interval)  # until something comes that could show how much waits
        assert bob.statistics().connections.abused["max_held_bytes"] == 1
        assert bob.statistics().connections.held_bytes == 0


async def test_windows_of_all_sessions_grow_within_one_bound(autojump_clock: MockClock) -> None:
    limits = ConnectionLimits(max_host_window_bytes=5 * INITIAL_WINDOW)
    async with open_three(limits, Conditions(latency=0.05, bandwidth=100e6)) as (bob, alice, carol):
        left: list[int] = []

        async def send(caller: Host) -> None:
            async with await caller.open_stream(bob.peer, TAKE) as stream:
                for _ in range(200):
                    await stream.send_all(bytes(64 * KIB))
                    left.append(bob.connections.memory.growth_left)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send, alice)
            nursery.start_soon(send, carol)
        assert (max(left), min(left)) == (limits.max_host_window_bytes, 0)
        await trio.sleep(1)
        assert bob.connections.memory.growth_left == limits.max_host_window_bytes
