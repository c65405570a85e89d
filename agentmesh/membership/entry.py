"""The ways to a credential of our own: the saved one, a first one, the next one."""

import logging
from collections.abc import Callable

import trio

from agentmesh.control_plane.client import Issued
from agentmesh.control_plane.errors import (
    ControlPlaneError,
    EnrollmentRejectedError,
    RequestRefusedError,
    UnauthorizedError,
)
from agentmesh.credentials import Credential, TrustedKeys
from agentmesh.errors import CredentialError, RemoteProtocolError
from agentmesh.identity import Identity
from agentmesh.membership.enrollment import Enrollment
from agentmesh.membership.plane import PlaneClient
from agentmesh.membership.state import SavedCredential
from agentmesh.membership.verifier import Verifier

logger = logging.getLogger(__name__)

MIN_RESUME_LEFT = 300.0  # seconds a saved credential must still be good for
RESUME_SYNC_TIMEOUT = 10.0  # seconds that resuming waits for the control plane's keys
NO_CREDENTIAL = b"\0"  # what a client that holds none asks to have renewed; it must not be empty
PLANE_ERRORS = (ControlPlaneError, RemoteProtocolError)


class Entry:
    """Gets credentials, and keeps the verifier in step with the control plane that they come from.

    Whatever comes out is judged as others will judge it, with the keys that are trusted now. All but `resume` raise
    CredentialError for what does not pass, and ControlPlaneError or RemoteProtocolError as the client does.

    Args:
        identity: who we are.
        client: for calls of the control plane.
        enrollment: how to get in.
        verifier: judges; its keys are set here.
        wall_clock: seconds since 1970.
    """

    def __init__(
        self,
        identity: Identity,
        client: PlaneClient,
        enrollment: Enrollment,
        verifier: Verifier,
        wall_clock: Callable[[], float],
    ) -> None:
        self._identity = identity
        self._client = client
        self._enrollment = enrollment
        self._verifier = verifier
        self._wall_clock = wall_clock

    async def resume(self, saved: SavedCredential) -> Credential | None:
        """The saved credential, or None when it is of no use.

        It needs no control plane; but one that answers is asked for its keys first. When it is another one by now, and
        we have a way in, the credential is of no use. One that has expired is shown to the control plane, which may
        redeem it all the same.

        Raises:
            ControlPlaneError, RemoteProtocolError: the credential has expired, and the control plane does not answer.
        """
        if saved.control_plane != self._enrollment.mesh:
            logger.warning("the saved credential is for another mesh", extra={"control_plane": saved.control_plane})
            return None
        try:
            self._judge(saved.token, saved.trusted)
            credential = self._judge(saved.token, await self._current_keys(saved.trusted))
            if credential.expires_at - self._wall_clock() < MIN_RESUME_LEFT:
                raise CredentialError("it is about to expire", "expired")
        except CredentialError as exc:
            logger.warning("the saved credential is of no use", extra={"reason": exc})
            return await self._recover(saved) if exc.reason == "expired" else None
        logger.info("resumed", extra={"peer": credential.peer, "role": credential.role})
        self._compare_labels(credential)
        return credential

    async def enroll(self, lack: str) -> Credential:
        """A first credential, or another one when the last is not honoured. The keys come with it.

        Args:
            lack: why one is needed, for the error that says that there is no way in.
        """
        token, role = self._enrollment.token or "", self._enrollment.role
        if not self._enrollment.is_invited:
            raise CredentialError(f"{lack}, and no bootstrap token to enroll with", "expired")
        logger.info("enrolling", extra={"peer": self._identity.peer, "role": role})
        try:
            issued = await self._client.enroll(token, role=role, labels=self._enrollment.labels)
        except EnrollmentRejectedError as rejected:
            issued = await self._issued_before(rejected)
        credential = self._judge(issued.credential, await self._client.keys())
        logger.info("enrolled", extra={"peer": credential.peer, "role": credential.role})
        return credential

    async def reissue(self, token: bytes) -> Credential:
        """The credential that comes after the last one, `token`; by enrolling again when that is not honoured."""
        try:
            issued = await self._client.refresh(token)
        except UnauthorizedError as exc:
            logger.warning("the control plane does not honour our credential", extra={"reason": exc})
            return await self.enroll(str(exc))
        try:
            return self._judge(issued.credential, self._verifier.trusted)
        except CredentialError:  # signed with a key that is newer than our last look
            return self._judge(issued.credential, await self._client.keys(self._verifier.trusted))

    async def _recover(self, saved: SavedCredential) -> Credential | None:
        """A new credential for the saved one, which is over; None when the control plane does not redeem it."""
        try:
            issued = await self._client.refresh(saved.token)
        except RequestRefusedError as exc:
            logger.info("it is not redeemed any more", extra={"reason": exc})
            return None
        try:
            keys = await self._client.keys(saved.trusted)
        except RemoteProtocolError:  # we were away for long: those that we knew may have retired, as when we first came
            keys = await self._client.keys()
        credential = self._judge(issued.credential, keys)
        logger.info("recovered", extra={"peer": credential.peer, "role": credential.role})
        return credential

    async def _current_keys(self, saved: TrustedKeys) -> TrustedKeys:
        """The control plane's keys; those that were saved when it is away."""
        reason: object = f"no answer within {RESUME_SYNC_TIMEOUT} s"
        with trio.move_on_after(RESUME_SYNC_TIMEOUT):
            try:
                return await self._client.keys(saved)
            except RemoteProtocolError as exc:
                if self._enrollment.is_invited:
                    raise CredentialError(f"the control plane has other keys: {exc}", "untrusted") from exc
                reason = exc
            except ControlPlaneError as exc:
                reason = exc
        logger.warning("resuming without the control plane", extra={"reason": reason})
        return saved

    def _compare_labels(self, credential: Credential) -> None:
        """Say so when labels are asked for that a saved credential lacks: it has those of its enrollment for good."""
        asked = self._enrollment.labels.items()
        if lacking := " ".join(sorted(f"{key}={value}" for key, value in asked if credential.labels.get(key) != value)):
            advice = "to have them attested, enroll anew, with an empty data folder"
            logger.warning("the saved credential lacks labels", extra={"labels": lacking, "advice": advice})

    async def _issued_before(self, rejected: EnrollmentRejectedError) -> Issued:
        """What an enrollment of ours was answered with when we were not there to hear it; its token may be spent."""
        try:
            return await self._client.refresh(NO_CREDENTIAL)
        except PLANE_ERRORS:
            raise rejected from None

    def _judge(self, token: bytes, trusted: TrustedKeys) -> Credential:
        self._verifier.trust(trusted)
        credential, role = self._verifier.verify(token, self._identity.peer), self._enrollment.role
        if role and credential.role != role:
            raise CredentialError(f"our credential is for role {credential.role}, needed is {role}", "wrong_role")
        return credential
