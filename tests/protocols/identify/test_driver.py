from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.metadata import version

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from agentmesh.abc import Stream
from agentmesh.errors import RemoteProtocolError
from agentmesh.identity import Identity
from agentmesh.protocols.identify import IDENTIFY_ID, PeerInfo, identify, protocol
from agentmesh.protocols.identify.machine import IDENTIFY_TIMEOUT
from agentmesh.protocols.identify.wire import encode_info
from agentmesh.runtime.host import Host, open_host
from agentmesh.runtime.messages import write_message
from agentmesh.runtime.registry import Protocol
from agentmesh.testing import MemoryNetwork, cancel_at_every_await
from agentmesh.types import Address, ProtocolId


async def hang(stream: Stream) -> None:
    await trio.sleep_forever()


OTHER = Protocol(ProtocolId("/test/other/1.0.0"), hang)


@asynccontextmanager
async def two_hosts(served: Protocol) -> AsyncGenerator[tuple[Host, Host]]:
    network = MemoryNetwork()
    async with (
        open_host(
            identity=Identity.generate(),
            transports=[network.transport("listener")],
            protocols=[served, OTHER],
            listen=[Address.parse("/memory/1"), Address.parse("/memory/2")],
        ) as listener,
        open_host(identity=Identity.generate(), transports=[network.transport("dialer")]) as dialer,
    ):
        await dialer.connect(listener.peer, [Address.parse("/memory/1")])
        yield dialer, listener


async def ask(dialer: Host, listener: Host) -> PeerInfo:
    async with await dialer.open_stream(listener.peer, IDENTIFY_ID) as stream:
        return await identify(stream)


async def test_a_host_says_who_it_is(autojump_clock: MockClock) -> None:
    async with two_hosts(protocol()) as (dialer, listener):
        info = await ask(dialer, listener)
        session = listener.session(dialer.peer)
        assert session is not None
        assert session.address is not None
        assert info == PeerInfo(
            peer=listener.peer,
            public_key=listener.identity.public_key_bytes,
            addresses=(Address.parse("/memory/1"), Address.parse("/memory/2")),
            protocols=(IDENTIFY_ID, OTHER.id),
            observed=session.address,
            protocol_version="mesh/0.1.0",
            agent_version=f"agentmesh/{version('agentmesh')}",
        )


async def test_a_program_may_give_its_own_name(autojump_clock: MockClock) -> None:
    async with two_hosts(protocol("router/7")) as (dialer, listener):
        assert (await ask(dialer, listener)).agent_version == "router/7"


async def test_the_stream_ends_behind_the_message(autojump_clock: MockClock) -> None:
    async with two_hosts(protocol()) as (dialer, listener):
        async with await dialer.open_stream(listener.peer, IDENTIFY_ID) as stream:
            assert [data async for data in stream]
        await wait_all_tasks_blocked()
        assert listener.statistics().streams.outcomes["served"] == 1


async def test_the_key_of_another_peer_is_found_out(autojump_clock: MockClock) -> None:
    stranger = Identity.generate()

    async def lie(stream: Stream) -> None:
        await write_message(stream, encode_info(PeerInfo(stranger.peer, stranger.public_key_bytes)))

    async with two_hosts(Protocol(IDENTIFY_ID, lie)) as (dialer, listener):
        with pytest.raises(RemoteProtocolError):
            await ask(dialer, listener)


async def test_silence_is_not_waited_out(autojump_clock: MockClock) -> None:
    async with two_hosts(Protocol(IDENTIFY_ID, hang)) as (dialer, listener):
        start = trio.current_time()
        with pytest.raises(trio.TooSlowError):
            await ask(dialer, listener)
        assert trio.current_time() - start == pytest.approx(IDENTIFY_TIMEOUT)


async def test_asking_cancelled_anywhere_leaves_nothing(autojump_clock: MockClock) -> None:
    async with two_hosts(protocol()) as (dialer, listener):

        async def check() -> None:
            await wait_all_tasks_blocked()
            session = dialer.session(listener.peer)
            assert session is not None
            assert session.streams == ()
            assert listener.statistics().streams.serving == 0

        assert await cancel_at_every_await(lambda: ask(dialer, listener), check=check) >= 2
