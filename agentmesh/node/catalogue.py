"""The routers a node knows: which to attach to now, which are held, which to leave alone for a while. Pure.

A router that failed too often is shunned: it waits longer. So is one that sent us away: while its session lasts another
takes its place, and then it is left alone for as long as it said. But whoever is attached nowhere and shuns every
router there is has more to lose than they have: it tries them, one at a time.

A router that has no place for us did nothing wrong: it counts as full until the list says otherwise, and when its time
has come it is chosen like any other. If it came behind the others then, a router that was started again would stay
empty while those fill up.

Whoever loses a router loses it together with others, and all choose from lists that are equally old. So their choice is
spread the wider, the more they are: as if each knew how many are on their way.
"""

import math
from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from random import Random

import attrs

from agentmesh.control_plane.routers import RouterRecord
from agentmesh.errors import LocalProtocolError
from agentmesh.node.selection import Selection
from agentmesh.node.standing import HELD, LEFT_ALONE, MAX_ATTEMPTS, SHUN_TIME, TAKEN, Input, Standing, State
from agentmesh.types import Address, PeerId

FIRST_REDIAL_WAIT = 2.0  # seconds after a first failure, doubling
MAX_SHUN_TIME = 3600.0  # however long a router asks to be left alone
REFUSED_WAIT = 10.0  # seconds for which a router that has no place for us is not asked again
SUSPICION_TIME = 300.0  # seconds for which a router that failed or was lost comes behind its equals
STEADY_TIME = 60.0  # seconds that an attachment lasts before its failures are forgotten; a shorter one is a failure
MAX_ROUTERS = 4096  # of a list; what is beyond is not looked at


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
        self._entries: dict[PeerId, Standing] = {}
        self._attachments = 0
        self._closing: set[PeerId] = set()
        self._crowd = 0.0  # sessions of others that lost their routers with us, since we held all that we want

    @property
    def deadline(self) -> float:
        """When a router that was left alone may be tried again; infinity when none waits."""
        last_resort = self._last_resort()
        if last_resort is not None:
            return last_resort.last_resort_at
        left_alone = (entry for entry in self._entries.values() if entry.state in LEFT_ALONE)
        return min((entry.wait_until for entry in left_alone), default=math.inf)

    @property
    def attached(self) -> tuple[RouterRecord, ...]:
        """The routers that admitted us and are neither lost nor about to be, as they were last listed, the one that is
        held longest first: what comes and goes behind it does not change its place.
        """
        held = [entry for entry in self._entries.values() if entry.state is State.ATTACHED]
        return tuple(entry.record for entry in sorted(held, key=lambda entry: entry.number))

    @property
    def leaving(self) -> tuple[RouterRecord, ...]:
        """The routers that sent us away, or are about to close, and whose sessions still last."""
        return tuple(entry.record for peer, entry in self._entries.items() if self.is_leaving(peer))

    def is_leaving(self, peer: PeerId) -> bool:
        """Whether a router is one of these. It may be one that is not listed."""
        return peer in self._closing or self.state(peer) is State.LEAVING

    def closing(self, peer: PeerId) -> None:
        """A peer that we have a session to, and are not attached to, says that it will close it."""
        self._closing.add(peer)

    def closed(self, peer: PeerId) -> None:
        """There is no session to a peer any more."""
        self._closing.discard(peer)

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
        """The control plane's list now. A router that is no longer on it is forgotten once it is neither held nor left
        alone: one that comes back has still sent us away.

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
            self._entries.setdefault(peer, Standing(record)).record = record

    def choose(self, now: float) -> list[RouterRecord]:
        """The routers to attach to now, as many as are missing, the least loaded first. They count as ATTACHING."""
        for entry in list(self._entries.values()):
            if entry.wait_until <= now:
                self._step(entry, Input.TIMEOUT, now)
                entry.failures %= MAX_ATTEMPTS
                self._forget_unlisted(entry)
        last_resort = self._last_resort()
        if last_resort is not None and last_resort.last_resort_at <= now:
            self._step(last_resort, Input.TIMEOUT, now)  # if it fails once more, it is shunned again
        missing = self._wanted - sum(entry.state in TAKEN for entry in self._entries.values())
        chosen = self._candidates()[: max(missing, 0)]
        for entry in chosen:
            self._step(entry, Input.CHOSEN, now)
        return [entry.record for entry in chosen]

    def admitted(self, peer: PeerId, now: float) -> None:
        """The router admitted us: attached."""
        entry = self._entry(peer)
        self._step(entry, Input.ADMITTED, now)
        entry.attached_at = now
        self._attachments += 1
        entry.number = self._attachments
        if not self.is_short:
            self._crowd = 0.0

    def failed(self, peer: PeerId, now: float) -> None:
        """An attempt came to nothing. The next waits 2 s, doubling; after six the router is shunned."""
        self._set_back(self._entry(peer), Input.FAILED, now)

    def refused(self, peer: PeerId, now: float) -> None:
        """The router answered, and takes nobody in: it is full, or stops. It is asked again in 10 s, and until the list
        says otherwise it counts as full.
        """
        entry = self._entry(peer)
        self._step(entry, Input.REFUSED, now)
        entry.failures, entry.wait_until = 0, now + REFUSED_WAIT
        entry.shunned_at, entry.shunned_for = now, REFUSED_WAIT
        entry.record = attrs.evolve(entry.record, connections=entry.record.connection_limit)
        self._forget_unlisted(entry)

    def lost(self, peer: PeerId, now: float) -> None:
        """The session to an attached router ended. It may be chosen again at once, unless it had hardly begun: a
        router that admits and drops is left alone as one that fails.
        """
        entry = self._entry(peer)
        if entry.state is State.LEAVING:
            self._step(entry, Input.LOST, now)
            entry.failures, entry.wait_until = 0, entry.shunned_at + entry.shunned_for
            self._forget_unlisted(entry)
            return
        self._crowd += entry.record.connections
        if now - entry.attached_at < STEADY_TIME:
            self._set_back(entry, Input.DROPPED, now)
        else:
            self._step(entry, Input.LOST, now)
            entry.failures = 0
            self._forget_unlisted(entry)

    def sent_away(self, peer: PeerId, retry_after: float, now: float, *, share: float = 1.0) -> None:
        """An attached router will not hold us any longer: another takes its place, though its session still lasts.

        Args:
            retry_after: seconds for which it is not chosen again; SHUN_TIME when it is 0, and at most MAX_SHUN_TIME.
            share: of the members of that router, how many go with us; 0 to 1.
        """
        entry = self._entry(peer)
        self._step(entry, Input.SENT_AWAY, now)
        self._crowd += share * entry.record.connections
        entry.shunned_at, entry.shunned_for = now, min(retry_after if retry_after > 0 else SHUN_TIME, MAX_SHUN_TIME)

    def _candidates(self) -> list[Standing]:
        free = [e for e in self._entries.values() if e.listed and e.state in (State.FREE, State.SUSPECT)]
        ranked = [
            (*self.selection.rank(e.record, self._rng.random(), self._crowd), e)
            for e in free
            if self.selection.admits(e.record)
        ]
        # a router that was lost comes behind those that it is worth no more than
        return [e for *_, e in sorted(ranked, key=lambda r: (r[0], r[2].state is State.SUSPECT, r[1]))]

    def _set_back(self, entry: Standing, got: Input, now: float) -> None:
        self._step(entry, got, now)
        entry.failures += 1
        wait = FIRST_REDIAL_WAIT * 2 ** (entry.failures - 1)
        if entry.failures >= MAX_ATTEMPTS:
            entry.failures, wait = MAX_ATTEMPTS, SHUN_TIME
            entry.shunned_at, entry.shunned_for = now, SHUN_TIME
        entry.wait_until = now + wait
        self._forget_unlisted(entry)

    def _last_resort(self) -> Standing | None:
        """The router that may be tried first, when all that there are for us are shunned."""
        listed = [
            e for e in self._entries.values() if e.state in TAKEN or (e.listed and self.selection.admits(e.record))
        ]
        if not all(entry.is_shunned for entry in listed):
            return None
        return min(listed, key=lambda entry: entry.last_resort_at, default=None)

    def _step(self, entry: Standing, got: Input, now: float) -> None:
        entry.step(got)
        if entry.state is State.SUSPECT:
            entry.wait_until = now + SUSPICION_TIME

    def _entry(self, peer: PeerId) -> Standing:
        entry = self._entries.get(peer)
        if entry is None:
            raise LocalProtocolError(f"{peer} is no router that we know")
        return entry

    def _forget_unlisted(self, entry: Standing) -> None:
        if not entry.listed and entry.state not in HELD | LEFT_ALONE:
            del self._entries[entry.record.peer]


def _without_circuits(record: RouterRecord) -> RouterRecord:
    return attrs.evolve(record, addresses=tuple(a for a in record.addresses if a.circuit is None))
