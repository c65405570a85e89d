"""The handshake over streams."""

import enum
from collections.abc import Callable
from typing import NoReturn

import attrs
import trio

from agentmesh.abc import Stream, StreamLimits
from agentmesh.credentials import Credential
from agentmesh.errors import CredentialError, ErrorCode, RejectedError, RemoteProtocolError
from agentmesh.protocols.auth.events import CredentialShown, Declined, FrameBroken
from agentmesh.protocols.auth.limiter import PeerLimiter
from agentmesh.protocols.auth.machine import AUTH_TIMEOUT, Answerer, Opener
from agentmesh.protocols.auth.wire import AUTH_ID
from agentmesh.runtime.messages import flush, wait_event
from agentmesh.runtime.registry import Protocol
from agentmesh.types import PeerId

MAX_STREAMS_PER_PEER = 4

Verify = Callable[[bytes, PeerId], Credential]


class Result(enum.StrEnum):
    """How a handshake that a peer opened ended."""

    OK = "ok"
    BANNED = "banned"
    RATE_LIMITED = "rate_limited"
    READ_FAILED = "read_failed"
    INVALID_FRAME = "invalid_frame"
    UNAUTHORIZED = "unauthorized"


class AuthStatistics:
    """How often each Result came about; every one of them is there from the start, at 0."""

    def __init__(self) -> None:
        self.results: dict[Result, int] = dict.fromkeys(Result, 0)

    def count(self, result: Result) -> None:
        self.results[result] += 1


@attrs.frozen
class AuthPolicy:
    """Whom to let in, and what to show. All of these are called from the handshake's task and must not block.

    Attributes:
        verify: the credential in a token that a peer shows; raises CredentialError when it does not admit that peer.
        own: our own token, as it is now.
        admit: called with every credential that verified. A RejectedError from it refuses the peer after all.
        is_banned: whether to refuse a peer whatever it shows.
    """

    verify: Verify
    own: Callable[[], bytes]
    admit: Callable[[PeerId, Credential], None]
    is_banned: Callable[[PeerId], bool] = lambda peer: False


def protocol(
    policy: AuthPolicy, limiter: PeerLimiter | None = None, statistics: AuthStatistics | None = None
) -> Protocol:
    """The answering side.

    Args:
        policy: whom to let in, and what to show.
        limiter: how often one peer may try; 5 a second, 10 at once, when it is None.
        statistics: where to count.
    """
    server = _Server(policy, limiter or PeerLimiter(), statistics or AuthStatistics())
    return Protocol(AUTH_ID, server.serve, limits=StreamLimits(MAX_STREAMS_PER_PEER))


async def authenticate(stream: Stream, *, token: bytes, verify: Verify, required_role: str | None = None) -> Credential:
    """Show our credential on a stream opened for AUTH_ID, and take the peer's.

    Args:
        stream: stays the caller's to close.
        token: our credential.
        verify: as in AuthPolicy; it is given the answerer's token and `stream.peer`.
        required_role: what the answerer's role must be; None takes any.
    Returns:
        The answerer's credential. By then the answerer has admitted us.
    Raises:
        RejectedError: it does not admit us (GATED), or not now (RATE_LIMITED).
        CredentialError: its own credential is not valid, or of another role (`reason` "wrong_role").
        RemoteProtocolError: it broke the protocol.
        TooSlowError: no answer within AUTH_TIMEOUT.
        BrokenResourceError: the stream broke.
    Cancellation: safe; whether the peer has admitted us is then unknown.
    """
    opener = Opener()
    opener.send_credential(token, trio.current_time())
    match await wait_event(opener, stream):
        case CredentialShown(theirs):
            return _with_role(verify(theirs, stream.peer), required_role)
        case Declined(reason):
            raise RejectedError(f"{stream.peer} does not admit us: {reason}", ErrorCode.GATED)
        case _:
            raise trio.TooSlowError(f"no answer from {stream.peer} within {AUTH_TIMEOUT} s")


def _with_role(credential: Credential, role: str | None) -> Credential:
    if role is not None and credential.role != role:
        raise CredentialError(f"{credential.peer} has role {credential.role}, needed is {role}", "wrong_role")
    return credential


@attrs.frozen
class _Server:
    policy: AuthPolicy
    limiter: PeerLimiter
    statistics: AuthStatistics

    async def serve(self, stream: Stream) -> None:
        """Answer one handshake. Every refusal is raised: the runtime resets the stream with its code."""
        self._check_ban(stream.peer)
        if not self.limiter.allow(stream.peer, trio.current_time()):
            self._refuse(Result.RATE_LIMITED, "too many handshakes", ErrorCode.RATE_LIMITED)
        answerer = Answerer(trio.current_time())
        token = await self._read(stream, answerer)
        self._admit(stream.peer, token)
        answerer.send_answer(self.policy.own())
        await flush(answerer, stream)

    async def _read(self, stream: Stream, answerer: Answerer) -> bytes:
        try:
            event = await wait_event(answerer, stream)
        except (trio.BrokenResourceError, trio.TooSlowError):
            self.statistics.count(Result.READ_FAILED)
            raise
        match event:
            case CredentialShown(token):
                return token
            case FrameBroken():
                self.statistics.count(Result.INVALID_FRAME)
                raise RemoteProtocolError("no AuthFrame")
            case _:
                self.statistics.count(Result.READ_FAILED)
                raise RemoteProtocolError("the AuthFrame did not come in time")

    def _admit(self, peer: PeerId, token: bytes) -> None:
        self._check_ban(peer)  # once more: a ban may have come while we waited
        try:
            self.policy.admit(peer, self.policy.verify(token, peer))
        except CredentialError as exc:
            self._refuse(Result.UNAUTHORIZED, f"credential {exc.reason}", ErrorCode.GATED)
        except RejectedError as exc:
            self._refuse(Result.UNAUTHORIZED, str(exc), exc.code)
        self.statistics.count(Result.OK)

    def _check_ban(self, peer: PeerId) -> None:
        if self.policy.is_banned(peer):
            self._refuse(Result.BANNED, "banned", ErrorCode.GATED)

    def _refuse(self, result: Result, reason: str, code: int) -> NoReturn:
        self.statistics.count(result)
        raise RejectedError(reason, code)
