"""What happens between an agent and its router at the edges of a connection's life."""

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from agentmesh.abc import Admission
from agentmesh.errors import CredentialError, RejectedError, StreamResetError
from agentmesh.pool.agent.access import AccessPolicy
from agentmesh.pool.agent.agent import AgentPool, AgentSettings
from agentmesh.pool.agent.config import ConnectionsConfig
from agentmesh.pool.agent.instance import Instance
from agentmesh.pool.agent.serving import ServingLimits
from agentmesh.pool.agent.targets import Connector
from agentmesh.pool.router.attached import Bearer, NoRegistry, attached_to
from agentmesh.pool.router.claims import Claim, Reason, Refusal
from agentmesh.pool.router.invariants import violations
from agentmesh.pool.router.leased import PooledStream
from agentmesh.pool.router.service import PoolService
from agentmesh.pool.router.table import PoolTable
from agentmesh.protocols.pool import (
    OPEN_ID,
    POOL_ID,
    Code,
    ConnEpoch,
    DrainReason,
    Open,
    OpenResult,
    Stage,
    open_target,
)
from agentmesh.runtime.messages import write_message
from agentmesh.runtime.session import MuxSession
from agentmesh.testing.links import Conditions
from tests.pool.worlds import ECHO, SLOW, Cluster, asked, open_cluster, say
from tests.protocols.ping.test_driver import two_hosts

TWO = ConnectionsConfig(min=2, max=2)


def sane(cluster: Cluster) -> bool:
    return violations(cluster.table, trio.current_time()) == []


async def test_an_agent_that_leaves_while_streams_are_opened_is_not_noticed(autojump_clock: MockClock) -> None:
    """Opens that cross its farewell are made on another connection, and each target is connected to once."""
    async with open_cluster() as cluster, cluster.agent("i1", TWO) as leaving, cluster.agent("i2", TWO):
        cluster.network.set_conditions("i1", "router", Conditions(latency=0.8))
        await cluster.wait_for(4)
        streams: list[PooledStream] = []

        async def open_one() -> None:
            streams.append(await cluster.open())

        async with trio.open_nursery() as nursery:
            for n in range(30):
                if n == 10:
                    leaving.drain()
                nursery.start_soon(open_one)
                await trio.sleep(0.1)
        assert len(streams) == len(cluster.targets.reached) == 30
        assert [await say(stream) for stream in streams] == [b"hello"] * 30
        assert sane(cluster)


async def test_a_connection_that_leaves_untold_is_passed_over(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, cluster.agent("i1", TWO):
        await cluster.wait_for(2)
        pool = cluster.table.get("agent")
        assert pool is not None
        first, second = pool.connections
        control = attached_to(first).control
        control.tell(lambda machine: machine.send_drain(DrainReason.ADMIN_CLOSE, trio.current_time()))
        stream = await cluster.open()
        assert stream.lease.connection is second
        assert first.active_streams == 0


async def test_a_connection_that_is_lost_while_it_opens_is_passed_over(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, cluster.agent("i1", TWO):
        await cluster.wait_for(2)
        results: list[object] = []

        async def open_slow() -> None:
            results.append(await cluster.service.opener.open("agent", asked(SLOW)))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(open_slow)
            await trio.sleep(1)
            pool = cluster.table.get("agent")
            assert pool is not None
            [busy] = [one for one in pool.connections if one.active_streams]
            attached_to(busy).session.abort("the cable")
        assert results == [OpenResult(Stage.CONNECT, Code.TIMEOUT)]  # by way of the other
        assert len(cluster.targets.reached) == 2
        assert sane(cluster)


async def test_a_credential_that_is_refused_is_not_shown_again_and_again(autojump_clock: MockClock) -> None:
    dials: list[float] = []

    async def dial() -> MuxSession:
        await trio.lowlevel.checkpoint()
        dials.append(trio.current_time())
        if len(dials) % 2:
            raise CredentialError("no", "expired")
        raise RejectedError("no", 0x1008)

    settings = AgentSettings(agent_id="agent", instance=Instance("i", "b", is_kept=True))
    pool = AgentPool(settings, dial, Connector(AccessPolicy()), chance=lambda: 1.0)
    with trio.move_on_after(600):
        await pool.run()
    assert dials == pytest.approx([60.0 * n for n in range(10)], abs=0.1)
    pool.drain()


# ── opens ──


async def test_an_open_for_another_agent_is_forbidden(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, cluster.agent("i1"):
        await cluster.wait_for(1)
        pool = cluster.table.get("agent")
        assert pool is not None
        session = attached_to(pool.connections[0]).session
        opening = await open_target(session, Open("other", "tcp", ECHO, 22, 1))
        assert opening.result == OpenResult(Stage.AUTHORIZATION, Code.FORBIDDEN)


async def test_an_open_on_a_session_that_is_no_connection_is_refused(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, cluster.agent("i1"):
        await cluster.wait_for(1)
        pool = cluster.table.get("agent")
        assert pool is not None
        pooled = attached_to(pool.connections[0]).session
        await cluster.hosts["i1"].connect_anew(cluster.host.peer, cluster.host.addresses)
        await wait_all_tasks_blocked()
        [stranger] = [one for one in cluster.host.connections.sessions_of(pooled.peer) if one is not pooled]
        opening = await open_target(stranger, Open("agent", "tcp", ECHO, 22, 1))
        assert opening.result == OpenResult(Stage.AUTHORIZATION, Code.FORBIDDEN)


async def test_opens_that_wait_for_a_dial_are_bounded(autojump_clock: MockClock) -> None:
    limits = ServingLimits(max_dials=1, max_pending_dials=1)
    async with open_cluster() as cluster, cluster.agent("i1", serving=limits):
        await cluster.wait_for(1)
        results: list[object] = []

        async def open_slow() -> None:
            results.append(await cluster.service.opener.open("agent", asked(SLOW)))

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(open_slow)
                await wait_all_tasks_blocked()
            assert results == [OpenResult(Stage.QUEUE, Code.QUEUE_FULL, True, 1000)]
        assert sane(cluster)


async def test_an_open_that_says_nothing_costs_its_stream(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, cluster.agent("i1"):
        await cluster.wait_for(1)
        pool = cluster.table.get("agent")
        assert pool is not None
        stream = await attached_to(pool.connections[0]).session.open_stream(OPEN_ID)
        await stream.send_all(b"\x05")
        with pytest.raises(StreamResetError):
            await stream.receive_some()
        assert trio.current_time() < 10


# ── the control stream ──


async def test_a_visitor_that_says_no_hello(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, cluster.agent("i1"):
        await cluster.wait_for(1)
        session = await cluster.hosts["i1"].connect_anew(cluster.host.peer, cluster.host.addresses)
        async with await session.open_stream(POOL_ID) as stream:
            await stream.send_eof()
            assert await stream.receive_some() == b""
        async with await session.open_stream(POOL_ID) as stream:
            await stream.send_all(b"\x05")
            assert await stream.receive_some() == b""  # after ten seconds
        assert len(cluster.table) == 1


@attrs.define
class SlowRegistrar(NoRegistry):
    """Takes a minute for each connection, and then says yes or no."""

    answer: Refusal | None

    async def register(self, claim: Claim) -> ConnEpoch | Refusal:
        await trio.sleep(60)
        return self.answer or claim.epoch


@pytest.mark.parametrize("answer", [None, Refusal(Reason.STALE_EPOCH)])
async def test_an_agent_that_is_gone_before_it_is_registered(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, answer: Refusal | None
) -> None:
    service = PoolService(PoolTable("n1"), lambda _: Bearer("agent", "t"), SlowRegistrar(answer))
    async with two_hosts([service.protocol(Admission.ANYONE)]) as (dialer, listener):
        async with await dialer.open_stream(listener.peer, POOL_ID) as stream:
            await write_message(stream, b'{"agent_id": "agent", "connection_id": "c1", "epoch": 1}')
            await stream.send_eof()
            await trio.sleep(30)
            assert len(service.table) == 1  # its place
            await trio.sleep(31)
            assert len(service.table) == 0
        assert listener.statistics().streams.outcomes["failed"] == 0
    assert "protocol failed" not in caplog.text


async def test_a_connection_that_is_cut_while_it_is_registered(autojump_clock: MockClock) -> None:
    service = PoolService(PoolTable("n1"), lambda _: Bearer("agent", "t"), SlowRegistrar(None))
    async with two_hosts([service.protocol(Admission.ANYONE)]) as (dialer, listener):
        stream = await dialer.open_stream(listener.peer, POOL_ID)
        await write_message(stream, b'{"agent_id": "agent", "connection_id": "c1", "epoch": 1}')
        await trio.sleep(30)
        assert len(service.table) == 1
        for session in listener.connections:
            session.abort("the cable")
        await wait_all_tasks_blocked()
        assert len(service.table) == 0


async def test_a_drain_that_comes_with_the_end_is_none(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, cluster.agent("i1", TWO) as agent:
        await cluster.wait_for(2)
        await trio.sleep(10)
        for link in agent.links.values():
            link.control.machine.receive_data(b"", trio.current_time())  # read, and not acted upon yet
        agent.drain()
        await trio.sleep(60)
        assert agent.controller.is_over


async def test_a_router_that_leaves_takes_nobody(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster:
        await cluster.service.leave(over=5.0, timeout=5.0, retry_after=120.0)
        async with cluster.agent("i1"):
            await trio.sleep(100)
            assert cluster.connections() == []
            assert cluster.table.refused[Reason.SHUTTING_DOWN] == 1


async def test_a_pool_that_is_broken_says_so(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, cluster.agent("i1", TWO):
        await cluster.wait_for(2)
        stream = await cluster.open()
        assert sane(cluster)
        pool = cluster.table.get("agent")
        assert pool is not None
        first, second = pool.connections
        attached_to(stream.lease.connection).streams.clear()
        assert any("are counted" in text for text in violations(cluster.table, trio.current_time()))
        attached_to(stream.lease.connection).streams[stream.lease.stream_id] = stream
        stream.lease.connection.leases.clear()
        assert any("the machine has" in text for text in violations(cluster.table, trio.current_time()))
        stream.lease.connection.leases.add(stream.lease)
        pool.by_id["stolen"] = pool.by_id.pop(first.connection_id)
        pool.by_id["twice"] = second
        found = violations(cluster.table, trio.current_time())
        assert any("not in its place" in text for text in found)
        assert any("connections are counted" in text for text in found)
        pool.by_id.clear()
        pool.by_id.update({first.connection_id: first, second.connection_id: second})
        pool.fences[first.connection_id] = (first.epoch, 1e9)
        assert any("was used before" in text for text in violations(cluster.table, trio.current_time()))
        pool.fences.clear()
        assert sane(cluster)
        await stream.aclose()
