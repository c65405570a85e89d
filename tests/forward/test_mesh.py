"""A forwarder, a node, whole routers and processes of an agent over a simulated network, in virtual time."""

from functools import partial
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, lockstep_stream_pair

from agentmesh.agent import AgentProcess
from agentmesh.errors import NotConnectedError
from agentmesh.forward import Forwarder, Outcome
from agentmesh.node import Node, TunnelError, TunnelTarget
from agentmesh.pool.agent.config import ConnectionsConfig
from agentmesh.protocols.pool import Code
from agentmesh.router import Router
from agentmesh.router.departures import GRACE, TUNNEL_GRACE
from tests.agent.fleet import AGENT, AgentFleet, open_agent_fleet, spread, wait_until
from tests.forward.worlds import HalfCloseable, read_all, read_exactly
from tests.pool.worlds import BREAKING, ECHO, REFUSED, say

MIB = 1024 * 1024


async def start(fleet: AgentFleet, *names: str) -> tuple[Node, list[Router], AgentProcess]:
    """Routers, a process of the agent with a connection to each, and a node that holds two of them, if there are so
    many.
    """
    routers, held = [await fleet.router(name) for name in names], min(len(names), 2)
    process = await fleet.process(connections=ConnectionsConfig(min=len(names), max=len(names)))
    node = await fleet.node("client", routers=held)
    await wait_until(lambda: spread(*routers) == [1] * len(names) and len(node.routers) == held)
    return node, routers, process


def connect(nursery: trio.Nursery, node: Node, host: str, forwarders: list[Forwarder]) -> HalfCloseable:
    """A client's end of a connection that leads to a host."""
    forwarder = Forwarder(partial(node.open_tunnel, AGENT))
    forwarders.append(forwarder)
    client, accepted = lockstep_stream_pair()
    nursery.start_soon(forwarder.serve, forwarder.lead_to(TunnelTarget(host, 22)), accepted)
    return client


async def test_a_whole_conversation(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_agent_fleet(tmp_path) as fleet:
        node, _, _ = await start(fleet, "one")
        forwarders = list[Forwarder]()
        async with trio.open_nursery() as nursery:
            client = connect(nursery, node, ECHO, forwarders)
            body = bytes(range(256)) * (MIB // 256)
            nursery.start_soon(client.send_all, body)
            assert await read_exactly(client, MIB) == body
            nursery.start_soon(client.send_eof)
            assert await client.receive_some() == b""
        statistics = forwarders[0].statistics()
        assert (statistics.bytes_forth, statistics.bytes_back) == (MIB, MIB)
        assert statistics.ended[Outcome.WHOLE] == 1
        await wait_until(lambda: fleet.targets.open == 0)
        assert fleet.targets.cut == 0


async def test_a_client_that_is_cut_cuts_the_target(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_agent_fleet(tmp_path) as fleet:
        node, _, _ = await start(fleet, "one")
        async with await node.open_tunnel(AGENT, f"tcp://{ECHO}:22") as tunnel:
            assert await say(tunnel) == b"hello"
            tunnel.reset()
        await wait_until(lambda: fleet.targets.open == 0)


async def test_a_target_that_breaks_cuts_the_tunnel_and_the_client(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_agent_fleet(tmp_path) as fleet:
        node, _, _ = await start(fleet, "one")
        async with await node.open_tunnel(AGENT, f"tcp://{BREAKING}:22") as tunnel:
            with pytest.raises(trio.BrokenResourceError):
                await read_all(tunnel)
        forwarders = list[Forwarder]()
        async with trio.open_nursery() as nursery:
            client = connect(nursery, node, BREAKING, forwarders)
            await read_all(client)
        assert forwarders[0].statistics().ended[Outcome.CUT] == 1


async def test_what_the_target_does_not_take_is_told(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_agent_fleet(tmp_path) as fleet:
        node, _, process = await start(fleet, "one")
        for agent, host, code in ((AGENT, REFUSED, Code.CONNECTION_REFUSED), ("other", ECHO, Code.AGENT_OFFLINE)):
            with pytest.raises(TunnelError) as caught:
                await node.open_tunnel(agent, f"tcp://{host}:22")
            assert caught.value.result.code is code
        assert process.is_ready


async def test_a_router_that_leaves_is_followed_by_the_other_and_what_is_open_has_a_moment(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_agent_fleet(tmp_path) as fleet:
        names = ("one", "two", "three")
        node, routers, _ = await start(fleet, *names)
        left = node.routers[0]  # that is asked first
        name = names[[router.peer for router in routers].index(left)]
        tunnel, began = await node.open_tunnel(AGENT, f"tcp://{ECHO}:22"), trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fleet.stop, name)
            await wait_until(lambda: left not in node.routers and len(node.routers) == 2, GRACE)
            async with await node.open_tunnel(AGENT, f"tcp://{ECHO}:22") as other:
                assert await say(other) == b"hello"
            await trio.sleep(2 * GRACE)
            assert await say(tunnel) == b"hello"
            with pytest.raises(trio.BrokenResourceError):
                await read_all(tunnel)
            assert GRACE < trio.current_time() - began < TUNNEL_GRACE + 2


async def test_a_node_that_has_lost_its_routers(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_agent_fleet(tmp_path) as fleet:
        node, _, _ = await start(fleet, "one")
        await fleet.stop("one")
        await wait_until(lambda: not node.routers)
        with pytest.raises(NotConnectedError):
            await node.open_tunnel(AGENT, f"tcp://{ECHO}:22")
