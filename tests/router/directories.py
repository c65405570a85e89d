"""Directories of real routers in one world, and what was said to them: what a property test may expect to be found."""

import math
from collections.abc import Collection, Mapping, Sequence
from contextlib import AsyncExitStack

import attrs
import trio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from agentmesh.errors import DialError, RejectedError, StreamResetError
from agentmesh.identity import Identity
from agentmesh.protocols.directory import (
    Announcement,
    FindProviders,
    Found,
    Provide,
    Status,
    ask,
    service_key,
)
from agentmesh.protocols.directory.events import Request
from agentmesh.protocols.directory.lookup import LOOKUP_TIMEOUT
from agentmesh.protocols.directory.placement import closest
from agentmesh.router import Router
from agentmesh.runtime.host import Host
from agentmesh.types import Address, PeerId
from tests.node.fleet import Fleet
from tests.runtime.hosts import admit, open_named

MAX_ROUTERS = 5
KEYS = tuple(service_key("mcp", str(number)) for number in range(3))
QUIET = 120.0  # seconds after which everybody knows everybody again
SETTLING = 5.0  # seconds for records to move when routers that hear each other come or go
MAX_TTL = 900.0  # seconds
EXACT = 0.01  # seconds by which clocks that are the same may differ

Name = tuple[PeerId, bytes]  # whose record, and its key


def identity_of(number: int) -> Identity:
    """The same in each run: where a record belongs depends on it."""
    return Identity(Ed25519PrivateKey.from_private_bytes(number.to_bytes(32, "big")))


@attrs.frozen
class Said:
    """One announcement, as it was made."""

    sequence: int
    addresses: tuple[Address, ...]
    expires_at: float
    told: PeerId
    is_withdrawn: bool = False

    @property
    def is_good(self) -> bool:
        return trio.current_time() < self.expires_at


@attrs.define
class World:
    """Routers that come and go, members that each hold all of them, and a memory of all that was announced."""

    fleet: Fleet
    stack: AsyncExitStack
    routers: dict[str, Router] = attrs.Factory(dict[str, Router])
    members: list[Host] = attrs.Factory(list[Host])
    newest: dict[Name, Said] = attrs.Factory(dict[Name, Said])
    said: dict[tuple[Name, int], Said] = attrs.Factory(dict[tuple[Name, int], Said])
    told: dict[Name, set[PeerId]] = attrs.Factory(dict[Name, set[PeerId]])
    started: int = 0
    settled_at: float = 0.0
    delays: float = -math.inf  # when there was one last

    @property
    def peers(self) -> Sequence[PeerId]:
        return [router.peer for router in self.routers.values()]

    async def open(self, members: int) -> None:
        for number in range(members):
            opening = open_named(self.fleet.network, f"m{number}", [], listen=[], identity=identity_of(1000 + number))
            self.members.append(await self.stack.enter_async_context(opening))

    @property
    def delay(self) -> float:
        """What a record may be late by: it is good for so long from when it was placed, as far as its router knows."""
        return EXACT if self.delays <= trio.current_time() - MAX_TTL else LOOKUP_TIMEOUT

    # ── what may happen ──

    async def start(self) -> None:
        if len(self.routers) < MAX_ROUTERS:
            self.started += 1
            self._unsettle(SETTLING)
            name = f"r{self.started}"
            self.routers[name] = await self.fleet.router(
                name, identity=identity_of(self.started), shutdown_lease_ttl=0.0
            )

    async def stop(self, which: int) -> None:
        """What only this router knows it hands over, as far as it hears the others; the rest is lost."""
        if len(self.routers) > 1:
            name, is_whole = self.name(which), trio.current_time() >= self.settled_at
            router = self.routers.pop(name)
            self.fleet.plane.routers.pop(router.peer)
            self._unsettle(SETTLING)
            await self.fleet.stop(name)
            self.fleet.plane.routers.pop(router.peer, None)
            for lost in [one for one, said in self.newest.items() if said.is_good and not self.holders(one)]:
                assert not is_whole, "nothing is lost of a mesh that was whole"
                del self.newest[lost]

    async def cut(self, one: int, others: Collection[int]) -> None:
        """One router and some others do not hear each other any more."""
        await trio.lowlevel.checkpoint()
        name = self.name(one)
        if names := {self.name(other) for other in others} - {name}:
            self._unsettle(math.inf)
            self.fleet.network.block(name, *sorted(names))

    async def heal(self) -> None:
        await trio.lowlevel.checkpoint()
        self.delays = trio.current_time() if self.settled_at == math.inf else self.delays
        for name in self.routers:
            self.fleet.network.heal(name)

    async def announce(self, who: int, what: int, router: int, ttl: float, addresses: int) -> None:
        member, key, name = self.members[who], KEYS[what], self.name(router)
        before, own = trio.current_time(), tuple(Address.parse(f"/memory/{n + 1}") for n in range(addresses))
        sequence = 1 + max(
            (said.sequence for (known, _), said in self.said.items() if known[0] == member.peer), default=0
        )
        announcement = Announcement(key, tuple(one.with_peer(member.peer) for one in own), sequence, ttl)
        told = self.routers[name].peer
        said = Said(sequence, announcement.addresses, before + ttl, told, not ttl)
        self.said[(member.peer, key), sequence] = self.newest[member.peer, key] = said
        self.told.setdefault((member.peer, key), set()).add(told)
        answer = await self._ask(who, name, Provide(announcement))
        assert answer is not None
        assert answer[0] is Status.OK

    async def withdraw(self, which: int, router: int) -> None:
        """What a member said to any router it withdraws at one."""
        await trio.lowlevel.checkpoint()
        if good := [name for name, said in self.newest.items() if said.is_good]:
            peer, key = good[which % len(good)]
            who = next(number for number, member in enumerate(self.members) if member.peer == peer)
            await self.announce(who, KEYS.index(key), router, ttl=0.0, addresses=0)

    async def forge(self, who: int, victim: int, router: int) -> None:
        """A record at the addresses of another."""
        if who != victim:
            there = Address.parse("/memory/1").with_peer(self.members[victim].peer)
            for forged in (Announcement(KEYS[0], (there,), 2**40), Announcement(KEYS[0], (), 2**40)):
                provider = None if forged.addresses else self.members[victim].peer
                assert await self._ask(who, self.name(router), Provide(forged, provider)) is None

    async def wait(self, seconds: float) -> None:
        await trio.sleep(seconds)

    async def look(self, who: int, what: int, router: int) -> Mapping[PeerId, Found]:
        """Whatever is answered was said, by its provider, and is good still."""
        answer = await self._ask(who, self.name(router), FindProviders(KEYS[what]))
        assert answer is not None
        for one in answer[1]:
            said = self.said[(one.peer, KEYS[what]), one.sequence]
            assert one.addresses == said.addresses
            assert all(address.peer == one.peer for address in one.addresses)
            assert 0 < one.ttl <= said.expires_at - trio.current_time() + self.delay
        return {one.peer: one for one in answer[1]}

    # ── what holds when it is quiet ──

    async def quiet(self) -> None:
        await self.heal()
        await trio.sleep(QUIET)
        self.settled_at = trio.current_time()
        await self.all_is_found_everywhere()
        self.all_is_where_it_belongs()

    async def all_is_found_everywhere(self) -> None:
        for number in range(len(self.routers)):
            for what, key in enumerate(KEYS):
                found = await self.look(0, what, number)
                good = {peer: said for (peer, of), said in self.newest.items() if of == key and said.is_good}
                gone = {peer for (peer, of), said in self.newest.items() if of == key and said.is_withdrawn}
                assert not gone.intersection(found), "what is withdrawn is withdrawn everywhere"
                assert {peer: said.sequence for peer, said in good.items()} == {
                    peer: found[peer].sequence for peer in good if peer in found
                }

    def all_is_where_it_belongs(self) -> None:
        for name, said in self.newest.items():
            if said.is_good:
                belongs = set(closest(name[1], self.peers, self.fleet.plane.replication))
                told = self.told[name] & set(self.peers)
                assert belongs | ({said.told} & told) <= self.holders(name) <= belongs | told

    def holders(self, name: Name) -> set[PeerId]:
        """The routers that know the newest word of a member on a key."""
        peer, key = name
        held = {
            router.peer: router.directory.store.get(key, peer, trio.current_time()) for router in self.routers.values()
        }
        return {router for router, one in held.items() if one and one.sequence == self.newest[name].sequence}

    # ── helpers ──

    def _unsettle(self, seconds: float) -> None:
        self.settled_at = max(self.settled_at, trio.current_time() + seconds)

    def name(self, number: int) -> str:
        return list(self.routers)[number % len(self.routers)]

    async def _ask(self, who: int, name: str, request: Request) -> tuple[Status, tuple[Found, ...]] | None:
        """The answer; None when the stream is reset, as that of a liar is."""
        member, router = self.members[who], self.routers[name]
        await member.connect(router.peer, router.host.addresses)
        admit(router.host, member.peer)
        try:
            answer = await ask(member.open_stream, router.peer, request)
        except (StreamResetError, DialError, RejectedError):
            return None
        return answer.status, answer.found
