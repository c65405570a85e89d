"""Routers that know each other and members that hold them, over memory and in virtual time."""

from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import attrs
import trio
from trio.testing import wait_all_tasks_blocked

from agentmesh.abc import Admission
from agentmesh.errors import DialError
from agentmesh.protocols.directory import (
    DIRECTORY_ID,
    Announcement,
    Answer,
    Directory,
    DirectoryClient,
    DirectoryConfig,
    Operation,
    Result,
    service_key,
)
from agentmesh.runtime.host import Host
from agentmesh.testing import MemoryNetwork
from agentmesh.types import Address, PeerId
from tests.runtime.hosts import admit, open_named

SERVICE = service_key("mcp", "files")
HERE = Address.parse("/memory/77")


@attrs.define
class Federation:
    """The routers that a test lists; those that were joined are there."""

    listed: list[Host] = attrs.Factory(list[Host])
    news: list[Host] = attrs.Factory(list[Host])
    reads: int = 0
    host: Host | None = None
    hangs: bool = False

    @property
    def routers(self) -> Collection[PeerId]:
        others = [host.peer for host in self.listed if host is not self.host]
        return [peer for peer in others if self.host is not None and self.host.session(peer) is not None]

    async def reach_all(self) -> None:
        if self.hangs:
            await trio.sleep_forever()
        await trio.lowlevel.checkpoint()
        assert self.host is not None
        for other in self.listed:
            if other is not self.host and self.host.session(other.peer) is None:
                await join(self.host, other)

    async def refresh(self) -> bool:
        """The list that is read is longer by what is news."""
        self.reads += 1
        self.listed += self.news
        self.news = []
        await self.reach_all()
        return True


async def join(one: Host, other: Host) -> None:
    """Two routers hold a session, and have admitted each other."""
    admit(one, other.peer, Admission.ROUTER)
    admit(other, one.peer, Admission.ROUTER)
    with trio.move_on_after(1):
        try:
            await one.connect(other.peer, other.addresses)
        except DialError:
            return
        await wait_all_tasks_blocked()


@attrs.frozen
class Router:
    """One router, its name on the network and its directory."""

    name: str
    host: Host
    directory: Directory
    federation: Federation

    def results(self) -> dict[str, int]:
        """What it was asked and how that went, as "operation result"."""
        requests = self.directory.statistics().requests
        return {f"{operation} {result}": count for (operation, result), count in requests.items() if count}


@attrs.frozen
class Member:
    """One member, and its client of the routers that it holds."""

    host: Host
    client: DirectoryClient

    @property
    def address(self) -> Address:
        return HERE.with_peer(self.host.peer)

    async def announce(self, key: bytes = SERVICE, *, sequence: int = 1, ttl: float = 900.0) -> Answer:
        return await self.client.provide(Announcement(key, (self.address,), sequence, ttl))

    async def find(self, key: bytes = SERVICE, limit: int = 20) -> set[PeerId]:
        return {one.peer for one in await self.client.find_providers(key, limit)}


@attrs.define
class Net:
    """The hosts of one test."""

    stack: AsyncExitStack
    network: MemoryNetwork = attrs.Factory(MemoryNetwork)
    routers: list[Router] = attrs.Factory(list[Router])
    members: int = 0

    async def add_router(
        self,
        config: DirectoryConfig | None = None,
        *,
        reach: Callable[[PeerId], Sequence[Address]] = lambda peer: (),
        replication: int = 2,
    ) -> Router:
        """One more router; nobody has heard of it."""
        federation, name = Federation(), f"router-{len(self.routers)}"
        directory = Directory(config, federation=federation, replication=lambda: replication, reach=reach)
        host = await self.stack.enter_async_context(open_named(self.network, name, [directory.protocol()]))
        federation.host = host
        await wait_all_tasks_blocked()
        self.routers.append(router := Router(name, host, directory, federation))
        return router

    def list_all(self) -> None:
        """Every router is in everybody's list."""
        for router in self.routers:
            router.federation.listed = [one.host for one in self.routers]

    async def add_member(self, *routers: Router, level: Admission = Admission.MEMBER) -> Member:
        """A member that holds these routers."""
        name, self.members = f"member-{self.members}", self.members + 1
        host = await self.stack.enter_async_context(open_named(self.network, name, [], listen=[]))
        for router in routers:
            await host.connect(router.host.peer, router.host.addresses)
            await wait_all_tasks_blocked()
            admit(router.host, host.peer, level)
        peers = [router.host.peer for router in routers]
        return Member(host, DirectoryClient(host.open_stream, lambda: peers))

    async def join_as(self, member: Member, router: Router) -> DirectoryClient:
        """The member's client of one more router, which it holds from now on."""
        await member.host.connect(router.host.peer, router.host.addresses)
        await wait_all_tasks_blocked()
        admit(router.host, member.host.peer, Admission.MEMBER)
        return DirectoryClient(member.host.open_stream, lambda: [router.host.peer])


@asynccontextmanager
async def open_net(routers: int = 0, *, replication: int = 2) -> AsyncGenerator[Net]:
    async with AsyncExitStack() as stack:
        net = Net(stack)
        for _ in range(routers):
            await net.add_router(replication=replication)
        net.list_all()
        yield net


async def send_raw(member: Member, router: Router, data: bytes) -> bytes:
    """What a router answers to bytes that nobody's client sends."""
    async with await member.host.open_stream(router.host.peer, DIRECTORY_ID) as stream:
        await stream.send_all(data)
        return b"".join([bytes(piece) async for piece in stream])


def count(member: Member, operation: Operation, result: Result) -> int:
    return member.client.figures.requests[operation, result]
