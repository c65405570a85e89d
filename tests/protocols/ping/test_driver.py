from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock, memory_stream_pair

from agentmesh.errors import ErrorCode, RejectedError, RemoteProtocolError
from agentmesh.identity import Identity
from agentmesh.protocols.ping import PING_ID, ping, protocol
from agentmesh.protocols.ping.machine import IDLE_TIMEOUT, PONG_TIMEOUT
from agentmesh.runtime.host import Host, open_host
from agentmesh.runtime.registry import Protocol
from agentmesh.testing.cancellation import cancel_at_every_await
from agentmesh.transports.memory import MemoryHub, MemoryTransport
from agentmesh.types import Address


@asynccontextmanager
async def two_hosts(protocols: Sequence[Protocol]) -> AsyncGenerator[tuple[Host, Host]]:
    """One that speaks `protocols`, and one with a session to it."""
    hub = MemoryHub()
    async with (
        open_host(
            identity=Identity.generate(),
            transports=[MemoryTransport(hub)],
            protocols=protocols,
            listen=[Address.parse("/memory/1")],
        ) as listener,
        open_host(identity=Identity.generate(), transports=[MemoryTransport(hub)]) as dialer,
    ):
        await dialer.connect(listener.peer, listener.addresses)
        yield dialer, listener


async def test_a_ping_measures_the_round_trip(autojump_clock: MockClock) -> None:
    near, far = memory_stream_pair()

    async def answer_slowly() -> None:
        asked = await far.receive_some()
        await trio.sleep(0.25)
        await far.send_all(asked[:10])
        await trio.sleep(0.25)
        await far.send_all(asked[10:])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(answer_slowly)
        assert await ping(near) == pytest.approx(0.5)


async def test_hosts_ping_each_other_again_and_again(autojump_clock: MockClock) -> None:
    async with (
        two_hosts([protocol()]) as (dialer, listener),
        await dialer.open_stream(listener.peer, PING_ID) as stream,
    ):
        assert [await ping(stream) for _ in range(3)] == [0.0, 0.0, 0.0]


async def test_the_third_stream_of_a_peer_is_refused(autojump_clock: MockClock) -> None:
    async with two_hosts([protocol()]) as (dialer, listener):
        first = await dialer.open_stream(listener.peer, PING_ID)
        await ping(first)
        async with await dialer.open_stream(listener.peer, PING_ID) as second:
            await ping(second)
            with pytest.raises(RejectedError) as refused:
                await ping(await dialer.open_stream(listener.peer, PING_ID))
            assert refused.value.code == ErrorCode.RESOURCE_LIMIT_EXCEEDED
            await first.aclose()
            await trio.testing.wait_all_tasks_blocked()
            async with await dialer.open_stream(listener.peer, PING_ID) as third:
                await ping(third)


async def test_a_silent_peer_is_not_waited_for_forever(autojump_clock: MockClock) -> None:
    near, _far = memory_stream_pair()
    start = trio.current_time()
    with pytest.raises(trio.TooSlowError):
        await ping(near)
    assert trio.current_time() - start == PONG_TIMEOUT


async def test_the_echo_ends_an_idle_stream(autojump_clock: MockClock) -> None:
    async with (
        two_hosts([protocol()]) as (dialer, listener),
        await dialer.open_stream(listener.peer, PING_ID) as stream,
    ):
        await ping(stream)
        start = trio.current_time()
        assert await stream.receive_some() == b""
        assert trio.current_time() - start == IDLE_TIMEOUT
        assert listener.statistics().streams.serving == 0


async def test_half_a_ping_costs_the_stream_and_nothing_else(autojump_clock: MockClock) -> None:
    async with two_hosts([protocol()]) as (dialer, listener):
        async with await dialer.open_stream(listener.peer, PING_ID) as stream:
            await stream.send_all(bytes(5))
            await stream.send_eof()
            with pytest.raises(trio.BrokenResourceError):
                await stream.receive_some()
        async with await dialer.open_stream(listener.peer, PING_ID) as stream:
            await ping(stream)
        assert listener.statistics().streams.outcomes["peer_failed"] == 1


async def test_another_answer_is_the_peers_fault(autojump_clock: MockClock) -> None:
    near, far = memory_stream_pair()
    await far.send_all(bytes(32))
    with pytest.raises(RemoteProtocolError):
        await ping(near)


async def test_a_ping_cancelled_anywhere_leaves_nothing(autojump_clock: MockClock) -> None:
    async with two_hosts([protocol()]) as (dialer, listener):

        async def measure() -> None:
            async with await dialer.open_stream(listener.peer, PING_ID) as stream:
                await ping(stream)

        async def check() -> None:
            await trio.testing.wait_all_tasks_blocked()
            assert listener.statistics().streams.serving == 0
            session = dialer.session(listener.peer)
            assert session is not None
            assert session.streams == ()

        assert await cancel_at_every_await(measure, check=check) >= 2
