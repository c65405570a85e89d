"""Addresses that DNS says: `/dnsaddr/<host>[/p2p/<peer>]` is whatever the TXT records of `_dnsaddr.<host>` name, each
`dnsaddr=<address>` (libp2p specification "addressing"). Only to be dialled.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NoReturn

from agentmesh.abc import ByteStream, Transport
from agentmesh.errors import AddressError, DialError
from agentmesh.transports.resolver import Server, find_texts, servers_from_environment
from agentmesh.types import Address, ascii_name

PREFIX = "dnsaddr="
MAX_ADDRESSES = 16  # that one is looked up to
MAX_DEPTH = 4  # of records that name `/dnsaddr` again


class DnsaddrTransport(Transport):
    """Looks addresses up, and dials the first one that answers by other transports.

    Records that name another peer than the address does are passed over, as are those where TLS comes first in an
    address (`/tcp/443/tls`): what is sent there depends on the address that was dialled.

    Args:
        transports: what dials.
        servers: the DNS servers to ask; those of the environment, or the system, when it is None.
    Raises:
        AddressError: the environment names a server that is none.
    """

    def __init__(self, transports: Sequence[Transport], servers: Callable[[], Sequence[Server]] | None = None) -> None:
        self._transports = tuple(transports)
        self._servers = servers_from_environment() if servers is None else servers

    def can_dial(self, address: Address) -> bool:
        return _host_in(address) is not None

    def can_listen(self, address: Address) -> bool:
        return False

    @asynccontextmanager
    async def dial(self, address: Address) -> AsyncGenerator[ByteStream]:
        if not self.can_dial(address):
            raise AddressError(f"not an address that DNS would say: {address}")
        resolved = await self.resolve(address)
        if not resolved:
            raise DialError(f"{address}: DNS names no address that can be dialled from here")
        async with AsyncExitStack() as stack:
            yield await self._first(stack, address, resolved)

    def listen(self, address: Address) -> NoReturn:
        raise AddressError(f"nothing listens where DNS says: {address}")

    async def resolve(self, address: Address) -> Sequence[Address]:
        """What can be dialled for an address, in the order of its records.

        Raises:
            DialError: no server answered.
        """
        found, names = dict[Address, None](), [address]
        for _ in range(MAX_DEPTH):
            texts = [text for name in names for text in await self._texts(name)]
            said = [one for text in texts if (one := _address_in(text)) and _is_of(one, address)]
            found |= dict.fromkeys(one for one in said if self._dialer(one) is not None)
            names = [one for one in said if _host_in(one) is not None][:MAX_ADDRESSES]
            if not names:
                break
        return list(found)[:MAX_ADDRESSES]

    async def _texts(self, address: Address) -> Sequence[str]:
        host = _host_in(address)
        assert host is not None
        try:
            name = f"_dnsaddr.{ascii_name(host)}"
        except UnicodeError as exc:
            raise DialError(f"{address}: no name that DNS can hold") from exc
        return await find_texts(name, self._servers())

    async def _first(self, stack: AsyncExitStack, address: Address, resolved: Sequence[Address]) -> ByteStream:
        failures: list[Exception] = []
        for one in resolved:
            transport = self._dialer(one)
            assert transport is not None
            try:
                return await stack.enter_async_context(transport.dial(one))
            except DialError as exc:
                failures.append(exc)
        reasons = "; ".join(map(str, failures))
        raise DialError(f"{address}: {reasons}") from ExceptionGroup("the addresses that DNS names", failures)

    def _dialer(self, address: Address) -> Transport | None:
        if address.tls_name is not None:
            return None
        return next((transport for transport in self._transports if transport.can_dial(address)), None)


def _host_in(address: Address) -> str | None:
    match address.without_peer().parts:
        case (("dnsaddr", str(host)),):
            return host
        case _:
            return None


def _address_in(text: str) -> Address | None:
    try:
        return Address.parse(text.removeprefix(PREFIX)) if text.startswith(PREFIX) else None
    except AddressError:
        return None


def _is_of(found: Address, asked: Address) -> bool:
    """Whether a record is about the peer that was asked for."""
    return asked.peer is None or found.peer is None or found.peer == asked.peer
