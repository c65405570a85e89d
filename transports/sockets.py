"""What the transports over TCP share: addresses, connecting, listening, and an accept loop that nothing ends."""

import errno
import logging
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from socket import gaierror
from typing import NoReturn

import attrs
import trio
from multiaddr.utils import get_network_addrs

from agentmesh.errors import DialError
from agentmesh.transports.proxy import Proxy, ProxyRules
from agentmesh.transports.proxy_tunnel import no_tunnel, open_tunnel
from agentmesh.types import Address, ascii_name

logger = logging.getLogger(__name__)

# By kind of host, the source address that keeps Trio's happy eyeballs to one family.
SOURCES = {"ip4": None, "ip6": None, "dns": None, "dns4": "0.0.0.0", "dns6": "::"}
WILDCARDS = {"0.0.0.0": (4, "127.0.0.1"), "::": (6, "::1")}
UNSENT_BYTES = 64 * 1024  # that may wait in the kernel: more gains nothing, and delays whatever follows a bulk stream
EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
EXHAUSTED_PAUSE = 0.1  # seconds without accepting, when there is no file descriptor left
KEEPALIVE_INTERVAL = 15  # seconds between two probes of a connection that is silent …
KEEPALIVE_PROBES = 2  # … and as many without an answer break it

Parts = tuple[tuple[str, str | None], ...]


@attrs.frozen
class Endpoint:
    """The `/ip4|ip6|dns|dns4|dns6/<host>/tcp/<port>` that an address begins with."""

    kind: str
    host: str
    port: int

    @property
    def is_literal(self) -> bool:
        """Whether the host is an IP address: only those can be listened on."""
        return self.kind in ("ip4", "ip6")

    @property
    def in_ascii(self) -> "Endpoint":
        """The same with its name as DNS has it."""
        return self if self.is_literal else attrs.evolve(self, host=ascii_name(self.host))

    @property
    def authority(self) -> str:
        """`host:port` as in a URL, an IPv6 address in brackets."""
        return f"[{self.host}]:{self.port}" if self.kind == "ip6" else f"{self.host}:{self.port}"


def split_endpoint(address: Address) -> tuple[Endpoint, Parts] | None:
    """The endpoint and the parts behind it, but not /p2p/<peer>; None when the address begins otherwise."""
    parts = address.without_peer().parts
    match parts[:2]:
        case ((kind, str(host)), ("tcp", str(port))) if kind in SOURCES:
            return Endpoint(kind, host, int(port)), parts[2:]
        case _:
            return None


async def connect(endpoint: Endpoint, address: Address, proxies: ProxyRules) -> trio.abc.Stream:
    """A connection to the host, through its proxy if it has one.

    Args:
        endpoint: where to. Through a proxy a name is the proxy's to look up, be it /dns, /dns4 or /dns6.
        address: what to call it in an error.
        proxies: what is reached through which proxy.
    Raises:
        DialError: nobody answered, or there is no such host; ProxyError when that is the proxy's doing.
    Cancellation: safe; no socket is left.
    """
    endpoint = endpoint.in_ascii
    proxy = proxies.proxy_for(endpoint.host, endpoint.port)
    if proxy is not None:
        return await _connect_through(proxy, endpoint.authority)
    return await connect_directly(endpoint, address)


async def connect_directly(endpoint: Endpoint, address: Address) -> trio.SocketStream:
    """As `connect`, whatever proxy there is."""
    try:
        if endpoint.is_literal:
            return await _connect_literal(endpoint)
        return await _open_tcp(endpoint.in_ascii.host, endpoint.port, SOURCES[endpoint.kind])
    except OSError as exc:
        raise DialError(f"cannot connect to {address}: {_said(exc)}") from exc


def _said(exc: OSError) -> str:
    """Why, without where: that is said already."""
    if isinstance(exc, gaierror) or not exc.errno:
        return exc.strerror or str(exc)
    return os.strerror(exc.errno)


async def _connect_through(proxy: Proxy, target: str) -> trio.abc.Stream:
    try:
        stream = await _open_tcp(proxy.host, proxy.port)
    except OSError as exc:
        raise no_tunnel(proxy, target, exc, retryable=True) from exc
    return await open_tunnel(stream, proxy, target)


async def _connect_literal(endpoint: Endpoint) -> trio.SocketStream:
    """Where there is one IP address there is no race of several, nor tasks for it."""
    family = trio.socket.AF_INET6 if endpoint.kind == "ip6" else trio.socket.AF_INET
    socket = trio.socket.socket(family, trio.socket.SOCK_STREAM)
    try:
        await socket.connect((endpoint.host, endpoint.port))
    except BaseException:
        socket.close()
        raise
    stream = trio.SocketStream(socket)
    _tune(stream)
    return stream


async def _open_tcp(host: str, port: int, source: str | None = None) -> trio.SocketStream:
    """A connection to the first IP address of the host that answers, by happy eyeballs (RFC 8305)."""
    stream = await trio.open_tcp_stream(host, port, local_address=source)
    _tune(stream)
    return stream


async def listen_tcp(endpoint: Endpoint) -> trio.SocketListener:
    """Listen on a literal endpoint; port 0 takes a free one.

    Raises:
        OSError: the port is taken, or the IP address is not ours. Its text says which.
    """
    try:
        (listener,) = await trio.open_tcp_listeners(endpoint.port, host=endpoint.host)
    except OSError as exc:
        raise OSError(exc.errno, f"cannot listen on {endpoint.authority}: {exc.strerror}") from exc
    return listener


def bound_addresses(listener: trio.SocketListener, suffix: Parts) -> Sequence[Address]:
    """Where the listener is reached: its port as bound, a wildcard as the IP addresses that the machine now has."""
    host, port = listener.socket.getsockname()[:2]
    family, loopback = WILDCARDS.get(host, (0, ""))
    hosts = [*get_network_addrs(family), loopback] if family else [host]
    return tuple(_tcp_address(host, port, suffix) for host in hosts)


def source_address(stream: trio.SocketStream) -> Address | None:
    """Where an accepted connection comes from; None when it has ended already."""
    try:
        host, port = stream.socket.getpeername()[:2]
    except OSError:
        return None
    return _tcp_address(host, port, ())


async def accept_forever(listener: trio.SocketListener, start: Callable[[trio.SocketStream], None]) -> NoReturn:
    """Give every connection to `start`. Out of file descriptors, wait a moment and go on: the backlog keeps callers."""
    while True:
        try:
            stream = await listener.accept()
        except OSError as exc:
            if exc.errno not in EXHAUSTED:
                raise
            logger.warning("accepting pauses", extra={"reason": exc.strerror, "seconds": EXHAUSTED_PAUSE})
            await trio.sleep(EXHAUSTED_PAUSE)
        else:
            _tune(stream)
            start(stream)
            del stream  # else the last connection would be kept until the next one comes


def keep_alive(stream: trio.SocketStream) -> None:
    """Have the kernel notice a peer that is gone, and middle boxes remember a connection on which nothing is said."""
    with suppress(OSError):  # ended already
        stream.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_KEEPALIVE, 1)
        if sys.platform == "linux":
            # No TCP_USER_TIMEOUT: it would break a connection whose peer lives and does not read.
            for option, value in (
                (trio.socket.TCP_KEEPIDLE, KEEPALIVE_INTERVAL),
                (trio.socket.TCP_KEEPINTVL, KEEPALIVE_INTERVAL),
                (trio.socket.TCP_KEEPCNT, KEEPALIVE_PROBES),
            ):
                stream.setsockopt(trio.socket.IPPROTO_TCP, option, value)


def _tcp_address(host: str, port: int, suffix: Parts) -> Address:
    return Address((("ip6" if ":" in host else "ip4", host), ("tcp", str(port)), *suffix))


def _tune(stream: trio.SocketStream) -> None:
    """Trio has turned off Nagle's delay; its bound on unsent bytes, 16 KiB, costs a third of a fast path's rate."""
    if sys.platform != "win32":
        with suppress(OSError):  # ended already: whoever reads from it will see
            stream.setsockopt(trio.socket.IPPROTO_TCP, trio.socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
