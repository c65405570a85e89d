"""The other routers of the mesh: every router has a session to every other, and each has admitted the other.

One handshake a pair is enough, whoever opens it: the one that opens admits the one that answers as well. After a
renewal of its credential a router shows the new one to all others.
"""

import logging
from collections.abc import Callable, Iterable
from typing import NoReturn

import trio

from agentmesh.abc import Admission, Direction
from agentmesh.control_plane.client import MeshInfo
from agentmesh.control_plane.errors import ControlPlaneError
from agentmesh.control_plane.routers import RouterRecord
from agentmesh.credentials import ROLE_ROUTER
from agentmesh.errors import CredentialError, DialError, RemoteProtocolError
from agentmesh.membership import Membership
from agentmesh.protocols.auth import AUTH_ID, authenticate
from agentmesh.runtime.admission import AdmissionBook
from agentmesh.runtime.guard import Signal
from agentmesh.runtime.host import Host
from agentmesh.types import PeerId

logger = logging.getLogger(__name__)

STEADY_INTERVAL = 30.0  # seconds between two looks at the list of routers
JOIN_INTERVAL = 2.0  # the same while one that is listed is not joined
JOIN_TIMEOUT = 10.0  # seconds to have a session to a router and be admitted there
REFRESH_INTERVAL = 1.0  # seconds for which a list that was read is good enough for whoever wants it fresh
PROTECTION = "agentmesh-federation"

JOIN_ERRORS = (DialError, CredentialError, RemoteProtocolError, trio.BrokenResourceError, trio.TooSlowError)
INFO_ERRORS = (ControlPlaneError, RemoteProtocolError)

OnPeer = Callable[[PeerId], None]


class Federation:
    """The routers that this one is joined to. `run` keeps them joined.

    Args:
        membership: the router's standing in the mesh.
        admissions: whom the router admits.
    """

    def __init__(self, membership: Membership, admissions: AdmissionBook) -> None:
        self._membership = membership
        self._admissions = admissions
        self._host: Host
        self._bound = trio.Event()
        self._listed: dict[PeerId, RouterRecord] = {}
        self._shown: dict[PeerId, bytes] = {}  # the credential of ours that each has seen; one for every peer
        self._joining: dict[PeerId, trio.Event] = {}
        self._listed_at = -REFRESH_INTERVAL
        self._on_join: list[OnPeer] = []
        self._on_leave: list[OnPeer] = []
        self._wanted = Signal()
        admissions.on_lapse(self._lapsed)
        membership.on_renewed(self._wanted.set)

    @property
    def peers(self) -> frozenset[PeerId]:
        """The routers that this one has a session to, each of which has admitted the other."""
        return frozenset(self._shown)

    @property
    def routers(self) -> frozenset[PeerId]:
        """As `peers`: what a directory calls them."""
        return self.peers

    @property
    def is_whole(self) -> bool:
        """Whether every router that is listed is joined."""
        return not self._missing()

    def on_join(self, callback: OnPeer) -> None:
        """Have `callback(peer)` called, synchronously, when a router is joined. It must not raise."""
        self._on_join.append(callback)

    def on_leave(self, callback: OnPeer) -> None:
        """The same for one that was joined and is not any more. Its session may have ended, or not yet."""
        self._on_leave.append(callback)

    def admitted(self, peer: PeerId) -> None:
        """A router has shown its credential here, and seen ours."""
        self._join(peer, self._membership.token())

    # ── for a directory ──

    async def reach_all(self) -> None:
        """Try once to join every listed router that is not joined, all at once."""
        await self._bound.wait()
        async with trio.open_nursery() as nursery:
            for record in self._missing():
                nursery.start_soon(self._reach, record)

    async def refresh(self) -> bool:
        """Read the list of routers again, unless that was done within the last second, and join the new ones.

        Returns:
            Whether it was read.
        """
        if trio.current_time() - self._listed_at < REFRESH_INTERVAL or not await self._read():
            return False
        await self.reach_all()
        return True

    # ── the loop ──

    def bind(self, host: Host) -> None:
        """Learn which host this is."""
        self._host = host
        self._bound.set()

    async def run(self) -> NoReturn:
        """Follow the control plane's list and join what is on it, until cancelled. To be begun with a lease."""
        while True:
            await self._read()
            await self.reach_all()
            await self._prune()
            with trio.move_on_after(STEADY_INTERVAL if self.is_whole else JOIN_INTERVAL):
                await self._wanted.wait()

    async def _prune(self) -> None:
        """Two that dialled each other at once have two sessions: the one of the greater ID closes its own."""
        me = str(self._host.peer)
        for peer in [peer for peer in self._shown if str(peer) < me]:
            sessions = self._host.connections.sessions_of(peer)
            for session in sessions if len(sessions) > 1 else ():
                if session.direction is Direction.OUTBOUND:
                    await session.aclose()

    async def _read(self) -> bool:
        self._listed_at = trio.current_time()
        try:
            info = await self._membership.info()
        except INFO_ERRORS as exc:
            logger.warning("the list of routers was not read", extra={"reason": exc})
            return False
        self._take(info)
        return True

    def _take(self, info: MeshInfo) -> None:
        wanted = (record for record in info.routers if record.peer not in info.banned)
        self._listed = {record.peer: record for record in wanted if record.peer != self._membership.identity.peer}

    def _missing(self) -> Iterable[RouterRecord]:
        """Those that are not joined, or have not seen our credential as it is now."""
        token = self._membership.token()
        return [record for peer, record in self._listed.items() if self._shown.get(peer) != token]

    async def _reach(self, record: RouterRecord) -> None:
        """Join one router. Whoever asks meanwhile waits for the same attempt."""
        if (underway := self._joining.get(record.peer)) is not None:
            await underway.wait()
            return
        done = self._joining[record.peer] = trio.Event()
        try:
            with trio.fail_after(JOIN_TIMEOUT):
                await self._show(record)
        except JOIN_ERRORS as exc:
            logger.warning(
                "router not joined", extra={"router": record.peer, "reason": str(exc) or "no answer in time"}
            )
        finally:
            del self._joining[record.peer]
            done.set()

    async def _show(self, record: RouterRecord) -> None:
        session = await self._host.connect(record.peer, record.addresses)
        token = self._membership.token()
        async with await session.open_stream(AUTH_ID) as stream:
            theirs = await authenticate(stream, token=token, verify=self._membership.verify, required_role=ROLE_ROUTER)
        if self._host.session(record.peer) is None:  # it ended while we read its last words
            raise DialError(f"the session to {record.peer} ended")
        self._admissions.admit(record.peer, Admission.ROUTER, theirs.expires_at)
        self._join(record.peer, token)

    # ── who is joined ──

    def _join(self, peer: PeerId, token: bytes) -> None:
        new = peer not in self._shown
        self._shown[peer] = token
        if new:
            logger.info("router joined", extra={"router": peer})
            self._host.connections.protect(peer, PROTECTION)
            for callback in self._on_join:
                callback(peer)

    def _lapsed(self, peer: PeerId) -> None:
        """Its admission ended: with its last session, its credential, or by a ban."""
        if self._shown.pop(peer, None) is None:
            return
        logger.info("router left", extra={"router": peer})
        self._host.connections.unprotect(peer, PROTECTION)
        for callback in self._on_leave:
            callback(peer)
        self._wanted.set()
