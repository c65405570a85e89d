"""Whether a member has the labels that a call requires, by the credential that it shows before anything is sent."""

from collections.abc import Awaitable, Callable, Mapping

import attrs
import trio

from agentmesh.credentials import ROLE_NODE, Credential
from agentmesh.errors import CredentialError, DialError, RejectedError
from agentmesh.membership import Membership
from agentmesh.node.paths import Paths
from agentmesh.protocols.auth import AUTH_ID, authenticate
from agentmesh.services.labels import Labels, suffices
from agentmesh.types import PeerId

SHOW_TIMEOUT = 10.0  # seconds for a member to show its credential
KNOWN_TTL = 300.0  # seconds that labels which suffice are good for
REFUSED_TTL = 1.0  # the same of labels that do not: a member may get others
MAX_KNOWN = 1024  # members; the one that was asked first is forgotten

Show = Callable[[PeerId], Awaitable[Credential]]


@attrs.frozen
class Known:
    """What a member has shown.

    Attributes:
        shown_at, until: when, and until when that is good; seconds on Trio's clock.
    """

    labels: Mapping[str, str]
    shown_at: float
    until: float


class LabelGate:
    """Lets calls through to members that have the right labels.

    Args:
        floor: what the operator requires of every member that is called, all of it.
        show: a member's credential. May raise CredentialError, DialError or RejectedError.
        wall_clock: seconds since 1970, which credentials expire by.
    """

    def __init__(self, floor: Mapping[str, str], show: Show, wall_clock: Callable[[], float]) -> None:
        self._floor = floor
        self._show = show
        self._wall_clock = wall_clock
        self._known: dict[PeerId, Known] = {}
        self._asking: dict[PeerId, trio.Lock] = {}

    def __len__(self) -> int:
        """How many members' labels are remembered."""
        return len(self._known)

    async def check(self, peer: PeerId, any_of: Labels, all_of: Labels = ()) -> None:
        """See to it that a member has one of `any_of`, if there are any, all of `all_of`, and all of the floor.

        Whoever wants to know of one member at the same time asks it once.

        Raises:
            CredentialError: it has not ("unattested"), or its credential is not honoured.
            DialError, RejectedError: it could not be asked.
        Cancellation: safe.
        """
        await trio.lowlevel.checkpoint()
        if not (any_of or all_of or self._floor) or self._verdict(peer, any_of, all_of):
            return
        asking = self._asking.setdefault(peer, trio.Lock())
        try:
            async with asking:
                if self._verdict(peer, any_of, all_of) is None:
                    self._remember(peer, await self._show(peer))
        finally:
            if not asking.locked():
                self._asking.pop(peer, None)
        if not self._verdict(peer, any_of, all_of):
            raise CredentialError(f"{peer} does not have the labels that the call requires", "unattested")

    def _verdict(self, peer: PeerId, any_of: Labels, all_of: Labels) -> bool | None:
        """Whether a member may be called; None when it has to be asked."""
        known, now = self._known.get(peer), trio.current_time()
        if known is None or now >= known.until:
            return None
        if suffices(known.labels, any_of, (*all_of, *self._floor.items())):
            return True
        return False if now < known.shown_at + REFUSED_TTL else None

    def _remember(self, peer: PeerId, credential: Credential) -> None:
        if peer not in self._known and len(self._known) >= MAX_KNOWN:
            del self._known[next(iter(self._known))]
        now, left = trio.current_time(), credential.expires_at - self._wall_clock()
        self._known[peer] = Known(credential.labels, now, now + min(KNOWN_TTL, left))


def show_over(paths: Paths, membership: Membership) -> Show:
    """Ask members for their credentials by the handshake, over the session that the call will use."""

    async def show(peer: PeerId) -> Credential:
        try:
            with trio.fail_after(SHOW_TIMEOUT):
                async with await paths.open_stream(peer, AUTH_ID) as stream:
                    return await authenticate(
                        stream, token=membership.token(), verify=membership.verify, required_role=ROLE_NODE
                    )
        except RejectedError:
            raise
        except (trio.TooSlowError, trio.BrokenResourceError) as exc:
            raise DialError(f"{peer} shows no credential: {exc}") from exc

    return show
