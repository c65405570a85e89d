"""Tickets, one for each end of a circuit: who shows one is that end's connection. Without a clock and without chance of
its own.

A ticket is good once, for a few seconds, and only here: this table made it, for one side of one circuit from one source
to one destination. It tells what it knows of a ticket by the ticket's hash, then by a comparison in constant time, so
that the time of an answer says nothing about tickets that there are.
"""

import enum
import hashlib
import hmac
from collections import Counter
from collections.abc import Callable

import attrs

from agentmesh.protocols.relay.book import CircuitEntry
from agentmesh.protocols.relay.wire import TICKET_BYTES
from agentmesh.types import PeerId


class Side(enum.Enum):
    """An end of a circuit."""

    NEAR = "near"  # that asked for it
    FAR = "far"


class Fate(enum.Enum):
    """What a ticket is no good for."""

    UNKNOWN = "unknown"  # guessed, of another router, or of a circuit that has ended
    USED = "used"
    EXPIRED = "expired"
    LATE = "late"  # its circuit goes over streams


@attrs.frozen
class Claim:
    """Whose connection a ticket has brought."""

    circuit: CircuitEntry
    side: Side


@attrs.define
class _Ticket:
    text: bytes = attrs.field(repr=False)
    claim: Claim
    expires_at: float
    fate: Fate | None = None


class TicketTable:
    """The tickets of one relay, for the circuits that have a data path, or may get one.

    Args:
        draw: so many random bytes that nobody can guess.
        lifetime: seconds that a ticket is good.
        max_circuits: for how many circuits there are tickets at once …
        max_circuits_per_peer: … and for how many of one source.
    """

    def __init__(
        self,
        draw: Callable[[int], bytes],
        *,
        lifetime: float,
        max_circuits: int,
        max_circuits_per_peer: int,
    ) -> None:
        self._draw = draw
        self._lifetime = lifetime
        self._max_circuits = max_circuits
        self._max_circuits_per_peer = max_circuits_per_peer
        self._tickets: dict[bytes, _Ticket] = {}
        self._circuits: dict[CircuitEntry, list[bytes]] = {}
        self._by_source: Counter[PeerId] = Counter()

    def __len__(self) -> int:
        """For how many circuits there are tickets, good ones or not."""
        return len(self._circuits)

    def open(self, circuit: CircuitEntry) -> bool:
        """Whether there may be tickets for one more circuit; then `forget` must follow, however it ends."""
        if len(self) >= self._max_circuits or self._by_source[circuit.source] >= self._max_circuits_per_peer:
            return False
        self._by_source[circuit.source] += 1
        self._circuits[circuit] = []
        return True

    def issue(self, circuit: CircuitEntry, side: Side, now: float) -> bytes:
        """The ticket for an end of a circuit that is open here; one for each."""
        text = self._draw(TICKET_BYTES)
        key = _key(text)
        self._circuits[circuit].append(key)
        self._tickets[key] = _Ticket(text, Claim(circuit, side), now + self._lifetime)
        return text

    def redeem(self, text: bytes, now: float) -> Claim | Fate:
        """Whose ticket that is, once; or why it is no good."""
        ticket = self._tickets.get(_key(text))
        if ticket is None or not hmac.compare_digest(ticket.text, text):
            return Fate.UNKNOWN
        if ticket.fate is not None:
            return ticket.fate
        if now >= ticket.expires_at:
            return Fate.EXPIRED
        ticket.fate = Fate.USED
        return ticket.claim

    def revoke(self, circuit: CircuitEntry) -> None:
        """The circuit goes over streams: a ticket of it that was not used is late."""
        for key in self._circuits.get(circuit, ()):
            ticket = self._tickets[key]
            ticket.fate = ticket.fate or Fate.LATE

    def forget(self, circuit: CircuitEntry) -> None:
        """The circuit has ended; saying so twice does nothing."""
        keys = self._circuits.pop(circuit, None)
        if keys is None:
            return
        for key in keys:
            del self._tickets[key]
        self._by_source[circuit.source] -= 1
        if not self._by_source[circuit.source]:
            del self._by_source[circuit.source]


def _key(text: bytes) -> bytes:
    return hashlib.sha256(text).digest()
