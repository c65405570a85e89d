"""A peer's standing in the mesh: a credential that is renewed in time, and the keys that others' are judged by."""

import logging
import math
import time
from collections.abc import Callable
from random import Random
from typing import NoReturn

import trio

from agentmesh.control_plane.client import MeshInfo
from agentmesh.credentials import Credential, TrustedKeys
from agentmesh.errors import CredentialError
from agentmesh.identity import Identity
from agentmesh.membership.bans import Bans
from agentmesh.membership.enrollment import Enrollment
from agentmesh.membership.entry import PLANE_ERRORS, Entry
from agentmesh.membership.kept_rules import KeptRules
from agentmesh.membership.plane import PlaneClient
from agentmesh.membership.renewal import renewal_wait, retry_wait
from agentmesh.membership.state import SavedCredential, StateDir
from agentmesh.membership.verifier import Verifier
from agentmesh.runtime.nursery import open_background
from agentmesh.types import PeerId

logger = logging.getLogger(__name__)

KEYS_SYNC_INTERVAL = 300.0  # seconds
MIN_KEYS_SYNC_INTERVAL = 5.0  # seconds, however many credentials there are of keys that we do not know
ROTATION_SPREAD = 30.0  # seconds within which members that were told of a new key ask for new credentials
FIRST_INFO_WAIT = 2.0  # seconds
INFO_SYNC_INTERVAL = 900.0  # seconds between two looks at who is banned, stretched by up to a tenth
INFO_RETRY_INTERVAL = 30.0  # the same when the last look failed
WAITING_INTERVAL = 10.0  # seconds between two words on a control plane that keeps us waiting
CLOCK_CHECK_INTERVAL = 600.0  # seconds; a machine that slept finds out this late what its wall clock says


class Membership:
    """A peer's standing in the mesh. Made by `open_membership`.

    Args:
        identity: who we are.
        client: for calls of the control plane.
        enrollment: how to get in.
        state: what outlives the process; None keeps nothing.
        wall_clock: seconds since 1970; credentials expire by it.

    Attributes:
        bans: who is out of the mesh, as far as we have heard.
        mesh_info: what the control plane said last of the mesh.
    """

    def __init__(
        self,
        identity: Identity,
        client: PlaneClient,
        enrollment: Enrollment,
        state: StateDir | None = None,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.identity = identity
        self.client = client
        self.wall_clock = wall_clock
        self.bans = Bans()
        self.mesh_info = MeshInfo(())
        self._mesh = enrollment.mesh
        self._state = state
        self._verifier = Verifier(wall_clock)
        self._entry = Entry(identity, client, enrollment, self._verifier, wall_clock)
        self._credential: Credential
        self._renewing = trio.Lock()
        self._issued_under: frozenset[bytes] = frozenset()  # the keys that there were when our credential was issued
        self._unknown_key = trio.Event()  # somebody showed a credential of one
        self._keys_spread = 0.0  # seconds within which a fleet that learned of a key at once asks for the keys
        self._on_renewed: list[Callable[[], None]] = []
        self._rng = Random(str(identity.peer))  # spreads the requests of a fleet
        self._info_at = -math.inf  # when the mesh was last asked about, on Trio's clock

    @property
    def credential(self) -> Credential:
        """Our own, as it is now."""
        return self._credential

    @property
    def trusted(self) -> TrustedKeys:
        """The keys whose credentials are honoured."""
        return self._verifier.trusted

    @property
    def kept_rules(self) -> KeptRules | None:
        """Where the mesh's policy outlives the process."""
        return KeptRules(self._state.path, self._mesh) if self._state else None

    def token(self) -> bytes:
        """Our credential as it is shown to others."""
        return self._credential.token

    def verify(self, token: bytes, peer: PeerId) -> Credential:
        """What a token says of `peer`. Cheap for the token that the peer showed last.

        Raises:
            CredentialError: it does not admit the peer, or the peer is banned.
        """
        if peer in self.bans:
            raise CredentialError(f"{peer} is banned", "banned")
        try:
            return self._verifier.verify(token, peer)
        except CredentialError as exc:
            if exc.reason == "untrusted":
                self._unknown_key.set()  # the control plane may have a new one, and be faster with it than we
            raise

    async def info(self) -> MeshInfo:
        """The mesh as the control plane sees it, and with it who is banned: `bans` are those from here on.

        Raises and cancellation: as the client's `info`.
        """
        asked_at = self.wall_clock()
        info = await self.client.info()
        self._info_at, self.mesh_info = trio.current_time(), info
        self.bans.reconcile(info.banned, asked_at)
        if self.identity.peer in info.banned:
            logger.error("this member is banned from the mesh", extra={"peer": self.identity.peer})
        return info

    def adopt(self, key: bytes) -> None:
        """Honour a key that takes over, by the word of one that is trusted; the control plane is asked about it soon.

        Args:
            key: 32 bytes.
        """
        if key not in self.trusted.keys:
            self._verifier.trust(self.trusted.add(key))
            self._try_save()
            self._keys_spread = ROTATION_SPREAD
            self._unknown_key.set()

    def on_renewed(self, callback: Callable[[], None]) -> None:
        """Have `callback()` called, synchronously, after each renewal: peers must be shown the new credential. It must
        not raise.
        """
        self._on_renewed.append(callback)

    async def begin(self) -> None:
        """Resume with the saved credential, or enroll. To be called once, before anything else.

        Raises:
            CredentialError: there is nothing to resume with, and no token.
            ControlPlaneError, RemoteProtocolError: the control plane does not let us in, or does not answer.
            StateError, OSError: the state folder.
        Cancellation: safe. If the control plane has enrolled us by then, whoever begins again with the same identity
            is given that credential, even when the token is spent.
        """
        saved = self._state.load() if self._state else None
        async with open_background() as nursery:
            nursery.start_soon(self._say_that_it_waits)
            resumed = await self._entry.resume(saved) if saved else None
            self._credential = resumed or await self._entry.enroll(self._lack())
        # Of a saved credential nobody remembers. With one key there is no doubt; else it is renewed at the first look.
        self._issued_under = self.trusted.keys if resumed is None or len(self.trusted.keys) == 1 else frozenset()
        if saved is None or saved.token != self._credential.token:
            self._save()
        elif saved.trusted != self.trusted:
            self._try_save()

    async def run(self) -> NoReturn:
        """Renew the credential in time and follow the control plane's keys, until cancelled.

        Raises:
            ExceptionGroup: of one CredentialError: the credential has expired and there is no way to a new one.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._follow_keys)
            nursery.start_soon(self._follow_bans)
            wait = renewal_wait
            while True:
                now = self.wall_clock()
                await self._sleep_until(now + wait(now, self._credential.expires_at))
                wait = renewal_wait if await self.renew() else retry_wait

    async def renew(self) -> bool:
        """Get a new credential now; when somebody else is at it, wait for that one.

        Returns:
            Whether there is a new one. A control plane that does not answer, or refuses, is no error while the old one
            is good.
        Raises:
            CredentialError: the old one has expired.
        """
        old = self._credential
        async with self._renewing:
            if self._credential is not old:
                return True
            try:
                self._credential = await self._entry.reissue(old.token)
            except (*PLANE_ERRORS, CredentialError) as exc:
                if self.wall_clock() > old.expires_at:
                    raise CredentialError(f"the credential has expired and is not renewed: {exc}", "expired") from exc
                logger.warning("credential not renewed", extra={"reason": exc, "expires_at": old.expires_at})
                return False
            self._issued_under = self.trusted.keys
            self._try_save()  # before anybody else runs: only the last credential issued can be renewed
        logger.info("credential renewed", extra={"expires_at": self._credential.expires_at})
        for callback in self._on_renewed:
            callback()
        return True

    async def _say_that_it_waits(self) -> NoReturn:
        """For whoever sits before it: a control plane that is down is an error only when the time for it is over."""
        while True:
            await trio.sleep(WAITING_INTERVAL)
            logger.warning(
                "not in yet: the control plane does not answer, or an admin has to approve",
                extra={"control_plane": self._mesh, "peer": self.identity.peer},
            )

    def _lack(self) -> str:
        where = f" in {self._state.path}" if self._state else ""
        return f"there is no credential{where} that {self._mesh} honours"

    def _save(self) -> None:
        if self._state is not None:
            credential = self._credential
            self._state.save(SavedCredential(self._mesh, credential.token, credential.expires_at, self.trusted))

    def _try_save(self) -> None:
        """A member that is up stays up on a full disk; when it starts again it is given the last credential issued."""
        try:
            self._save()
        except OSError as exc:
            logger.error("credential not saved", extra={"reason": exc})

    async def _follow_keys(self) -> NoReturn:
        while True:
            with trio.move_on_after(KEYS_SYNC_INTERVAL):
                await trio.sleep(MIN_KEYS_SYNC_INTERVAL)
                await self._unknown_key.wait()
                await trio.sleep(self._keys_spread * self._rng.random())
            self._unknown_key, self._keys_spread = trio.Event(), 0.0
            try:
                trusted = await self.client.keys(self.trusted)
            except PLANE_ERRORS as exc:
                logger.warning("the control plane's keys were not read", extra={"reason": exc})
                continue
            if trusted != self.trusted:
                logger.info("the control plane's keys changed", extra={"keys": len(trusted.keys)})
                self._verifier.trust(trusted)
                self._try_save()
            if not trusted.keys <= self._issued_under:
                await self.renew()  # what signed our credential may have retired, and is not honoured for long then

    async def _follow_bans(self) -> NoReturn:
        """Ask who is banned whenever nobody has, for another reason, in a while."""
        wait = FIRST_INFO_WAIT
        while True:
            await trio.sleep(wait)
            since = trio.current_time() - self._info_at
            if since < INFO_SYNC_INTERVAL:
                wait = (INFO_SYNC_INTERVAL - since) * (1 + self._rng.random() / 10)
                continue
            try:
                await self.info()
                wait = INFO_SYNC_INTERVAL
            except PLANE_ERRORS as exc:
                logger.warning("who is banned was not read", extra={"reason": exc})
                wait = INFO_RETRY_INTERVAL * (1 + self._rng.random() / 10)

    async def _sleep_until(self, instant: float) -> None:
        """Until the wall clock says `instant`, however it jumps."""
        while (left := instant - self.wall_clock()) > 0:  # noqa: ASYNC110 - nothing tells when a clock is set
            await trio.sleep(min(left, CLOCK_CHECK_INTERVAL))
