"""The agent's side of an open: from what was asked for to a connection, by way of the rules."""

import errno
import ipaddress
import logging
import socket
import struct
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

import attrs
import trio

from agentmesh.pool.agent.access import AccessPolicy, IPAddress, TargetError, host_of
from agentmesh.protocols.pool import Code, Open, OpenResult, Stage

logger = logging.getLogger(__name__)

RESOLVE_TIMEOUT = 2.0  # seconds
CONNECT_TIMEOUT = 5.0  # seconds, over all addresses; with the former less than a router waits for the result
FIRST_TRIES = 2  # an address has so much of the time before the next is tried: a half

Resolve = Callable[[str], Awaitable[Sequence[IPAddress]]]
DialAddress = Callable[[IPAddress, int], Awaitable[trio.abc.HalfCloseableStream]]

_FORBIDDEN = OpenResult(Stage.POLICY, Code.FORBIDDEN)
_CODES = {
    errno.ECONNREFUSED: Code.CONNECTION_REFUSED,
    errno.ENETUNREACH: Code.NETWORK_UNREACHABLE,
    errno.EHOSTUNREACH: Code.HOST_UNREACHABLE,
    errno.EHOSTDOWN: Code.HOST_UNREACHABLE,
    errno.ETIMEDOUT: Code.TIMEOUT,
}


async def resolve_name(name: str) -> Sequence[IPAddress]:
    """The addresses of a name, as this machine sees them. Raises OSError."""
    found = await trio.socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    addresses = [ipaddress.ip_address(str(address[0]).partition("%")[0]) for *_, address in found]
    return list(dict.fromkeys(addresses))


async def dial_address(address: IPAddress, port: int) -> trio.abc.HalfCloseableStream:
    """Connect to an address, and to nothing that it could be resolved to. Raises OSError."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    connection = trio.socket.socket(family, socket.SOCK_STREAM)
    try:
        await connection.connect((str(address), port))
    except BaseException:
        connection.close()
        raise
    return trio.SocketStream(connection)


async def cut(stream: trio.abc.HalfCloseableStream) -> None:
    """Close a connection so that its other end does not take what it got for everything: with a reset, where it is TCP.

    Cancellation: it is closed.
    """
    if isinstance(stream, trio.SocketStream):
        with suppress(OSError):
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    await trio.aclose_forcefully(stream)


@attrs.frozen
class Connector:
    """Connects to targets that the rules allow.

    Args:
        policy: the rules.
        resolve: the addresses of a name.
        dial: a connection to one of them.
        protocols: of opens that a connection to a port serves.
    """

    policy: AccessPolicy
    resolve: Resolve = resolve_name
    dial: DialAddress = dial_address
    protocols: frozenset[str] = frozenset({"tcp", "http", "https"})

    async def connect(self, request: Open) -> trio.abc.HalfCloseableStream | OpenResult:
        """Connect to the target of an open.

        Returns:
            The connection, the caller's to close; or what to answer instead. Nothing is raised for the target.
        Cancellation: safe; no connection is left.
        """
        if request.protocol not in self.protocols:
            return OpenResult(Stage.PROTOCOL, Code.UNSUPPORTED_CAPABILITY)
        try:
            if not self.policy.may_ask(request):
                return _forbid(request, ())
            addresses = await self._addresses(host_of(request.target_host))
            if isinstance(addresses, OpenResult):
                return addresses
            permitted = self.policy.permitted(request, addresses)
        except TargetError:
            return _forbid(request, ())
        if not permitted:
            return _forbid(request, addresses)
        return await self._connect(permitted, request.target_port)

    async def _addresses(self, host: str | IPAddress) -> Sequence[IPAddress] | OpenResult:
        if not isinstance(host, str):
            return [host]
        try:
            with trio.fail_after(RESOLVE_TIMEOUT):
                addresses = await self.resolve(host)
        except (OSError, UnicodeError):
            return OpenResult(Stage.DNS, Code.HOST_UNREACHABLE)
        except trio.TooSlowError:
            return OpenResult(Stage.DNS, Code.TIMEOUT, retryable=True)
        return addresses or OpenResult(Stage.DNS, Code.HOST_UNREACHABLE)

    async def _connect(self, addresses: Sequence[IPAddress], port: int) -> trio.abc.HalfCloseableStream | OpenResult:
        """The first address that answers; each has half of the time that is left, the last one all of it."""
        give_up_at = trio.current_time() + CONNECT_TIMEOUT
        result = OpenResult(Stage.CONNECT, Code.TIMEOUT)
        for left in range(len(addresses), 0, -1):
            address = addresses[len(addresses) - left]
            share = (give_up_at - trio.current_time()) / (FIRST_TRIES if left > 1 else 1)
            try:
                with trio.fail_after(max(share, 0.0)):
                    return await self.dial(address, port)
            except OSError as exc:
                result = OpenResult(Stage.CONNECT, _CODES.get(exc.errno or 0, Code.INTERNAL_ERROR))
            except trio.TooSlowError:
                result = OpenResult(Stage.CONNECT, Code.TIMEOUT)
        return result


def _forbid(request: Open, addresses: Sequence[IPAddress]) -> OpenResult:
    """What the rules forbid is said to the agent's own log; a client hears that it is, and not what is there."""
    logger.info(
        "target forbidden",
        extra={"host": request.target_host, "port": request.target_port, "addresses": [str(one) for one in addresses]},
    )
    return _FORBIDDEN
