"""Handshakes that are as long every time."""

from collections.abc import Sequence

from trio.testing import wait_all_tasks_blocked

from agentmesh.abc import Stream
from agentmesh.identity import Identity
from agentmesh.runtime.host import open_host
from agentmesh.runtime.registry import Protocol
from agentmesh.testing import Conditions, MemoryNetwork, SteadyTlsContext, TraceEntry, run
from agentmesh.types import Address, ProtocolId

ECHO = ProtocolId("/test/echo")
CALLS = 8


async def echo(stream: Stream) -> None:
    async for data in stream:
        await stream.send_all(data)


async def talk(network: MemoryNetwork) -> None:
    """Sessions between hosts of new identities, and a few bytes there and back."""
    for number in range(CALLS):
        async with (
            open_host(
                identity=Identity.generate(),
                transports=[network.transport("bob")],
                protocols=[Protocol(ECHO, echo)],
                listen=[Address.parse("/memory/0")],
                security=SteadyTlsContext,
            ) as bob,
            open_host(
                identity=Identity.generate(), transports=[network.transport("alice")], security=SteadyTlsContext
            ) as alice,
        ):
            await alice.connect(bob.peer, bob.addresses)
            async with await alice.open_stream(bob.peer, ECHO) as stream:
                await stream.send_all(bytes(number))
                await stream.send_eof()
                assert b"".join([part async for part in stream]) == bytes(number)
            await wait_all_tasks_blocked()


def story(seed: int) -> Sequence[TraceEntry]:
    network = MemoryNetwork(seed=seed, conditions=Conditions(latency=0.01, jitter=0.005, bandwidth=1e6))

    run(talk, network)
    return network.trace


def test_hosts_of_any_identity_leave_the_same_trace_to_the_byte() -> None:
    first = story(1)
    assert len(first) > 10 * CALLS
    assert story(1) == first
    assert story(2) != first
