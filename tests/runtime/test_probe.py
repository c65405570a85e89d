"""Whether a peer is where it says it is, seen from a host that has a session to it already."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from agentmesh.identity import Identity
from agentmesh.runtime.host import Host, open_host
from agentmesh.runtime.probe import Prober
from agentmesh.runtime.tls import TlsContext
from agentmesh.testing import MemoryNetwork, cancel_at_every_await
from agentmesh.types import Address

TIMEOUT = 10.0
ANY = Address.parse("/memory/0")


@asynccontextmanager
async def host_and_prober() -> AsyncGenerator[tuple[MemoryNetwork, Host, Prober]]:
    network = MemoryNetwork()
    prober = Prober([network.transport("router")], TlsContext(Identity.generate()), TIMEOUT)
    async with open_host(identity=Identity.generate(), transports=[network.transport("host")], listen=[ANY]) as host:
        yield network, host, prober


async def test_who_proves_the_key_is_there(autojump_clock: MockClock) -> None:
    async with host_and_prober() as (_, host, prober):
        assert await prober.probe(host.peer, host.addresses[0])
        await wait_all_tasks_blocked()
        assert len(host.connections) == 0


async def test_somebody_else_is_not(autojump_clock: MockClock) -> None:
    async with host_and_prober() as (_, host, prober):
        assert not await prober.probe(Identity.generate().peer, host.addresses[0].without_peer())


async def test_where_nobody_listens_nobody_is(autojump_clock: MockClock) -> None:
    async with host_and_prober() as (_, host, prober):
        assert not await prober.probe(host.peer, Address.parse("/memory/99"))
        assert not await prober.probe(host.peer, Address.parse("/ip4/203.0.113.7/tcp/1"))  # no transport for it here


async def test_who_does_not_answer_is_not_there(autojump_clock: MockClock) -> None:
    async with host_and_prober() as (network, host, prober):
        network.freeze("host")
        assert not await prober.probe(host.peer, host.addresses[0])
        assert trio.current_time() == TIMEOUT


async def test_a_probe_cancelled_anywhere_leaves_nothing(autojump_clock: MockClock) -> None:
    async with host_and_prober() as (_, host, prober):

        async def probe() -> None:
            await prober.probe(host.peer, host.addresses[0])

        async def check() -> None:
            await wait_all_tasks_blocked()
            assert len(host.connections) == 0
            assert host.statistics().connections.handshakes == 0

        assert await cancel_at_every_await(probe, check=check) >= 3
