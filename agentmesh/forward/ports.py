"""What a program listens on for others on this machine: each port with what its connections get."""

import logging
import socket
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import attrs
import trio

from agentmesh.forward.config import BindAddress, ForwardConfig
from agentmesh.forward.credentials import Credentials
from agentmesh.forward.forwarder import Forwarder, OpenTunnel, Port, Way
from agentmesh.forward.http_connect import ConnectServer
from agentmesh.forward.socks import SocksServer
from agentmesh.runtime.nursery import open_background

logger = logging.getLogger(__name__)

PROBE_INTERVAL = 60  # seconds that a client says nothing before it is asked whether it is there; then each time again


@attrs.frozen
class Listening:
    """A port that is listened on.

    Attributes:
        kind: "forward", "socks" or "http_proxy".
        listen: where.
        target: where its connections lead; "" when their clients say so.
    """

    kind: str
    listen: BindAddress
    target: str = ""


@attrs.frozen
class Forwards:
    """What `serve_forwards` yields.

    Attributes:
        listening: every port.
        forwarder: carries their connections.
    """

    listening: tuple[Listening, ...]
    forwarder: Forwarder


@asynccontextmanager
async def serve_forwards(open_tunnel: OpenTunnel, config: ForwardConfig) -> AsyncGenerator[Forwards]:
    """Listen where the settings say, for as long as the block lasts; then connections get a few seconds to end.

    Args:
        open_tunnel: a stream to a target; raises DialError when there is none.
        config: its `node` and `agent` are not looked at.
    Raises:
        OSError: a port is taken or not ours, or the file with the password cannot be read.
        StateError: others may read that file, or it holds none.
    Cancellation: ends it at once; connections are cut.
    """
    credentials = None if config.password_path is None else Credentials.load(config.password_path)
    forwarder, ended = Forwarder(open_tunnel, config.max_connections), trio.Event()
    async with AsyncExitStack() as stack:
        ports, listening = list[Port](), list[Listening]()
        for wanted, way in _wanted(config, forwarder, credentials):
            for listener in await _listen(wanted.listen):
                await stack.enter_async_context(listener)
                ports.append((listener, way))
                listening.append(attrs.evolve(wanted, listen=BindAddress(*listener.socket.getsockname()[:2])))
        background = await stack.enter_async_context(open_background())
        background.start_soon(_run, forwarder, ports, ended)
        for one in listening:
            logger.info("listening", extra={"kind": one.kind, "address": str(one.listen), "target": one.target})
        yield Forwards(tuple(listening), forwarder)
        forwarder.stop()
        await ended.wait()


async def _run(forwarder: Forwarder, ports: Sequence[Port], ended: trio.Event) -> None:
    await forwarder.run(ports)
    ended.set()


def _wanted(
    config: ForwardConfig, forwarder: Forwarder, credentials: Credentials | None
) -> Iterator[tuple[Listening, Way]]:
    for forward in config.forwards:
        yield Listening("forward", forward.listen, str(forward.target)), forwarder.lead_to(forward.target)
    if config.socks is not None:
        yield Listening("socks", config.socks), forwarder.ask(partial(SocksServer, credentials))
    if config.http_proxy is not None:
        yield Listening("http_proxy", config.http_proxy), forwarder.ask(partial(ConnectServer, credentials))


async def _listen(address: BindAddress) -> Sequence[trio.SocketListener]:
    """Listeners on every IP address of the host; their connections notice a client that is gone without a word.

    Raises:
        OSError: the port is taken, or not ours.
    """
    try:
        listeners = await trio.open_tcp_listeners(address.port, host=address.host)
    except OSError as exc:
        raise OSError(exc.errno, f"cannot listen on {address}: {exc.strerror}") from exc
    for listener in listeners:
        listener.socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in ((socket.TCP_KEEPIDLE, PROBE_INTERVAL), (socket.TCP_KEEPINTVL, PROBE_INTERVAL)):
            listener.socket.setsockopt(socket.IPPROTO_TCP, option, value)
    return listeners
