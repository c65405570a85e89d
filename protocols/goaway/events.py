"""What comes out of the two machines, and the value that they carry."""

import enum

import attrs


class Reason(enum.StrEnum):
    """Why a member is sent away."""

    UNSPECIFIED = "UNSPECIFIED"  # or one that a newer router may have
    DRAINING = "DRAINING"  # the router is about to stop
    OVERLOADED = "OVERLOADED"  # it holds more members than it wants to


@attrs.frozen
class GoAway:
    """What a router says. `retry_after` is seconds; 0 leaves it to the member."""

    reason: Reason
    retry_after: float = 0.0


@attrs.frozen
class GoAwayReceived:
    """The router's message is there, whole. The machine is finished."""

    goaway: GoAway


@attrs.frozen
class Acknowledged:
    """The member has ended its side: it has read the message. The machine is finished."""


@attrs.frozen
class PeerLeft:
    """The peer ended its side before it had said anything. The machine is finished."""


@attrs.frozen
class TimedOut:
    """The peer did not do its part in time. The machine is finished."""


ListenerEvent = GoAwayReceived | PeerLeft | TimedOut
SenderEvent = Acknowledged | TimedOut
