"""A router's records: who announced what. Synchronous, without a clock of its own: `now` is seconds that never go back.

A record is withdrawn by a newer one that says so. That one is kept until its time is over like any other: it is what
keeps a late copy of the old one from coming back.
"""

import enum
import heapq
import itertools
from collections.abc import Iterator
from typing import TypeVar

import attrs

from agentmesh.protocols.directory.events import RECORD_TTL
from agentmesh.types import Address, PeerId

Name = tuple[bytes, PeerId]  # a record's key and provider

A = TypeVar("A")
B = TypeVar("B")


@attrs.frozen
class StoreLimits:
    """The bounds of a store. There is none that can be switched off."""

    max_records: int = 65536
    max_records_per_provider: int = 256
    record_ttl: float = RECORD_TTL  # seconds


@attrs.frozen
class Record:
    """What a provider announced under a key.

    Attributes:
        expires_at: seconds on the store's clock; not good at that moment any more.
        withdrawn: it says that the provider is there no more.
        direct: the provider told this router itself, so it stays here wherever it belongs.
    """

    key: bytes
    provider: PeerId
    addresses: tuple[Address, ...]
    sequence: int
    expires_at: float
    withdrawn: bool = False
    direct: bool = False


class Outcome(enum.Enum):
    """What became of a record."""

    STORED = "stored"
    OUTDATED = "outdated"  # there is a newer one
    PROVIDER_FULL = "max_records_per_provider"
    STORE_FULL = "max_records"


class RecordStore:
    """Records by key and by provider; what has expired is gone from both."""

    def __init__(self, limits: StoreLimits | None = None) -> None:
        self.limits = limits or StoreLimits()
        self._by_key: dict[bytes, dict[PeerId, Record]] = {}
        self._by_provider: dict[PeerId, dict[bytes, Record]] = {}
        self._expiries: list[tuple[float, Name]] = []
        self._size = 0

    def put(self, record: Record, now: float) -> Outcome:
        """Keep a record, unless there is a newer one or no room.

        It is kept until `expires_at`, at most for `record_ttl` seconds. One that comes again (the same sequence, saying
        the same) takes nothing from the time of the one that is there.
        """
        self.expire(now)
        expires_at = min(record.expires_at, now + self.limits.record_ttl)
        if expires_at <= now:
            return Outcome.OUTDATED
        held = self._held(record.key, record.provider)
        outcome = self._room_for(record.provider) if held is None else _verdict(record, held)
        if outcome is Outcome.STORED:
            record = attrs.evolve(record, expires_at=expires_at)
            self._enter(record if held is None else _joined(record, held))
        return outcome

    def find(self, key: bytes, limit: int, now: float) -> tuple[Record, ...]:
        """At most `limit` of those who are under a key now.

        When there are more, each asker is given the ones that were not given for the longest time: no provider is
        everybody's first.
        """
        self.expire(now)
        records = self._by_key.get(key, {})
        found = tuple(itertools.islice(records.values(), limit))
        if len(found) < len(records):
            for record in found:
                records[record.provider] = records.pop(record.provider)  # behind the others
        return found

    def get(self, key: bytes, provider: PeerId, now: float) -> Record | None:
        """The newest word of a provider on a key, be it that it has withdrawn."""
        self.expire(now)
        return self._held(key, provider)

    def forget(self, provider: PeerId) -> None:
        """Drop all records of a provider: it is out of the mesh."""
        for key in tuple(self._by_provider.get(provider, ())):
            self._remove(key, provider)

    def remove(self, record: Record) -> None:
        """Drop a record, if it is still there: it belongs to other routers now."""
        if self._held(record.key, record.provider) == record:
            self._remove(record.key, record.provider)

    def expire(self, now: float) -> None:
        """Drop what has expired."""
        while self._expiries and self._expiries[0][0] <= now:
            _, (key, provider) = heapq.heappop(self._expiries)
            held = self._held(key, provider)
            if held is not None and held.expires_at <= now:
                self._remove(key, provider)

    def next_expiry(self, provider: PeerId | None = None) -> float:
        """Before when there will not be room for one more: no record of this provider, or of any, expires earlier.

        There must be one.
        """
        if provider is None:
            return self._expiries[0][0]
        return min(record.expires_at for record in self._by_provider[provider].values())

    # ── gauges ──

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Record]:
        return (record for records in self._by_provider.values() for record in records.values())

    @property
    def keys(self) -> int:
        """How many keys somebody can be found under."""
        return len(self._by_key)

    @property
    def providers(self) -> int:
        """How many peers have records, be it that they have withdrawn."""
        return len(self._by_provider)

    @property
    def pending_expiries(self) -> int:
        """How many instants lie ahead; renewals add some, so it may exceed `len`, by a bound."""
        return len(self._expiries)

    def _room_for(self, provider: PeerId) -> Outcome:
        if len(self._by_provider.get(provider, ())) >= self.limits.max_records_per_provider:
            return Outcome.PROVIDER_FULL
        return Outcome.STORE_FULL if self._size >= self.limits.max_records else Outcome.STORED

    def _held(self, key: bytes, provider: PeerId) -> Record | None:
        return self._by_provider.get(provider, {}).get(key)

    def _enter(self, record: Record) -> None:
        if self._held(record.key, record.provider) is not None:
            self._remove(record.key, record.provider)
        self._size += 1
        self._by_provider.setdefault(record.provider, {})[record.key] = record
        if not record.withdrawn:
            self._by_key.setdefault(record.key, {})[record.provider] = record
        heapq.heappush(self._expiries, (record.expires_at, (record.key, record.provider)))
        if len(self._expiries) > 2 * self._size + 64:  # renewals leave their old expiries behind
            self._expiries = [(held.expires_at, (held.key, held.provider)) for held in self]
            heapq.heapify(self._expiries)

    def _remove(self, key: bytes, provider: PeerId) -> None:
        self._size -= 1
        _discard(self._by_provider, provider, key)
        _discard(self._by_key, key, provider)


def _discard(index: dict[A, dict[B, Record]], one: A, other: B) -> None:
    """Take an entry out of an index, if it is there, and what is empty then."""
    entries = index.get(one, {})
    entries.pop(other, None)
    if not entries:
        index.pop(one, None)


def _verdict(record: Record, held: Record) -> Outcome:
    """Whether a record may take the place of another."""
    same = (record.addresses, record.withdrawn) == (held.addresses, held.withdrawn)
    newer = record.sequence > held.sequence or (record.sequence == held.sequence and same)
    return Outcome.STORED if newer else Outcome.OUTDATED


def _joined(record: Record, held: Record) -> Record:
    """What to keep of a record and the one whose place it takes; of one that came again, the best of both."""
    if record.sequence > held.sequence:
        return record
    return attrs.evolve(record, expires_at=max(record.expires_at, held.expires_at), direct=record.direct or held.direct)
