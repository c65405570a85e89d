"""What comes out of auth's two machines."""

import attrs


@attrs.frozen
class CredentialShown:
    """The peer's credential, not verified yet: that takes keys and a clock, which a machine has not."""

    token: bytes = attrs.field(repr=False)


@attrs.frozen
class Declined:
    """The answerer said no and why. The machine is finished."""

    reason: str  # its words, cut to MAX_ERROR_CHARS


@attrs.frozen
class FrameBroken:
    """What came was no AuthFrame. The machine is finished."""


@attrs.frozen
class PeerLeft:
    """The stream ended before the peer's message was complete. The machine is finished."""


@attrs.frozen
class TimedOut:
    """The peer's message did not come in time. The machine is finished."""


AnswererEvent = CredentialShown | FrameBroken | PeerLeft | TimedOut
OpenerEvent = CredentialShown | Declined | TimedOut
