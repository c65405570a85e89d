"""At which routers this node is admitted. A router relays only between those it has admitted, so before a circuit
through one there is a handshake, on the very session that the circuit will use.
"""

import math
from collections.abc import Sequence
from contextlib import suppress
from random import Random

import trio

from agentmesh.credentials import ROLE_ROUTER
from agentmesh.errors import CredentialError, DialError, RejectedError, RemoteProtocolError, SessionClosedError
from agentmesh.membership import Membership
from agentmesh.membership.readmission import readmit
from agentmesh.node.catalogue import Catalogue
from agentmesh.protocols.auth import AUTH_ID, authenticate
from agentmesh.runtime.guard import Signal
from agentmesh.runtime.host import Host
from agentmesh.runtime.session import MuxSession
from agentmesh.types import Address, PeerId

ADMIT_ERRORS = (DialError, CredentialError, RemoteProtocolError, trio.BrokenResourceError, trio.TooSlowError)
EXPIRY_SPREAD = 300.0  # seconds before a router's credential ends in which its members ask for the next one


class RouterAdmissions:
    """The routers that have admitted this node, each on its open session; they come and go with it.

    Args:
        membership: the node's standing in the mesh.
        catalogue: which peers are routers, and where they are.
        rng: spreads the handshakes of a fleet.
    """

    def __init__(self, membership: Membership, catalogue: Catalogue, rng: Random) -> None:
        self._membership = membership
        self._catalogue = catalogue
        self._rng = rng
        self._due: dict[PeerId, float] = {}  # wall-clock seconds at which each has to show a new credential
        self._handshakes: dict[PeerId, trio.Lock] = {}
        self._changed = Signal()
        self._bound = trio.Event()
        self._host: Host

    def __contains__(self, router: PeerId) -> bool:
        return router in self._due

    def __len__(self) -> int:
        return len(self._due)

    async def run(self, host: Host) -> None:
        """Keep the admissions of an open host in step with its credential and its sessions, until cancelled."""
        self._host = host
        host.on_disconnect(self._forget)
        self._membership.on_renewed(self._renewed)
        self._bound.set()
        async with trio.open_nursery() as nursery:
            while True:
                now = self._membership.wall_clock()
                for router in [router for router, due in self._due.items() if due <= now]:
                    self._due[router] = math.inf
                    nursery.start_soon(readmit, self._host, router, self._show)
                with trio.move_on_after(min(self._due.values(), default=math.inf) - now):
                    await self._changed.wait()

    async def connect(self, relay: PeerId, addresses: Sequence[Address]) -> None:
        """Have a session to a relay, for a circuit. If it is a router of this mesh, listed or not, be admitted there.

        Args:
            relay: the relay.
            addresses: where it is, in case that it is none of our routers.
        Raises:
            DialError: no session.
            Otherwise as `open_session`.
        Cancellation: safe.
        """
        await self._bound.wait()
        if self._catalogue.state(relay) is None:
            session = await self._host.connect(relay, addresses)
            with suppress(RejectedError, CredentialError):  # no router: it relays for whomever it likes
                await self._admit_once(session)
        else:
            await self.open_session(relay)

    async def open_session(self, router: PeerId) -> MuxSession:
        """A session to a router that admits us; the standing one if there is one.

        Raises:
            DialError: no session.
            RejectedError: it does not admit us.
            CredentialError: its own credential is not honoured, or not a router's.
            RemoteProtocolError, BrokenResourceError, TooSlowError: as `authenticate`.
        Cancellation: safe. A session without admission is not kept, unless somebody else is about to be admitted there.
        """
        session = await self._host.connect(router, self._catalogue.addresses(router))
        try:
            await self._admit_once(session)
        finally:
            if router not in self and router not in self._handshakes:
                session.abort("not admitted there")
        return session

    async def _admit_once(self, session: MuxSession) -> None:
        """Be admitted at the router at the end of a session. Whoever asks meanwhile shares the one handshake."""
        router = session.peer
        lock = self._handshakes.setdefault(router, trio.Lock())
        try:
            async with lock:
                if router not in self:
                    await self._show(session)
        finally:
            if not lock.locked():
                self._handshakes.pop(router, None)

    async def _show(self, session: MuxSession) -> None:
        async with await session.open_stream(AUTH_ID) as stream:
            token = self._membership.token()
            credential = await authenticate(
                stream, token=token, verify=self._membership.verify, required_role=ROLE_ROUTER
            )
            if self._host.session(session.peer) is None:  # it ended while we read its last words
                raise SessionClosedError(f"the session to {session.peer} ended")
            due = credential.expires_at - EXPIRY_SPREAD * self._rng.random()
            self._due[session.peer] = due if token == self._membership.token() else -math.inf  # renewed meanwhile
            self._changed.set()

    def _renewed(self) -> None:
        """Our credential is new: the old one opened every one of these, and they would close with it."""
        self._due = dict.fromkeys(self._due, -math.inf)
        self._changed.set()

    def _forget(self, peer: PeerId) -> None:
        self._due.pop(peer, None)
