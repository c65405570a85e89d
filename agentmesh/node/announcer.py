"""What a node tells the directory: what it serves, and where it is."""

import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from random import Random
from typing import NoReturn

import trio

from agentmesh.errors import DialError
from agentmesh.node.attachments import Attachments
from agentmesh.node.reachability import DirectAddresses
from agentmesh.protocols.directory import RECORD_TTL, Announcement, DirectoryClient, Status, peer_key, service_key
from agentmesh.runtime.nursery import open_background
from agentmesh.services import ServiceKey, ServiceTable, answers
from agentmesh.types import Address, PeerId

logger = logging.getLogger(__name__)

ANNOUNCE_INTERVAL = 300.0  # seconds between two announcements of the same
DEBOUNCE = 2.0  # seconds from a change to its announcement: changes come in heaps
FIRST_RETRY = 5.0  # seconds until what failed, or was withheld, is tried again; doubling up to ANNOUNCE_INTERVAL
WITHDRAW_TIMEOUT = 1.0  # seconds to say goodbye
MAX_ANNOUNCED_ADDRESSES = 32  # a router takes no more


class Announcer:
    """Keeps the directory told. Services come first, the node's own record last: who finds the node finds the services.

    Args:
        client: asks routers that are held.
        services: what is served.
        addresses: where the node can be dialled.
        wall_clock: seconds since 1970; the sequence of announcements grows with it, over restarts too.
        rng: spreads the announcements of a fleet.
    """

    def __init__(
        self,
        client: DirectoryClient,
        services: ServiceTable,
        addresses: Callable[[], Sequence[Address]],
        wall_clock: Callable[[], float],
        rng: Random,
    ) -> None:
        self._client = client
        self._services = services
        self._addresses = addresses
        self._wall_clock = wall_clock
        self._rng = rng
        self._sequence = 0
        self._own_key = b""
        self._announced: dict[bytes, tuple[Address, ...]] = {}
        self._seen: tuple[Address, ...] = ()  # where the node was when it last announced, or tried to
        self._is_closed = False
        self._changed = trio.Event()
        services.on_change(self.changed)

    @property
    def announced(self) -> tuple[Address, ...]:
        """The addresses in the node's own record, as the directory was told it last; none when it has none."""
        return self._announced.get(self._own_key, ())

    def changed(self) -> None:
        """Something else is served now."""
        self._changed.set()

    def moved(self) -> None:
        """The node may be somewhere else now."""
        if tuple(self._addresses()) != self._seen:
            self._changed.set()

    async def run(self, peer: PeerId) -> NoReturn:
        """Announce, as this peer, until cancelled."""
        self._own_key, retry = peer_key(peer), FIRST_RETRY
        while True:
            self._changed = trio.Event()
            whole = await self._announce()
            wait = ANNOUNCE_INTERVAL if whole else retry
            retry = FIRST_RETRY if whole else min(2 * retry, ANNOUNCE_INTERVAL)
            with trio.move_on_after(wait * (1 + self._rng.random() / 10)):
                await self._changed.wait()
                retry = FIRST_RETRY
                await trio.sleep(DEBOUNCE)

    async def aclose(self) -> None:
        """Withdraw what was announced, within a second, and announce no more.

        Cancellation: waits for that second all the same.
        """
        self._is_closed = True
        with trio.move_on_after(WITHDRAW_TIMEOUT) as scope:
            scope.shield = True
            await self._withdraw(list(self._announced))

    async def _announce(self) -> bool:
        """One pass. Whether everything that is served has been announced."""
        self._seen = tuple(self._addresses())
        addresses = self._seen[:MAX_ANNOUNCED_ADDRESSES]
        if not addresses or self._is_closed:
            return True  # held by no router: there is nobody to tell, and nothing to say
        up = await self._answering()
        wanted = [*dict.fromkeys(key for service in up for key in keys_of(service)), self._own_key]
        told = [await self._tell(key, addresses) for key in wanted]
        gone = await self._withdraw([key for key in self._announced if key not in wanted])
        return all(told) and gone and len(up) == len(self._services)

    async def _answering(self) -> list[ServiceKey]:
        """The services that can be called now."""
        found = dict[ServiceKey, bool]()

        async def probe(service: ServiceKey) -> None:
            target = self._services.lookup(service.type, service.name)
            found[service] = target is not None and await answers(target)

        async with trio.open_nursery() as nursery:
            for service in self._services:
                nursery.start_soon(probe, service)
        for service in (service for service, up in found.items() if not up):
            logger.warning("not announced: its server does not answer", extra={"service": service})
        return sorted((service for service, up in found.items() if up), key=str)

    async def _withdraw(self, keys: Iterable[bytes]) -> bool:
        done = list[bool]()

        async def withdraw(key: bytes) -> None:
            done.append(await self._tell(key, (), ttl=0.0))

        async with trio.open_nursery() as nursery:
            for key in keys:
                nursery.start_soon(withdraw, key)
        return all(done)

    async def _tell(self, key: bytes, addresses: tuple[Address, ...], ttl: float | None = None) -> bool:
        if self._is_closed and ttl is None:
            return False
        announce = partial(Announcement, key, addresses, ttl=RECORD_TTL if ttl is None else ttl)
        try:
            answer = await self._client.provide(announce(sequence=self._next()))
            if answer.status is Status.OUTDATED:  # our clock was ahead once
                self._sequence = max(self._sequence, answer.sequence)
                answer = await self._client.provide(announce(sequence=self._next()))
        except DialError as exc:
            level = logging.DEBUG if self._is_closed else logging.WARNING  # all may be going at once
            logger.log(level, "not announced", extra={"reason": exc})
            return False
        if answer.status is not Status.OK:
            return False
        if ttl is None:
            self._announced[key] = addresses
        else:
            self._announced.pop(key, None)
        return True

    def _next(self) -> int:
        self._sequence = max(self._sequence + 1, int(self._wall_clock() * 1000))
        return self._sequence


@asynccontextmanager
async def announcing(
    announcer: Announcer, peer: PeerId, attachments: Attachments, direct: DirectAddresses
) -> AsyncGenerator[None]:
    """Announce for as long as the block lasts, and withdraw at its end."""
    attachments.on_change(announcer.moved)
    direct.on_change(announcer.moved)
    async with open_background() as nursery:
        nursery.start_soon(announcer.run, peer)
        try:
            yield
        finally:
            await announcer.aclose()


def keys_of(service: ServiceKey) -> tuple[bytes, bytes]:
    """What a service is found under: its type, and its name."""
    return service_key(service.type), service_key(service.type, service.name)
