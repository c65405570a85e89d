"""What can go wrong on a simulated network: resets, half-closes, damaged bytes, blocked links, frozen hosts."""

from functools import partial

import pytest
import trio

from agentmesh.errors import DialError
from agentmesh.runtime.nursery import open_background
from agentmesh.testing import Conditions, MemoryNetwork
from agentmesh.testing.network import DIAL_TIMEOUT
from agentmesh.testing.transport_setup import echo, pattern, read_exactly
from tests.testing.connected import ANY, MB, connected


async def test_a_reset_at_an_offset_delivers_what_came_before(autojump_clock: trio.testing.MockClock) -> None:
    network = MemoryNetwork(conditions=Conditions(latency=0.1, reset_at=100_000))
    async with connected(network) as (here, there):
        with pytest.raises(trio.BrokenResourceError):
            await here.send_all(pattern(0, 150_000))
        with pytest.raises(trio.BrokenResourceError):
            await here.receive_some()
        await there.send_all(b"does not know yet")
        assert await read_exactly(there, 100_000) == pattern(0, 100_000)
        with pytest.raises(trio.BrokenResourceError):
            await there.receive_some()
        with pytest.raises(trio.BrokenResourceError):
            await there.send_all(b"x")


async def test_resets_by_probability_are_the_seeds(autojump_clock: trio.testing.MockClock) -> None:
    async def survived(seed: int) -> int:
        network = MemoryNetwork(seed=seed, conditions=Conditions(reset_probability=0.1))
        async with connected(network) as (here, _):
            with pytest.raises(trio.BrokenResourceError):
                while True:
                    await here.send_all(b"x")
        return sum(entry.size for entry in network.trace)

    lengths = [await survived(seed) for seed in range(20)]
    assert lengths == [await survived(seed) for seed in range(20)]
    assert 3 < sum(lengths) / 20 < 30
    assert len(set(lengths)) > 5


async def test_a_blocked_link_delivers_when_it_is_healed(autojump_clock: trio.testing.MockClock) -> None:
    network = MemoryNetwork(conditions=Conditions(latency=1.0))
    async with connected(network) as (here, there):
        await here.send_all(b"arrived ")
        await trio.sleep(1.5)
        await here.send_all(b"lost on the way, ")
        await trio.sleep(0.5)
        network.block("a", "b")
        await here.send_all(b"held back")
        assert await there.receive_some() == b"arrived "
        with trio.move_on_after(3600) as scope:
            await there.receive_some()
        assert scope.cancelled_caught
        healed = trio.current_time()
        network.heal("a", "b")
        assert await there.receive_some() == b"lost on the way, held back"
        assert trio.current_time() == pytest.approx(healed + 1.0)


async def test_the_end_crosses_a_healed_link_too(autojump_clock: trio.testing.MockClock) -> None:
    network = MemoryNetwork(conditions=Conditions(latency=1.0))
    async with connected(network) as (here, there):
        network.block("a")
        await here.aclose()
        await trio.sleep(60)
        await there.send_all(b"nobody is there")
        network.heal("a")
        assert await there.receive_some() == b""
        with pytest.raises(trio.BrokenResourceError):
            await there.send_all(b"x")
        assert trio.current_time() == pytest.approx(2.0 + 60 + 1.0)


async def test_a_dial_into_a_blocked_link_waits_for_healing(autojump_clock: trio.testing.MockClock) -> None:
    network = MemoryNetwork(conditions=Conditions(latency=1.0))
    network.block("a", "b")

    async def heal() -> None:
        await trio.sleep(10)
        network.heal("a", "b")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(heal)
        async with connected(network):
            assert trio.current_time() == pytest.approx(12.0)


async def test_a_dial_that_loses_its_answer_asks_again(autojump_clock: trio.testing.MockClock) -> None:
    network = MemoryNetwork(conditions=Conditions(latency=1.0))

    async def flap() -> None:
        await trio.sleep(1.5)  # the answer is under way
        network.block("a", "b")
        await trio.sleep(8)
        network.heal("a", "b")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(flap)
        async with connected(network):
            assert trio.current_time() == pytest.approx(10.5)


async def test_a_dial_without_an_answer_fails_in_the_end(autojump_clock: trio.testing.MockClock) -> None:
    network = MemoryNetwork()
    async with network.transport("b").listen(ANY) as listener:
        network.block("a", "b")
        with pytest.raises(DialError, match="no answer"):
            async with network.transport("a").dial(listener.addresses[0]):
                pass
    assert trio.current_time() == pytest.approx(DIAL_TIMEOUT)


async def test_a_frozen_host_is_silent(autojump_clock: trio.testing.MockClock) -> None:
    """Neither end nor reset: its peer's bytes are taken as far as the window goes, and nothing comes back."""
    network = MemoryNetwork(conditions=Conditions(latency=0.01))
    async with connected(network) as (here, there):
        network.freeze("b")
        await here.send_all(b"into the void")
        for operation in (
            here.receive_some,
            there.receive_some,
            partial(there.send_all, b"x"),
            partial(here.send_all, bytes(20 * MB)),
        ):
            with trio.move_on_after(3600) as scope:
                await operation()
            assert scope.cancelled_caught
        await there.aclose()
        with trio.move_on_after(3600) as scope:
            await here.receive_some()
        assert scope.cancelled_caught
        network.thaw("b")
        assert await here.receive_some() == b""
        with pytest.raises(trio.BrokenResourceError):
            await here.send_all(b"x")


async def test_a_thawed_host_goes_on(autojump_clock: trio.testing.MockClock) -> None:
    network = MemoryNetwork(conditions=Conditions(latency=0.01))
    async with connected(network) as (here, there), trio.open_nursery() as nursery:
        network.freeze("b")
        network.freeze("b")
        await here.send_all(b"one ")
        nursery.start_soon(there.send_all, b"from below")
        nursery.start_soon(thaw_after, network, 100)
        assert await there.receive_some() == b"one "
        assert await here.receive_some() == b"from below"
    assert trio.current_time() >= 100


async def thaw_after(network: MemoryNetwork, seconds: float) -> None:
    await trio.sleep(seconds)
    network.thaw("b")


async def test_a_frozen_host_accepts_without_serving(autojump_clock: trio.testing.MockClock) -> None:
    network = MemoryNetwork()
    async with network.transport("b").listen(ANY) as listener, open_background() as nursery:
        nursery.start_soon(listener.serve, echo)
        network.freeze("b")
        async with network.transport("a").dial(listener.addresses[0]) as stream:
            await stream.send_all(b"anyone?")
            with trio.move_on_after(60) as scope:
                await stream.receive_some()
            assert scope.cancelled_caught
            network.thaw("b")
            assert await stream.receive_some() == b"anyone?"


async def test_a_frozen_host_dials_when_it_thaws(autojump_clock: trio.testing.MockClock) -> None:
    network = MemoryNetwork()
    network.freeze("a")

    async def thaw() -> None:
        await trio.sleep(5)
        network.thaw("a")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(thaw)
        async with connected(network):
            assert trio.current_time() == pytest.approx(5)


async def test_a_reset_between_hosts_breaks_both_ends(autojump_clock: trio.testing.MockClock) -> None:
    network = MemoryNetwork(conditions=Conditions(latency=0.01))
    async with connected(network) as (here, there):
        await here.send_all(b"never read")
        network.reset("b", "a")
        for end in (here, there):
            with pytest.raises(trio.BrokenResourceError):
                await end.receive_some()
            with pytest.raises(trio.BrokenResourceError):
                await end.send_all(b"x")


async def test_a_direction_ends_on_the_way(autojump_clock: trio.testing.MockClock) -> None:
    """The reader sees an end that its writer knows nothing of; the other direction goes on."""
    network = MemoryNetwork(conditions=Conditions(latency=0.01))
    async with connected(network) as (here, there):
        await here.send_all(b"the last ")
        await here.send_all(b"that arrives")
        network.half_close("a", "b")
        network.half_close("a", "b")
        for _ in range(2):
            await here.send_all(bytes(20 * MB))
        assert await read_exactly(there, 100) == b"the last that arrives"
        await there.send_all(b"go on")
        assert await here.receive_some() == b"go on"
        await here.aclose()
        assert await there.receive_some() == b""
        with pytest.raises(trio.BrokenResourceError):
            await there.send_all(b"x")
            await trio.sleep(1)
            await there.send_all(b"x")
    assert [entry.what for entry in network.trace if entry.source == "a"].count("half-close") == 1


async def test_a_forgotten_connection_is_never_heard_of_again(autojump_clock: trio.testing.MockClock) -> None:
    network = MemoryNetwork(conditions=Conditions(latency=1.0))
    async with connected(network) as (here, there):
        await here.send_all(b"arrived")
        await trio.sleep(2)
        await here.send_all(b"under way")
        network.forget("b", "a")
        network.heal("a", "b")  # heals nothing of that
        assert await there.receive_some() == b"arrived"
        await here.aclose()
        for operation in (there.receive_some, partial(there.send_all, bytes(20 * MB))):
            with trio.move_on_after(3600) as scope:
                await operation()
            assert scope.cancelled_caught
        async with connected(network) as (again, back):
            await again.send_all(b"a new one works")
            assert await back.receive_some() == b"a new one works"


async def test_bytes_are_damaged_once_on_each_connection(autojump_clock: trio.testing.MockClock) -> None:
    async def received(seed: int) -> bytes:
        network = MemoryNetwork(seed=seed, conditions=Conditions(latency=0.01))
        async with connected(network) as (here, there):
            network.garble("a", "b")
            await there.send_all(bytes(100))
            assert await read_exactly(here, 100) == bytes(100)
            await here.send_all(bytes(100))
            damaged = await read_exactly(there, 100)
            await here.send_all(bytes(100))
            assert await read_exactly(there, 100) == bytes(100)
            return damaged

    damaged = await received(1)
    assert 1 <= sum(byte != 0 for byte in damaged) <= 16
    assert await received(1) == damaged
    assert await received(2) != damaged


async def test_others_are_untouched(autojump_clock: trio.testing.MockClock) -> None:
    network = MemoryNetwork()
    async with network.transport("c").listen(ANY) as listener, open_background() as nursery:
        nursery.start_soon(listener.serve, echo)
        async with network.transport("d").dial(listener.addresses[0]) as stream:
            network.block("a", "c")
            network.freeze("b")
            network.reset("a", "c")
            await stream.send_all(b"well")
            assert await stream.receive_some() == b"well"
