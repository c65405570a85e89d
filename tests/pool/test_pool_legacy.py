"""Older agents with a router of today, and an agent of today with older routers."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from agentmesh.abc import Admission, Stream
from agentmesh.identity import Identity
from agentmesh.pool.agent.config import ConnectionsConfig
from agentmesh.pool.router.attached import Bearer
from agentmesh.pool.router.leased import PooledStream
from agentmesh.protocols.pool import POOL_ID, answer_open, open_protocol, pool_protocol, receive_open
from agentmesh.protocols.pool.values import ACCEPTED
from agentmesh.runtime.host import Host, open_host
from agentmesh.runtime.messages import read_message, write_message
from agentmesh.wire.framing import FrameReader
from tests.pool.worlds import ANYWHERE, Cluster, asked, open_cluster, say


@attrs.define
class OldAgent:
    """Says what agents said before there were pools, and answers heartbeats."""

    stream: Stream
    reader: FrameReader = attrs.Factory(lambda: FrameReader(32 * 1024))

    async def hello(self, epoch: int, **more: object) -> dict[str, object]:
        said = {"agent_id": "agent", "node_id": "box", "epoch": epoch, "revision": 1, **more}
        await write_message(self.stream, json.dumps(said).encode())
        answer: dict[str, object] = json.loads(await read_message(self.stream, self.reader))
        return answer

    async def answer_heartbeats(self) -> None:
        while True:
            said = json.loads(await read_message(self.stream, self.reader))
            if said["type"] == "heartbeat":
                ack = {"type": "heartbeat_ack", "seq": said["seq"]}
                await write_message(self.stream, json.dumps(ack).encode())


async def serve_echo(stream: Stream) -> None:
    await receive_open(stream)
    await answer_open(stream, ACCEPTED)
    while data := await stream.receive_some():
        await stream.send_all(data)


@asynccontextmanager
async def old_agent(cluster: Cluster, name: str) -> AsyncGenerator[OldAgent]:
    identity = Identity.generate()
    cluster.bearers[identity.peer] = Bearer("agent", "token")
    async with open_host(
        identity=identity,
        transports=[cluster.network.transport(name)],
        protocols=[open_protocol(serve_echo, Admission.ANYONE)],
    ) as host:
        session = await host.connect(cluster.host.peer, cluster.host.addresses)
        async with await session.open_stream(POOL_ID) as stream:
            yield OldAgent(stream)


def ids(cluster: Cluster) -> list[tuple[str, str, int]]:
    pool = cluster.table.get("agent")
    return [] if pool is None else [(c.claim.instance_id, c.connection_id, c.epoch) for c in pool.connections]


async def test_an_older_agent_joins_and_serves(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, old_agent(cluster, "old") as agent:
        answer = await agent.hello(5)
        assert (answer["accepted"], answer["epoch"], answer["connection_pool_supported"]) == (True, 5, True)
        assert ids(cluster) == [("box", "legacy-box", 5)]
        stream = await cluster.service.opener.open("agent", asked())
        assert isinstance(stream, PooledStream)
        assert await say(stream) == b"hello"
        with trio.move_on_after(60):
            await agent.answer_heartbeats()
        assert ids(cluster) == [("box", "legacy-box", 5)]
        await stream.aclose()


async def test_its_reconnect_takes_its_place_and_an_old_life_does_not(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, old_agent(cluster, "old") as first:
        await first.hello(5)
        async with old_agent(cluster, "older") as stale:
            refusal = await stale.hello(5)
            assert (refusal["registered"], refusal["accepted"]) == (False, False)
            assert "stale_epoch" in json.dumps(refusal["errors"])
            assert await stale.stream.receive_some() == b""
        async with old_agent(cluster, "newer") as second:
            assert (await second.hello(6))["epoch"] == 6
            assert ids(cluster) == [("box", "legacy-box", 6)]
            await wait_all_tasks_blocked()
            with pytest.raises(trio.BrokenResourceError):
                while await first.stream.receive_some():
                    pass


async def test_two_older_processes_stay_side_by_side(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, old_agent(cluster, "a") as first, old_agent(cluster, "b") as second:
        await first.hello(5, node_id="box-a")
        await second.hello(3, node_id="box-b")
        assert [name for _, name, _ in ids(cluster)] == ["legacy-box-a", "legacy-box-b"]


async def test_a_silent_connection_is_gone_after_three_heartbeats(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, old_agent(cluster, "old") as agent:
        await agent.hello(5)
        await trio.sleep(26)
        assert cluster.healthy() == 0
        await trio.sleep(5)
        assert ids(cluster) == []


async def test_metadata_that_is_not_taken_ends_nothing(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, old_agent(cluster, "old") as agent:
        await agent.hello(5, revision=7)
        answer = await agent.hello(5, type="metadata", revision=6)
        while answer["type"] == "heartbeat":
            answer = json.loads(await read_message(agent.stream, agent.reader))
        assert (answer["registered"], answer["accepted"]) == (True, False)
        assert "stale_revision" in json.dumps(answer["errors"])
        assert len(ids(cluster)) == 1


# ── an older router ──


@asynccontextmanager
async def old_router(cluster: Cluster, answers: list[dict[str, object]]) -> AsyncGenerator[list[Stream]]:
    """Answers each hello with the next of `answers`; the cluster's agents are led to it."""
    joined: list[Stream] = []

    async def serve(stream: Stream) -> None:
        reader = FrameReader(32 * 1024)
        hello = json.loads(await read_message(stream, reader))
        joined.append(stream)
        answer = {"agent_id": hello["agent_id"], "epoch": hello["epoch"], "revision": 1, **answers[len(joined) - 1]}
        await write_message(stream, json.dumps(answer).encode())
        while True:
            said = json.loads(await read_message(stream, reader))
            if said["type"] == "heartbeat":
                await write_message(stream, json.dumps({"type": "heartbeat_ack", "seq": said["seq"]}).encode())

    async with open_host(
        identity=Identity.generate(),
        transports=[cluster.network.transport("old-router")],
        protocols=[pool_protocol(serve, Admission.ANYONE)],
        listen=[ANYWHERE],
    ) as host:
        led: Host = host
        cluster.host = led
        yield joined


async def test_an_agent_makes_one_connection_to_a_router_that_knows_no_pools(autojump_clock: MockClock) -> None:
    config = ConnectionsConfig(min=3, max=8)
    async with (
        open_cluster() as cluster,
        old_router(cluster, [{"accepted": True}] * 9) as joined,
        cluster.agent("i1", config) as agent,
    ):
        await trio.sleep(300)
        assert (len(joined), len(agent.controller.active)) == (1, 1)


async def test_a_mixed_fleet_is_not_flooded(autojump_clock: MockClock) -> None:
    answers: list[dict[str, object]] = [
        {"accepted": True, "connection_pool_supported": True, "max_connections_per_agent": 8},
        {"accepted": True},
        {"accepted": True, "connection_pool_supported": True},
    ]
    config = ConnectionsConfig(min=3, max=8)
    async with (
        open_cluster() as cluster,
        old_router(cluster, answers) as joined,
        cluster.agent("i1", config) as agent,
    ):
        await trio.sleep(300)
        assert (len(joined), len(agent.controller.active)) == (2, 2)
