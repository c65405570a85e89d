"""What the mesh's policy says of agents: who may be one, and who may reach what through it. Real sockets."""

from functools import partial
from pathlib import Path

import pytest
import trio

from agentmesh.agent import AgentProcess, AgentProcessConfig, open_agent
from agentmesh.control_plane.policy.model import Policy
from agentmesh.errors import MeshError
from agentmesh.node import Node
from agentmesh.node.tunnels import TunnelError
from agentmesh.pool.agent.access import AccessPolicy
from agentmesh.pool.agent.config import AgentConfig
from agentmesh.protocols.pool import Code, Stage
from tests.node.loopback import Loopback, open_loopback
from tests.node.test_policy import policy_of

LOOPBACK = AccessPolicy.read([{"networks": ["127.0.0.0/8"]}])


def policy(port: int) -> Policy:
    """Any node may be the agent devbox, and reach one port through it; another below `localhost`."""
    narrowed = {
        "service": "egress://devbox",
        "methods": ["CONNECT"],
        "paths": [f"/tcp/127.0.0.1/{port}", "/tcp/localhost/*"],
    }
    return policy_of(
        {"name": "mesh:role:node", "allowed_labels": ["agent=devbox"]},
        {"name": "operator", "allowed_services": ["egress://devbox"], "http": [narrowed]},
    )


async def echo(stream: trio.SocketStream) -> None:
    async for data in stream:
        await stream.send_all(data)


async def agent_config(mesh: Loopback, agent_id: str, state_dir: Path) -> AgentProcessConfig:
    return AgentProcessConfig(
        enrollment=await mesh.enrollment(), agent=AgentConfig(id=agent_id), state_dir=state_dir, access=LOOPBACK
    )


async def wait_ready(agent: AgentProcess) -> None:
    with trio.fail_after(20):
        while not agent.is_ready:  # noqa: ASYNC110 - seen from outside
            await trio.sleep(0.02)


async def refused(node: Node, agent: str, target: str) -> tuple[Stage, Code]:
    with pytest.raises(TunnelError) as caught:
        await node.open_tunnel(agent, target)
    return caught.value.result.stage, caught.value.result.code


async def test_a_role_grants_targets_through_an_agent(tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, echo, 0, host="127.0.0.1"))
        port = listener.socket.getsockname()[1]
        async with (
            open_loopback(tmp_path, "router", policy=policy(port)) as mesh,
            open_agent(await agent_config(mesh, "devbox", tmp_path / "agent")) as agent,
            await mesh.node() as node,
        ):
            await wait_ready(agent)
            for name, host in (("devbox", "127.0.0.1"), ("DevBox", "localhost")):
                async with await node.open_tunnel(name, f"tcp://{host}:{port}") as tunnel:
                    await tunnel.send_all(b"hello")
                    assert await tunnel.receive_some() == b"hello"
            forbidden = Stage.AUTHORIZATION, Code.FORBIDDEN
            assert await refused(node, "devbox", f"tcp://127.0.0.1:{port + 1}") == forbidden
            assert await refused(node, "devbox", f"tcp://127.0.0.2:{port}") == forbidden
            assert await refused(node, "other", f"tcp://127.0.0.1:{port}") == forbidden
        nursery.cancel_scope.cancel()


async def test_a_member_is_no_agent_that_the_policy_does_not_let_it_be(tmp_path: Path) -> None:
    async with open_loopback(tmp_path, "router", policy=policy(1)) as mesh:
        config = await agent_config(mesh, "other", tmp_path / "agent")
        with pytest.raises(MeshError, match="agent"):
            async with open_agent(config):
                raise AssertionError("unreachable")
