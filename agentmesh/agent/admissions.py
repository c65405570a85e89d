"""At which routers this process is admitted, and which it admits itself. Every connection begins with a handshake of
its own; later ones, before a credential ends, are for all connections to a router at once, since it is peers whom both
sides admit.
"""

import math
from collections.abc import Awaitable, Callable
from random import Random
from typing import NoReturn

import attrs
import trio

from agentmesh.abc import Admission
from agentmesh.credentials import ROLE_ROUTER
from agentmesh.errors import ErrorCode, RejectedError, SessionClosedError
from agentmesh.membership import Membership
from agentmesh.membership.readmission import readmit
from agentmesh.protocols.auth import AUTH_ID, authenticate
from agentmesh.runtime.guard import Signal
from agentmesh.runtime.host import Host
from agentmesh.runtime.session import MuxSession
from agentmesh.types import PeerId

LEAD = 30.0  # seconds before a router's credential ends in which the next one is asked for at the latest …
EXPIRY_SPREAD = 300.0  # … and as many more by chance: a fleet does not ask at once
RENEWAL_SPREAD = 10.0  # seconds within which a new credential of ours is shown to the routers
RATE_WAITS = (1.0, 2.0, 4.0)  # seconds, up to twice as many, after a router was asked too often
MIN_WAIT = 2.0  # seconds between two handshakes with a router whose credential is about to end


WhileAdmitted = Callable[[PeerId], Awaitable[NoReturn]]


def next_look(now: float, expires_at: float, chance: float) -> float:
    """When a router is asked for its next credential.

    Args:
        now, expires_at: wall-clock seconds; of the credential that it has shown.
        chance: from 0 to 1.
    """
    left = expires_at - now
    return now + max(left - min(LEAD + EXPIRY_SPREAD * chance, left / 2), MIN_WAIT)


@attrs.define
class _Standing:
    """How we stand to a router. Wall-clock seconds.

    Attributes:
        due: when the next handshake has to be.
        admitted_until: when it stops admitting us.
        scope: of what goes on while we are admitted; None before that has begun.
    """

    due: float
    admitted_until: float
    scope: trio.CancelScope | None = None


class Admissions:
    """The routers that the process is connected to.

    Args:
        membership: the process's standing in the mesh.
        rng: spreads the handshakes of a fleet.
        while_admitted: goes on with each router for as long as a connection to it is open.
    """

    def __init__(self, membership: Membership, rng: Random, while_admitted: WhileAdmitted) -> None:
        self._membership = membership
        self._rng = rng
        self._while_admitted = while_admitted
        self._standings: dict[PeerId, _Standing] = {}
        self._changed = Signal()
        self._host: Host

    def bind(self, host: Host) -> None:
        """Follow the sessions of a host, and the renewals of the credential."""
        self._host = host
        host.on_disconnect(self._forget)
        host.admissions.on_lapse(self._lapsed)
        self._membership.on_renewed(self._renewed)

    async def enter(self, session: MuxSession) -> None:
        """Show each other who we are, on this very session. From then on the router may open streams here.

        Many connections of one peer may be more than a router takes handshakes of at once: they come a little later.

        Raises:
            RejectedError: the router does not admit us; or we do not admit it, since it is barred.
            CredentialError: its own credential is not honoured, or not a router's.
            RemoteProtocolError, BrokenResourceError, TooSlowError: as `authenticate`.
        Cancellation: safe; close the session then.
        """
        for wait in RATE_WAITS:
            try:
                await self._show(session)
            except RejectedError as exc:
                if exc.code != ErrorCode.RATE_LIMITED:
                    raise
                await trio.sleep(wait * (1 + self._rng.random()))
            else:
                return
        await self._show(session)

    async def _show(self, session: MuxSession) -> None:
        async with await session.open_stream(AUTH_ID) as stream:
            token, ours = self._membership.token(), self._membership.credential.expires_at
            theirs = await authenticate(stream, token=token, verify=self._membership.verify, required_role=ROLE_ROUTER)
            if not session.is_open:  # it ended while we read its last words
                raise SessionClosedError(f"the session to {session.peer} ended")
            self._host.admissions.admit(session.peer, Admission.ROUTER, theirs.expires_at)
            now = self._membership.wall_clock()
            due = next_look(now, theirs.expires_at, self._rng.random())
            due = due if token == self._membership.token() else now  # renewed meanwhile
            standing = self._standings.setdefault(session.peer, _Standing(due, ours))
            standing.due, standing.admitted_until = due, ours
            self._changed.set()

    async def run(self) -> NoReturn:
        """Keep the admissions on both sides until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                now = self._membership.wall_clock()
                for router, standing in self._standings.items():
                    if standing.due <= now:
                        standing.due = math.inf
                        nursery.start_soon(readmit, self._host, router, self.enter)
                    if standing.scope is None:
                        standing.scope = trio.CancelScope()
                        nursery.start_soon(self._accompany, router, standing.scope)
                due = min((standing.due for standing in self._standings.values()), default=math.inf)
                with trio.move_on_after(due - now):
                    await self._changed.wait()

    async def _accompany(self, router: PeerId, scope: trio.CancelScope) -> None:
        with scope:
            await self._while_admitted(router)

    def _renewed(self) -> None:
        """Our credential is new: routers admit us by the old one, and until that ends."""
        now = self._membership.wall_clock()
        for standing in self._standings.values():
            spread = min(RENEWAL_SPREAD, max(standing.admitted_until - now, 0.0) / 2)
            standing.due = min(standing.due, now + spread * self._rng.random())
        self._changed.set()

    def _lapsed(self, peer: PeerId) -> None:
        """What it opens is refused from now on: another router, or this one anew, has to take its place."""
        self._leave(peer, "its admission here has ended")

    def _leave(self, router: PeerId, reason: str) -> None:
        for session in self._host.connections.sessions_of(router):
            session.abort(reason)

    def _forget(self, peer: PeerId) -> None:
        standing = self._standings.pop(peer, None)
        if standing is not None and standing.scope is not None:
            standing.scope.cancel()
