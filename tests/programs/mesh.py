"""A mesh of processes: a control plane, routers and a provider; and a caller in this one."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import trio

from agentmesh.membership import Enrollment
from agentmesh.node import Node, NodeConfig, run_node
from agentmesh.runtime.config import HostConfig, SessionConfig
from agentmesh.runtime.nursery import open_background
from agentmesh.types import PeerId
from tests.programs.programs import PATIENCE, Machine, Running

OPEN_POLICY = Path(__file__).resolve().parents[2] / "examples" / "open-policy.yaml"
PING_INTERVAL = 0.5
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n"
TICK = b"tick\n"


@attrs.frozen
class Mesh:
    """A control plane, routers and a provider, each a process; a caller in this one."""

    control_plane: str
    routers: dict[PeerId, Running]
    provider: Running
    provider_peer: PeerId
    caller: Node

    @property
    def url(self) -> str:
        return f"http://{self.provider_peer.dns_label}.peer.mesh/http/ticks/"

    def relaying(self) -> PeerId:
        """The router that carries the circuit between the two."""
        session = self.caller.host.session(self.provider_peer)
        assert session is not None
        assert session.address is not None
        assert session.address.circuit is not None
        router = session.address.circuit[0].peer
        assert router is not None
        return router


async def tick(stream: trio.SocketStream) -> None:
    """An HTTP server of one answer, whose body never ends unless it is asked for /once."""
    with suppress(trio.BrokenResourceError):
        request = await stream.receive_some()
        await stream.send_all(HEAD + TICK)
        while b"/once " not in request:
            await trio.sleep(0.02)
            await stream.send_all(TICK)


async def create_token(machine: Machine, role: str) -> Path:
    """A file with a token."""
    arguments = ("--role", role, "--max-usages", "9", "--db-dsn", "control-plane.db")
    async with machine.running("token", "create", *arguments) as create:
        assert await create.ended() == 0, create.text
    return create.out


@asynccontextmanager
async def open_mesh(
    machine: Machine, *options: str, ttls: Sequence[str] = ("30s", "30s"), **settings: Any
) -> AsyncGenerator[Mesh]:
    """A mesh whose control plane is given these options besides.

    Args:
        ttls: of the last leases of its routers; as many routers as there are of them.
        settings: of the caller.
    """
    async with open_background() as nursery, AsyncExitStack() as stack:
        bind = ("--bind-address", "127.0.0.1:0", "--auto-approve-enrollment", "--policy-file", str(OPEN_POLICY))
        control_plane = await stack.enter_async_context(machine.running("control-plane", *bind, *options))
        url = (await control_plane.said(r" serving .*url=(\S+)"))[1]
        router_token, node_token = [await create_token(machine, role) for role in ("router", "node")]
        join = ("--control-plane", url, "--bootstrap-token-path")
        started = [
            await stack.enter_async_context(
                machine.running(
                    *("router", *join, str(router_token), "--data-dir", f"router-{number}"),
                    *("--listen", "/ip4/127.0.0.1/tcp/0", "--shutdown-lease-ttl", ttl),
                )
            )
            for number, ttl in enumerate(ttls)
        ]
        routers = {PeerId.parse((await one.said(r" serving peer=(\S+)"))[1]): one for one in started}

        (backend,) = await nursery.start(partial(trio.serve_tcp, tick, 0, host="127.0.0.1"))
        service = f"http/ticks=http://127.0.0.1:{backend.socket.getsockname()[1]}"
        provider = await stack.enter_async_context(
            machine.running("node", *join, str(node_token), "--service", service)
        )
        await provider.said(" attached ", times=2)
        peer = PeerId.parse((await provider.said(r" serving peer=(\S+)"))[1])

        config = NodeConfig(
            enrollment=Enrollment(control_plane=url, token=node_token.read_text().strip()),
            host=HostConfig(session=SessionConfig(ping_interval=PING_INTERVAL)),
            **settings,
        )
        caller = await stack.enter_async_context(run_node(config))
        with trio.fail_after(PATIENCE):
            while len(caller.routers) < 2:  # noqa: ASYNC110 - only looking tells
                await trio.sleep(0.05)
        yield Mesh(url, routers, provider, peer, caller)
    await machine.none_left()
