"""What a mux tells its driver."""

import attrs

from agentmesh.runtime.yamux.channel import Channel


@attrs.frozen
class ChannelOpened:
    """The peer opened a stream."""

    channel: Channel


@attrs.frozen
class ChannelReadable:
    """Bytes arrived: `Mux.read` has something to give."""

    channel: Channel


@attrs.frozen
class ChannelFinished:
    """The peer sent the last byte of its direction; what was buffered can still be read."""

    channel: Channel


@attrs.frozen
class ChannelReset:
    """The peer cut the stream, or let it stall too long; both directions are over."""

    channel: Channel


@attrs.frozen
class PongReceived:
    """The peer answered the ping of this value."""

    value: int


@attrs.frozen
class GoAwayReceived:
    """The peer will accept no more streams; those open go on."""

    code: int


Event = ChannelOpened | ChannelReadable | ChannelFinished | ChannelReset | PongReceived | GoAwayReceived
