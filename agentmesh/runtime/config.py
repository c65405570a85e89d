"""Every setting of a host, with its unit and default."""

import attrs

from agentmesh.runtime.yamux import Allowance, MuxLimits

LOW_SHARE = 0.85  # of the high watermark
SOURCE_SHARE = 0.25
ARRIVALS_PER_SECOND = 0.2  # of a source that may hold STOCK_PER_SOURCE connections: libp2p's proportion
STOCK_PER_SOURCE = 8


@attrs.frozen
class SessionConfig:
    """Settings of one session."""

    ping_interval: float = 15.0
    """Seconds between pings; a silent peer is lost within three of them."""
    close_timeout: float = 2.0
    """Seconds a graceful close may take to send what is queued."""
    negotiation_timeout: float = 10.0
    """Seconds an inbound stream has to name its protocol."""
    send_buffer_bytes: int = 64 * 1024
    """What `send_all` may leave queued when it returns, so that the writer always has a next frame."""
    write_bytes: int = 256 * 1024
    """How much the writer joins into one write of the link."""
    mux: MuxLimits = MuxLimits()


@attrs.frozen
class ConnectionLimits:
    """Settings of the connection manager."""

    high_watermark: int = 4000
    """Sessions above which some are closed: those without a tag first, those with a protection never."""
    low_watermark: int = attrs.field(default=attrs.Factory(lambda self: _low(self.high_watermark), takes_self=True))
    """Sessions that are left after that; 15% below the high watermark unless set."""
    max_per_source: int = attrs.field(default=attrs.Factory(lambda self: _share(self.high_watermark), takes_self=True))
    """Inbound connections of one source address (/32 of IPv4, /56 of IPv6), and half of how many it may open at once;
    loopback is exempt. A quarter of the high watermark unless set.
    """
    max_handshakes: int = 512
    """Inbound handshakes under way at once; further connections are closed."""
    max_handshakes_per_source: int = 128
    """Those among them of one source address, so that one cannot take all the places."""
    max_held_bytes: int = 1024 * 1024 * 1024
    """What all sessions together may hold in memory: received and not read, queued and not sent. Beyond it the session
    that holds most ends.
    """
    max_host_window_bytes: int = 1024 * 1024 * 1024
    """Growth of the receive windows of all sessions together."""

    def __attrs_post_init__(self) -> None:
        if self.low_watermark >= self.high_watermark:
            raise ValueError(f"low_watermark {self.low_watermark} is not below high_watermark {self.high_watermark}")

    @property
    def arrivals(self) -> Allowance:
        """How fast one source address may open connections."""
        per_second = ARRIVALS_PER_SECOND * self.max_per_source / STOCK_PER_SOURCE
        return Allowance(burst=2 * self.max_per_source, per_second=per_second)


def _low(high_watermark: int) -> int:
    return int(high_watermark * LOW_SHARE)


def _share(high_watermark: int) -> int:
    return max(int(high_watermark * SOURCE_SHARE), 1)


@attrs.frozen
class HostConfig:
    """Settings of a host."""

    handshake_timeout: float = 10.0
    """Seconds from a connection's first byte to an authenticated session."""
    dial_timeout: float = 15.0
    """Seconds that a dial may take over all its addresses, the handshake included."""
    close_timeout: float = 3.0
    """Seconds that leaving the host's block may take."""
    max_dial_addresses: int = 16
    """Addresses of one peer that are tried."""
    dial_stagger: float = 0.25
    """Seconds after which the next address is tried too, when those before it have neither failed nor answered."""
    session: SessionConfig = SessionConfig()
    connections: ConnectionLimits = ConnectionLimits()
