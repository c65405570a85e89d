"""A simulated network whose hosts have IP addresses, some of them behind a NAT."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import attrs
import trio

from agentmesh.abc import ByteStream, Listener, StreamHandler, Transport
from agentmesh.errors import DialError
from agentmesh.testing import MemoryNetwork
from agentmesh.types import Address

EVERYWHERE = Address.parse("/ip4/0.0.0.0/tcp/0")
UNANSWERED = 60.0  # seconds for which a NAT leaves a dial without an answer


def ip_address(ip: str, port: int | str) -> Address:
    return Address.parse(f"/ip4/{ip}/tcp/{port}")


@attrs.frozen
class Internet:
    """IP addresses for the hosts of a network. A number that is listened on there is a port of its host's here.

    Attributes:
        network: what carries the bytes.
        hidden: hosts that nobody can dial: what comes for them is dropped, as a NAT does it.
        dials: who dialled which address, in order.
    """

    network: MemoryNetwork
    hidden: set[str] = attrs.Factory(set[str])
    dials: list[tuple[str, str]] = attrs.Factory(list[tuple[str, str]])

    def transport(self, host: str) -> Transport:
        """How a host dials `/ip4/<ip>/tcp/<port>`, and listens on `/ip4/0.0.0.0/tcp/0`."""
        return _IpTransport(self, host)

    def is_hidden(self, ip: str) -> bool:
        return any(self.network.ip(host) == ip for host in self.hidden)


@attrs.frozen
class _IpTransport(Transport):
    internet: Internet
    host: str

    def can_dial(self, address: Address) -> bool:
        return address.without_peer().names == ("ip4", "tcp")

    def can_listen(self, address: Address) -> bool:
        return self.can_dial(address)

    @asynccontextmanager
    async def dial(self, address: Address) -> AsyncGenerator[ByteStream]:
        self.internet.dials.append((self.host, str(address.without_peer())))
        if self.internet.is_hidden(address.value("ip4") or ""):
            await trio.sleep(UNANSWERED)
            raise DialError("no answer")
        number = Address.parse(f"/memory/{address.value('tcp')}")
        async with self.internet.network.transport(self.host).dial(number) as stream:
            yield stream

    @asynccontextmanager
    async def listen(self, address: Address) -> AsyncGenerator[Listener]:
        number = Address.parse(f"/memory/{address.value('tcp')}")
        async with self.internet.network.transport(self.host).listen(number) as listener:
            yield _IpListener(listener, address.value("ip4") or "")


@attrs.frozen
class _IpListener(Listener):
    listener: Listener
    ip: str

    @property
    def addresses(self) -> Sequence[Address]:
        return [ip_address(self.ip, address.value("memory") or "") for address in self.listener.addresses]

    async def serve(self, handler: StreamHandler) -> None:
        await self.listener.serve(handler)
