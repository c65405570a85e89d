"""Who serves something, in the order to be tried: looked up once for all who want it now, and kept for a moment."""

import itertools
from collections.abc import Awaitable, Callable, Sequence

import attrs
import trio

from agentmesh.errors import DialError
from agentmesh.services.table import ServiceKey
from agentmesh.types import PeerId

FOUND_TTL = 5.0  # seconds that what was found is good for
BACKOFF = 15.0  # seconds that a provider which failed is left alone, while there are others
MAX_SERVICES = 1024  # that are remembered; the oldest is forgotten
MAX_FAILED = 1024  # providers that have just failed; the same

Find = Callable[[ServiceKey], Awaitable[Sequence[PeerId]]]


@attrs.define
class Entry:
    """What is known of one service.

    Attributes:
        lookups: how many there were. Who waited for one while it was made takes what it gave, and makes none.
        failure: what the last one raised.
    """

    found: Sequence[PeerId] = ()
    good_until: float = 0.0
    lookups: int = 0
    failure: DialError | None = None
    looking: trio.Lock = attrs.Factory(trio.Lock)


class Providers:
    """The providers of services by name.

    Args:
        find: asks the directory. May raise DialError.
    """

    def __init__(self, find: Find) -> None:
        self._find = find
        self._entries: dict[ServiceKey, Entry] = {}
        self._failed: dict[tuple[PeerId, ServiceKey], float] = {}  # and until when each is left alone
        self._turns = itertools.count()

    def __len__(self) -> int:
        """How many services are remembered."""
        return len(self._entries)

    async def candidates(self, service: ServiceKey) -> list[PeerId]:
        """Who serves it: each in turn the first, those that have just failed last. That there is nobody is not kept.

        Raises:
            DialError: the directory could not be asked.
        Cancellation: safe; whoever waits for the same looks himself.
        """
        found = await self._look(service)
        at, now = next(self._turns) % max(len(found), 1), trio.current_time()
        return sorted([*found[at:], *found[:at]], key=lambda peer: self._failed.get((peer, service), now) > now)

    def failed(self, peer: PeerId, service: ServiceKey) -> None:
        """Leave a provider alone for a while, and look again who there is."""
        now = trio.current_time()
        self._failed = {name: until for name, until in self._failed.items() if until > now}
        if len(self._failed) >= MAX_FAILED:
            del self._failed[next(iter(self._failed))]
        self._failed[peer, service] = now + BACKOFF
        if (entry := self._entries.get(service)) is not None:
            entry.good_until = 0.0

    async def _look(self, service: ServiceKey) -> Sequence[PeerId]:
        entry = self._entry(service)
        before = entry.lookups
        async with entry.looking:
            if entry.lookups == before:
                if trio.current_time() < entry.good_until:
                    return entry.found
                await self._make(entry, service)
            if entry.failure is not None:
                raise type(entry.failure)(str(entry.failure)) from entry.failure
            return entry.found

    async def _make(self, entry: Entry, service: ServiceKey) -> None:
        try:
            entry.found, entry.failure = await self._find(service), None
        except DialError as exc:
            entry.found, entry.failure = (), exc
        entry.lookups += 1
        entry.good_until = trio.current_time() + FOUND_TTL if entry.found else 0.0

    def _entry(self, service: ServiceKey) -> Entry:
        if service not in self._entries and len(self._entries) >= MAX_SERVICES:
            del self._entries[next(iter(self._entries))]
        return self._entries.setdefault(service, Entry())
