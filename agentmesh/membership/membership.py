"""Enrolling with the control plane, keeping the credential fresh, and judging the credentials of others by its keys."""

import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import NoReturn

import attrs
import trio

from agentmesh.control_plane.client import ControlPlaneClient, Issued, open_client
from agentmesh.control_plane.errors import ControlPlaneUnavailableError, UnauthorizedError
from agentmesh.credentials import Credential, TrustedKeys, verify
from agentmesh.errors import CredentialError, RemoteProtocolError
from agentmesh.identity import Identity
from agentmesh.membership.renewal import RETRY_WAIT, renewal_wait
from agentmesh.membership.state import SavedCredential, StateDir
from agentmesh.types import PeerId

logger = logging.getLogger(__name__)

MIN_RESUME_LEFT = 300.0  # seconds a saved credential must still be good for
KEYS_SYNC_INTERVAL = 300.0


@attrs.frozen(kw_only=True)
class Enrollment:
    """How a peer gets into the mesh.

    Attributes:
        control_plane: its URL.
        token: a bootstrap token; not needed to resume with a saved credential.
        role: what the peer means to be; "" leaves it to the token.
        labels: what the control plane is to attest.
    """

    control_plane: str
    token: str | None = attrs.field(default=None, repr=False)
    role: str = ""
    labels: Mapping[str, str] = attrs.field(factory=dict[str, str])


class Membership:
    """A peer's standing in the mesh. Made by `open_membership`.

    Attributes:
        identity: who we are.
        client: for calls of the control plane.
        trusted: the keys whose credentials are honoured.
    """

    def __init__(
        self,
        identity: Identity,
        client: ControlPlaneClient,
        enrollment: Enrollment,
        state: StateDir | None,
        wall_clock: Callable[[], float],
    ) -> None:
        self.identity = identity
        self.client = client
        self.trusted = TrustedKeys()
        self._enrollment = enrollment
        self._state = state
        self._wall_clock = wall_clock
        self._credential: Credential
        self._on_renewed: list[Callable[[], None]] = []

    @property
    def credential(self) -> Credential:
        """Our own, as it is now."""
        return self._credential

    def token(self) -> bytes:
        """Our credential as it is shown to others."""
        return self._credential.token

    def verify(self, token: bytes, peer: PeerId) -> Credential:
        """What a token says of `peer`. Raises CredentialError when it does not admit it."""
        return verify(token, peer=peer, trusted=self.trusted, now=self._wall_clock())

    def on_renewed(self, callback: Callable[[], None]) -> None:
        """Have `callback()` called, synchronously, after each renewal: peers must be shown the new credential."""
        self._on_renewed.append(callback)

    async def begin(self) -> None:
        """Resume with the saved credential, or enroll."""
        if not await self._resume():
            await self._enroll()

    async def run(self) -> NoReturn:
        """Renew the credential in time and follow the control plane's keys, until cancelled.

        Raises:
            CredentialError: the credential has expired and there is no way to a new one.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._follow_keys)
            while True:
                await trio.sleep(renewal_wait(self._wall_clock(), self._credential.expires_at))
                await self.renew()

    async def _resume(self) -> bool:
        saved = self._state.load() if self._state else None
        if saved is None or saved.control_plane != self._enrollment.control_plane:
            return False
        if saved.expires_at - self._wall_clock() < MIN_RESUME_LEFT:
            return False
        self.trusted = saved.trusted
        try:
            self._credential = self.verify(saved.token, self.identity.peer)
            self.trusted = await self.client.keys(saved.trusted)
            self._credential = self.verify(saved.token, self.identity.peer)
        except CredentialError as exc:
            logger.warning("saved credential is of no use", extra={"reason": exc.reason})
            return False
        except (ControlPlaneUnavailableError, RemoteProtocolError) as exc:
            logger.warning("resumed without the control plane", extra={"reason": exc})
        return True

    async def _enroll(self) -> None:
        if self._enrollment.token is None:
            raise CredentialError("no credential to resume with, and no bootstrap token to enroll with", "expired")
        issued = await self.client.enroll(
            self._enrollment.token, role=self._enrollment.role, labels=self._enrollment.labels
        )
        self.trusted = await self.client.keys()
        self._adopt(issued)
        logger.info("enrolled", extra={"peer": self.identity.peer, "role": self._credential.role})

    async def renew(self) -> None:
        """Get a new credential now. A control plane that does not answer is not an error while the old one is good.

        Raises:
            CredentialError: the old one has expired, or is no longer honoured and there is no token to enroll with.
        """
        try:
            issued = await self.client.refresh(self.token())
        except UnauthorizedError:
            await self._enroll()
        except (ControlPlaneUnavailableError, RemoteProtocolError) as exc:
            logger.warning("renewal failed", extra={"reason": exc})
            if self._credential.expires_at <= self._wall_clock():
                raise CredentialError("the credential has expired and cannot be renewed", "expired") from exc
            await trio.sleep(RETRY_WAIT)
            return
        else:
            self._adopt(issued)
        for callback in self._on_renewed:
            callback()

    def _adopt(self, issued: Issued) -> None:
        """Keep before use: only the last credential issued can be renewed."""
        credential = self.verify(issued.credential, self.identity.peer)
        if self._state is not None:
            self._state.save(
                SavedCredential(self._enrollment.control_plane, credential.token, credential.expires_at, self.trusted)
            )
        self._credential = credential

    async def _follow_keys(self) -> None:
        while True:
            await trio.sleep(KEYS_SYNC_INTERVAL)
            try:
                self.trusted = await self.client.keys(self.trusted)
            except (ControlPlaneUnavailableError, RemoteProtocolError) as exc:
                logger.warning("key sync failed", extra={"reason": exc})


@asynccontextmanager
async def open_membership(
    identity: Identity,
    enrollment: Enrollment,
    *,
    state: StateDir | None = None,
    wall_clock: Callable[[], float] = time.time,
) -> AsyncIterator[Membership]:
    """Be in the mesh: resume with what `state` holds, or enroll. `run` then keeps it so.

    Raises:
        CredentialError: nothing to resume with and no token.
        ControlPlaneError: the control plane refused, or was not there for as long as calls are retried.
    """
    async with open_client(enrollment.control_plane, identity, wall_clock=wall_clock) as client:
        membership = Membership(identity, client, enrollment, state, wall_clock)
        await membership.begin()
        yield membership
