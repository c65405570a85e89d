"""What comes out of the two machines."""

import attrs

from agentmesh.types import Address


@attrs.frozen
class Asked:
    """A member's request is there, whole. The router has to `answer`."""

    addresses: tuple[Address, ...]


@attrs.frozen
class Answered:
    """The router reached us at these. The machine is finished."""

    addresses: tuple[Address, ...]


@attrs.frozen
class PeerLeft:
    """The peer ended its side before it had said anything. The machine is finished."""


@attrs.frozen
class TimedOut:
    """The peer did not do its part in time. The machine is finished."""


AskerEvent = Answered | PeerLeft | TimedOut
AnswererEvent = Asked | PeerLeft | TimedOut
