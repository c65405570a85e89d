import math
import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from agentmesh.abc import ByteStream, Transport
from agentmesh.errors import AddressError, DialError
from agentmesh.runtime.nursery import open_background
from agentmesh.testing import Conditions, MemoryNetwork, TraceEntry, check_transport, run
from agentmesh.testing.transport_setup import echo, read_exactly, receive_pattern, send_pattern
from agentmesh.transports.memory import MAX_BACKLOG
from agentmesh.types import Address
from tests.testing.connected import ANY, MB, connected

DSL = Conditions(latency=0.02, jitter=0.005, bandwidth=2 * MB)


@pytest.mark.parametrize("conditions", [Conditions(), DSL], ids=["perfect", "dsl"])
async def test_conforms(conditions: Conditions, autojump_clock: trio.testing.MockClock) -> None:
    @asynccontextmanager
    async def make() -> AsyncGenerator[tuple[Transport, Transport]]:
        network = MemoryNetwork(conditions=conditions)
        yield network.transport("a"), network.transport("b")
        assert network.hub.numbers == ()

    await check_transport(make, ANY, max_buffered_bytes=2 * MB, timeout=600)


async def test_latency_and_bandwidth_are_exact(autojump_clock: trio.testing.MockClock) -> None:
    network = MemoryNetwork(conditions=Conditions(latency=0.1, bandwidth=10 * MB))
    async with connected(network) as (here, there), trio.open_nursery() as nursery:
        began = trio.current_time()
        nursery.start_soon(send_pattern, here, 5 * MB, random.Random(1))
        assert len(await there.receive_some(1)) == 1
        first = trio.current_time() - began
        await read_exactly(there, 5 * MB - 1)
        assert trio.current_time() - began == pytest.approx(0.1 + 5 / 10, abs=1e-9)
        assert 0.1 < first < 0.1 + 0.01


async def test_whoever_accepts_sees_the_ip_address_of_the_dialler() -> None:
    network, seen = MemoryNetwork(), list[str | None]()

    async def handle(_: ByteStream, source: Address | None) -> None:
        seen.append(None if source is None else source.value("ip4"))

    async with network.transport("a").listen(ANY) as listener, open_background() as nursery:
        nursery.start_soon(listener.serve, handle)
        async with network.transport("b").dial(listener.addresses[0]):
            await wait_all_tasks_blocked()
    assert seen == [network.ip("b")] != [network.ip("a")]


async def test_a_dial_takes_one_round_trip(autojump_clock: trio.testing.MockClock) -> None:
    network = MemoryNetwork(conditions=Conditions(latency=0.25))
    async with connected(network):
        assert trio.current_time() == pytest.approx(0.5)


async def test_a_small_message_takes_the_latency(autojump_clock: trio.testing.MockClock) -> None:
    network = MemoryNetwork(conditions=Conditions(latency=0.25))
    async with connected(network) as (here, there):
        began = trio.current_time()
        await here.send_all(b"ping")
        assert trio.current_time() == began
        assert await there.receive_some() == b"ping"
        await there.send_all(b"pong")
        assert await here.receive_some() == b"pong"
        assert trio.current_time() - began == pytest.approx(0.5)


async def test_connections_share_the_bandwidth_of_a_direction(autojump_clock: trio.testing.MockClock) -> None:
    network = MemoryNetwork(conditions=Conditions(bandwidth=1 * MB))
    async with network.transport("b").listen(ANY) as listener, open_background() as nursery:
        nursery.start_soon(listener.serve, echo)

        async def exchange() -> None:
            async with network.transport("a").dial(listener.addresses[0]) as stream, trio.open_nursery() as both:
                both.start_soon(send_pattern, stream, MB, random.Random(1))
                await receive_pattern(stream, MB, random.Random(2))

        async with trio.open_nursery() as exchanges:
            for _ in range(3):
                exchanges.start_soon(exchange)
    # three megabytes one way, and back beside it
    assert trio.current_time() == pytest.approx(3.0, abs=0.2)


async def test_a_link_has_conditions_of_its_own(autojump_clock: trio.testing.MockClock) -> None:
    network = MemoryNetwork()
    network.set_conditions("b", "a", Conditions(latency=1.0))
    async with connected(network):
        assert trio.current_time() == pytest.approx(2.0)


async def test_jitter_delays_and_keeps_the_order(autojump_clock: trio.testing.MockClock) -> None:
    network = MemoryNetwork(conditions=Conditions(latency=0.1, jitter=0.1))
    async with connected(network) as (here, there):
        began = trio.current_time()
        arrivals: list[float] = []
        for byte in range(20):
            await here.send_all(bytes([byte]))
            await trio.sleep(0.001)
        for byte in range(20):
            assert await there.receive_some(1) == bytes([byte])
            arrivals.append(trio.current_time() - began)
        assert arrivals == sorted(arrivals)
        assert 0.1 <= arrivals[0] <= arrivals[-1] <= 0.22
        assert len(set(arrivals)) > 1


async def test_nobody_reads_and_the_writer_waits(autojump_clock: trio.testing.MockClock) -> None:
    conditions = Conditions(latency=0.1, bandwidth=MB)
    network = MemoryNetwork(conditions=conditions)
    async with connected(network) as (here, there), trio.open_nursery() as nursery:
        nursery.start_soon(here.send_all, bytes(MB))
        with trio.move_on_after(100) as waited:
            await trio.sleep_forever()
        assert waited.cancelled_caught
        assert sum(entry.size for entry in network.trace if entry.what == "send") == conditions.window
        await read_exactly(there, MB)


async def test_a_refusal_takes_a_round_trip(autojump_clock: trio.testing.MockClock) -> None:
    network = MemoryNetwork(conditions=Conditions(latency=1.0))
    async with network.transport("b").listen(ANY) as listener:
        address = listener.addresses[0]
    with pytest.raises(DialError, match="nobody listens"):
        async with network.transport("a").dial(address):
            pass
    assert trio.current_time() == pytest.approx(2.0)


async def test_a_number_that_was_never_listened_on(autojump_clock: trio.testing.MockClock) -> None:
    with pytest.raises(DialError, match="nobody ever"):
        async with MemoryNetwork().transport("a").dial(Address.parse("/memory/77")):
            pass


async def test_zero_is_nothing_to_dial(autojump_clock: trio.testing.MockClock) -> None:
    with pytest.raises(AddressError):
        async with MemoryNetwork().transport("a").dial(ANY):
            pass


async def test_the_backlog_is_bounded(autojump_clock: trio.testing.MockClock) -> None:
    network = MemoryNetwork()
    async with network.transport("b").listen(ANY) as listener, open_background() as nursery:

        async def dial() -> None:
            async with network.transport("a").dial(listener.addresses[0]):
                await trio.sleep_forever()

        for _ in range(MAX_BACKLOG):
            nursery.start_soon(dial)
        await wait_all_tasks_blocked()
        with pytest.raises(DialError, match="waiting"):
            async with network.transport("a").dial(listener.addresses[0]):
                pass


async def test_connections_show_where_they_come_from(autojump_clock: trio.testing.MockClock) -> None:
    network = MemoryNetwork()
    sources: list[Address | None] = []

    async def note(stream: ByteStream, source: Address | None) -> None:
        sources.append(source)

    async with network.transport("b").listen(ANY) as listener, open_background() as nursery:
        nursery.start_soon(listener.serve, note)
        for host in ("a", "a", "c"):
            async with network.transport(host).dial(listener.addresses[0]) as stream:
                assert await stream.receive_some() == b""
    hosts = [source.value("ip4") for source in sources if source]
    assert len(hosts) == 3
    assert hosts[0] == hosts[1] != hosts[2]


async def test_nothing_of_ended_connections_is_kept(autojump_clock: trio.testing.MockClock) -> None:
    network = MemoryNetwork()
    async with network.transport("b").listen(ANY) as listener, open_background() as nursery:
        nursery.start_soon(listener.serve, echo)
        for _ in range(100):
            async with network.transport("a").dial(listener.addresses[0]) as stream:
                await stream.send_all(b"x")
    assert len(network._pipes) <= 4  # pyright: ignore[reportPrivateUsage]


def story(seed: int, schedule: int) -> Sequence[TraceEntry]:
    """Hosts that talk to each other under bad conditions; what happened."""
    conditions = Conditions(latency=0.01, jitter=0.02, bandwidth=3 * MB, reset_probability=0.002)
    network = MemoryNetwork(seed=seed, conditions=conditions)

    async def talk(host: str, address: Address) -> None:
        chance = random.Random(host)
        for _ in range(5):
            try:
                async with network.transport(host).dial(address) as stream:
                    await stream.send_all(chance.randbytes(chance.randint(1, 200_000)))
                    await stream.receive_some()
            except (trio.BrokenResourceError, DialError):
                await trio.sleep(chance.random())

    async def main() -> None:
        async with network.transport("hub").listen(ANY) as listener, open_background() as nursery:
            nursery.start_soon(listener.serve, echo)
            async with trio.open_nursery() as hosts:
                for host in "abcdefgh":
                    hosts.start_soon(talk, host, listener.addresses[0])
                await trio.sleep(0.05)
                network.block("hub", "a", "b")
                await trio.sleep(1)
                network.heal("hub")

    run(main, seed=schedule)
    return network.trace


def test_the_same_seed_leaves_the_same_trace() -> None:
    first = story(1, 1)
    assert len(first) > 200
    assert story(1, 1) == first
    assert story(2, 1) != first
    assert math.isfinite(first[-1].at)
