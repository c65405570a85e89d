"""An agent's process with a real control plane, a real router and real sockets."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import attrs
import pytest
import trio

from agentmesh.agent import AgentProcessConfig, open_agent, rule_of
from agentmesh.control_plane.policy.model import Policy
from agentmesh.errors import CredentialError
from agentmesh.membership import Enrollment
from agentmesh.pool.agent.access import AccessPolicy
from agentmesh.pool.agent.config import AgentConfig, ConnectionsConfig
from agentmesh.protocols.pool import Code, Open, OpenResult
from agentmesh.router import Router
from agentmesh.runtime.nursery import open_background
from agentmesh.types import PeerId
from tests.agent.fleet import AGENT, ids_at, wait_until
from tests.node.loopback import Loopback, open_loopback
from tests.pool.worlds import say


async def echo(stream: trio.SocketStream) -> None:
    with suppress(trio.BrokenResourceError):
        async for data in stream:
            await stream.send_all(data)


@asynccontextmanager
async def open_target() -> AsyncGenerator[int]:
    """A port that says everything again."""
    async with open_background() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, echo, 0, host="127.0.0.1"))
        yield listener.socket.getsockname()[1]


async def config_of(mesh: Loopback, server_url: str) -> AgentProcessConfig:
    return AgentProcessConfig(
        enrollment=await mesh.enrollment(),
        agent=AgentConfig(id=AGENT, server_url=server_url),
        state_dir=mesh.folder / "agent",
        access=AccessPolicy((rule_of("tcp://127.0.0.1"),)),
    )


def url_of(router: Router, kind: str) -> str:
    """Of one of the ports that it listens on."""
    ports = {one.names[2]: one.value("tcp") for one in router.addresses}
    port = ports["ws" if kind == "ws" else "p2p"]
    return f"ws://127.0.0.1:{port}/ws/agent/v1" if kind == "ws" else f"tcp://127.0.0.1:{port}"


async def reach(router: Router, port: int) -> None:
    stream = await router.agents.service.opener.open(AGENT, Open("", "tcp", "127.0.0.1", port))
    assert not isinstance(stream, OpenResult), stream
    async with stream:
        assert await say(stream) == b"hello"


async def test_it_comes_back_as_who_it_was_by_whatever_way_and_needs_no_token_again(tmp_path: Path) -> None:
    async with open_loopback(tmp_path, "router") as mesh, open_target() as port:
        router, _ = mesh.scopes["router"]
        config = await config_of(mesh, url_of(router, "tcp"))
        first = await run_once(config, router, port)
        without_token = attrs.evolve(config, enrollment=Enrollment(control_plane=mesh.control_plane.url))
        for url in (url_of(router, "ws"), ""):
            agent = attrs.evolve(config.agent, server_url=url)
            assert await run_once(attrs.evolve(without_token, agent=agent), router, port) == first


async def run_once(config: AgentProcessConfig, router: Router, port: int) -> tuple[PeerId, str]:
    """Have it up, and cut it off. Returns who it was."""
    found: list[tuple[PeerId, str]] = []
    with trio.CancelScope() as scope:
        async with open_agent(config) as agent:
            await wait_until(lambda: bool(ids_at(router)), within=30)
            await reach(router, port)
            forbidden = await router.agents.service.opener.open(AGENT, Open("", "tcp", "127.0.0.2", port))
            assert isinstance(forbidden, OpenResult)
            assert forbidden.code is Code.FORBIDDEN
            found.append((agent.peer, agent.pool.settings.instance.instance_id))
            scope.cancel()
    await wait_until(lambda: not ids_at(router), within=30)
    return found[0]


async def test_a_policy_that_does_not_allow_the_label_says_what_to_do(tmp_path: Path) -> None:
    async with open_loopback(tmp_path, policy=Policy()) as mesh:
        config = await config_of(mesh, "tcp://127.0.0.1:9")
        with pytest.raises(CredentialError) as caught:
            async with open_agent(config):
                pass
    text = str(caught.value)
    assert "the policy does not allow the label agent=devbox" in text
    assert 'add "agent=*" to allowed_labels of the role mesh:role:node' in text


async def test_a_router_that_is_banned_is_left_as_soon_as_it_is_said(tmp_path: Path) -> None:
    async with open_loopback(tmp_path, "r1", "r2") as mesh:
        banned, other = (router for router, _ in mesh.scopes.values())
        config = await config_of(mesh, "")
        config = attrs.evolve(config, agent=attrs.evolve(config.agent, connections=ConnectionsConfig(min=2, max=2)))
        async with open_agent(config) as agent:
            await wait_until(lambda: bool(ids_at(banned)) and bool(ids_at(other)), within=30)
            # To each other, to the control plane and to the agent; nobody hears what was said before.
            await wait_until(lambda: all(one.floodsub.statistics().links == 3 for one in (banned, other)), within=30)
            await mesh.control_plane.herald.ban(banned.peer)
            await wait_until(lambda: agent.host.session(banned.peer) is None, within=10)
            assert banned.peer in agent.membership.bans
            await wait_until(lambda: len(ids_at(other)) == 2, within=60)
