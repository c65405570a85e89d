"""The routers a node knows: which to attach to now, which are held, which to leave alone for a while. Pure.

        choose            admitted             lost
FREE ----------> ATTACHING -------> ATTACHED ---------> SUSPECT --choose--> ATTACHING
                    |                  | lost at once      ^
                    | failed           v                   | its time has come
                    +-------------> WAITING ---------------+
                                       ^ lost
                                       |
                  ATTACHED --------> LEAVING
                           sent away

A router that failed too often is shunned: it waits longer. So is one that sent us away: while its session lasts another
takes its place, and then it is left alone for as long as it said. But whoever is attached nowhere and shuns every
router there is has more to lose than they have: it tries them, one at a time.
"""

import enum
import math
from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from random import Random

import attrs

from agentmesh.control_plane.routers import RouterRecord
from agentmesh.errors import LocalProtocolError
from agentmesh.node.selection import Selection
from agentmesh.types import Address, PeerId

FIRST_REDIAL_WAIT = 2.0  # seconds after a first failure, doubling
MAX_ATTEMPTS = 6  # then the router is shunned and another takes its place
SHUN_TIME = 300.0  # seconds
MAX_SHUN_TIME = 3600.0  # however long a router asks to be left alone
LAST_RESORT_TIME = 60.0  # the same for a node to which nothing else is left
STEADY_TIME = 60.0  # seconds that an attachment lasts before its failures are forgotten; a shorter one is a failure
MAX_ROUTERS = 4096  # of a list; what is beyond is not looked at


class State(enum.Enum):
    FREE = "free"
    SUSPECT = "suspect"  # free as well, but it failed or was lost: others come first
    ATTACHING = "attaching"
    ATTACHED = "attached"
    LEAVING = "leaving"  # it sent us away, and its session still lasts
    WAITING = "waiting"


class Input(enum.Enum):
    CHOSEN = "chosen"
    ADMITTED = "admitted"
    FAILED = "failed"
    LOST = "lost"
    DROPPED = "lost at once"
    TIMEOUT = "timeout"
    SENT_AWAY = "sent away"


_FREE, _SUSP, _ATTG, _HELD, _LEAV, _WAIT = State
# fmt: off
# None: the driver misreads its own tasks.
ROWS: dict[State, tuple[State | None, ...]] = {
    #       CHOSEN ADMITTED FAILED LOST   DROPPED TIMEOUT SENT_AWAY
    _FREE: (_ATTG, None,    None,  None,  None,   None,   None),
    _SUSP: (_ATTG, None,    None,  None,  None,   None,   None),
    _ATTG: (None,  _HELD,   _WAIT, None,  None,   None,   None),
    _HELD: (None,  None,    None,  _SUSP, _WAIT,  None,   _LEAV),
    _LEAV: (None,  None,    None,  _WAIT, None,   None,   None),
    _WAIT: (None,  None,    None,  None,  None,   _SUSP,  None),
}
# fmt: on
TRANSITIONS = {(state, got): to for state, row in ROWS.items() for got, to in zip(Input, row, strict=True)}
TAKEN = frozenset({State.ATTACHING, State.ATTACHED})  # of the places for routers that are wanted
HELD = TAKEN | {State.LEAVING}  # a task of the driver's has them


@attrs.define
class _Entry:
    record: RouterRecord
    state: State = State.FREE
    failures: int = 0
    wait_until: float = math.inf
    attached_at: float = math.inf
    shunned_at: float = math.inf
    shunned_for: float = SHUN_TIME
    number: int = 0  # of its attachment: the order in which they came about
    listed: bool = True


class Catalogue:
    """The routers of the mesh, as this node stands to each. `now` is seconds on any clock that does not go back.

    Calls that do not fit what was called before raise LocalProtocolError.

    Args:
        wanted: how many to be attached to; every router when there are fewer.
        rng: for the order among routers of like load.
        selection: which routers may be chosen, and which of them first.
    """

    def __init__(self, wanted: int, rng: Random, selection: Selection | None = None) -> None:
        self.selection = selection or Selection()
        self._wanted = wanted
        self._rng = rng
        self._entries: dict[PeerId, _Entry] = {}
        self._attachments = 0

    @property
    def deadline(self) -> float:
        """When a router that was left alone may be tried again; infinity when none waits."""
        last_resort = self._last_resort()
        if last_resort is not None:
            return _cut_short(last_resort)
        return min((entry.wait_until for entry in self._entries.values()), default=math.inf)

    @property
    def attached(self) -> tuple[RouterRecord, ...]:
        """The routers that admitted us and are neither lost nor about to be, as they were last listed, the one that is
        held longest first: what comes and goes behind it does not change its place.
        """
        held = [entry for entry in self._entries.values() if entry.state is State.ATTACHED]
        return tuple(entry.record for entry in sorted(held, key=lambda entry: entry.number))

    @property
    def listed(self) -> tuple[RouterRecord, ...]:
        """Every router that the control plane names."""
        return tuple(entry.record for entry in self._entries.values() if entry.listed)

    @property
    def matching(self) -> tuple[RouterRecord, ...]:
        """Those of them that the selector admits."""
        return tuple(filter(self.selection.admits, self.listed))

    @property
    def wanted(self) -> int:
        """How many are to be held, of those that there are."""
        return min(self._wanted, len(self.matching))

    @property
    def is_short(self) -> bool:
        """Whether fewer routers are attached than wanted."""
        return len(self.attached) < self._wanted

    def __len__(self) -> int:
        return len(self._entries)

    def addresses(self, peer: PeerId) -> Sequence[Address]:
        """Where a router is dialled; none of a peer that is no router we know."""
        entry = self._entries.get(peer)
        return entry.record.addresses if entry else ()

    def state(self, peer: PeerId) -> State | None:
        """How we stand to a router; None to one that we do not know."""
        entry = self._entries.get(peer)
        return entry.state if entry else None

    def update(self, records: Iterable[RouterRecord], banned: Collection[PeerId] = ()) -> None:
        """The control plane's list now. A router that is no longer on it is forgotten once it is not held.

        Routers behind other routers are not for us: their circuit addresses are left out. Nor are those that are
        banned.
        """
        direct = (_without_circuits(record) for record in records if record.peer not in banned)
        usable = (record for record in direct if record.addresses)
        now_listed = {record.peer: record for record in islice(usable, MAX_ROUTERS)}
        for peer, entry in list(self._entries.items()):
            entry.listed = peer in now_listed
            self._forget_unlisted(entry)
        for peer, record in now_listed.items():
            self._entries.setdefault(peer, _Entry(record)).record = record

    def choose(self, now: float) -> list[RouterRecord]:
        """The routers to attach to now, as many as are missing, the least loaded first. They count as ATTACHING."""
        for entry in self._entries.values():
            if entry.wait_until <= now:
                self._step(entry, Input.TIMEOUT)
                entry.failures %= MAX_ATTEMPTS
        last_resort = self._last_resort()
        if last_resort is not None and _cut_short(last_resort) <= now:
            self._step(last_resort, Input.TIMEOUT)  # if it fails once more, it is shunned again
        missing = self._wanted - sum(entry.state in TAKEN for entry in self._entries.values())
        chosen = self._candidates()[: max(missing, 0)]
        for entry in chosen:
            self._step(entry, Input.CHOSEN)
        return [entry.record for entry in chosen]

    def admitted(self, peer: PeerId, now: float) -> None:
        """The router admitted us: attached."""
        entry = self._entry(peer)
        self._step(entry, Input.ADMITTED)
        entry.attached_at = now
        self._attachments += 1
        entry.number = self._attachments

    def failed(self, peer: PeerId, now: float) -> None:
        """An attempt came to nothing. The next waits 2 s, doubling; after six the router is shunned."""
        self._set_back(self._entry(peer), Input.FAILED, now)

    def lost(self, peer: PeerId, now: float) -> None:
        """The session to an attached router ended. It may be chosen again at once, unless it had hardly begun: a
        router that admits and drops is left alone as one that fails.
        """
        entry = self._entry(peer)
        if entry.state is State.LEAVING:
            self._step(entry, Input.LOST)
            entry.failures, entry.wait_until = MAX_ATTEMPTS, entry.shunned_at + entry.shunned_for
            self._forget_unlisted(entry)
        elif now - entry.attached_at < STEADY_TIME:
            self._set_back(entry, Input.DROPPED, now)
        else:
            self._step(entry, Input.LOST)
            entry.failures = 0
            self._forget_unlisted(entry)

    def sent_away(self, peer: PeerId, retry_after: float, now: float) -> None:
        """An attached router will not hold us any longer: another takes its place, though its session still lasts.

        Args:
            retry_after: seconds for which it is not chosen again; SHUN_TIME when it is 0, and at most MAX_SHUN_TIME.
        """
        entry = self._entry(peer)
        self._step(entry, Input.SENT_AWAY)
        entry.shunned_at, entry.shunned_for = now, min(retry_after if retry_after > 0 else SHUN_TIME, MAX_SHUN_TIME)

    def _candidates(self) -> list[_Entry]:
        free = [e for e in self._entries.values() if e.listed and e.state in (State.FREE, State.SUSPECT)]
        ranked = [
            (*self.selection.rank(e.record, self._rng.random()), e) for e in free if self.selection.admits(e.record)
        ]
        # a router that was lost comes behind those that it is worth no more than
        return [e for *_, e in sorted(ranked, key=lambda r: (r[0], r[2].state is State.SUSPECT, r[1]))]

    def _set_back(self, entry: _Entry, got: Input, now: float) -> None:
        self._step(entry, got)
        entry.failures += 1
        wait = FIRST_REDIAL_WAIT * 2 ** (entry.failures - 1)
        if entry.failures >= MAX_ATTEMPTS:
            entry.failures, wait = MAX_ATTEMPTS, SHUN_TIME
            entry.shunned_at, entry.shunned_for = now, SHUN_TIME
        entry.wait_until = now + wait
        self._forget_unlisted(entry)

    def _last_resort(self) -> _Entry | None:
        """The router that may be tried first, when all that there are for us are shunned."""
        listed = [
            e for e in self._entries.values() if e.state in TAKEN or (e.listed and self.selection.admits(e.record))
        ]
        if any(entry.state is not State.WAITING or entry.failures < MAX_ATTEMPTS for entry in listed):
            return None
        return min(listed, key=_cut_short, default=None)

    def _step(self, entry: _Entry, got: Input) -> None:
        after = TRANSITIONS[entry.state, got]
        if after is None:
            raise LocalProtocolError(f"{entry.record.peer}: {got.value} while {entry.state.value}")
        entry.state = after
        entry.wait_until = entry.attached_at = math.inf

    def _entry(self, peer: PeerId) -> _Entry:
        entry = self._entries.get(peer)
        if entry is None:
            raise LocalProtocolError(f"{peer} is no router that we know")
        return entry

    def _forget_unlisted(self, entry: _Entry) -> None:
        if not entry.listed and entry.state not in HELD:
            del self._entries[entry.record.peer]


def _without_circuits(record: RouterRecord) -> RouterRecord:
    return attrs.evolve(record, addresses=tuple(a for a in record.addresses if a.circuit is None))


def _cut_short(shunned: _Entry) -> float:
    """When a router that is shunned may be tried all the same."""
    return min(shunned.wait_until, shunned.shunned_at + LAST_RESORT_TIME)
