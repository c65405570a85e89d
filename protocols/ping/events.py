"""What comes out of ping's two machines."""

import attrs


@attrs.frozen
class PongReceived:
    """Our 32 bytes came back."""

    rtt: float  # seconds


@attrs.frozen
class PingTimedOut:
    """They did not, in time. The machine is finished."""


@attrs.frozen
class PeerFinished:
    """The peer ended its side between two pings. The machine is finished."""


@attrs.frozen
class PeerIdled:
    """The peer sent nothing for the whole idle time. The machine is finished."""


PingerEvent = PongReceived | PingTimedOut
EchoEvent = PeerFinished | PeerIdled
