"""What one mux allows its peer, and what each number defends against."""

import attrs

INITIAL_WINDOW = 256 * 1024  # bytes either side may send on a new stream; fixed by the specification


@attrs.frozen
class MuxLimits:
    """Bounds of one mux. A peer that exceeds one is refused or cut off; nothing grows beyond them."""

    max_inbound_streams: int = 4096
    """Streams that the peer may hold open at once; one more is reset with RESOURCE_LIMIT_EXCEEDED."""
    max_outbound_streams: int = 65536
    """Streams that we open at once."""
    max_window_bytes: int = 16 * 1024 * 1024
    """How far one stream's receive window may grow: the bandwidth-delay product it can fill."""
    max_session_window_bytes: int = 64 * 1024 * 1024
    """Growth of all windows of the session together, so that many fast streams do not multiply the former."""
    max_frame_bytes: int = 64 * 1024
    """The largest data frame sent: one stream's turn when several have something to say."""
    max_control_bytes: int = 256 * 1024
    """Control frames waiting for the link: a peer that causes more of them than it reads (pings, opens) is cut off."""
    linger_timeout: float = 60.0
    """Seconds that a closed stream waits for the peer, to end it and to take the last bytes, before it is reset."""

    def __attrs_post_init__(self) -> None:
        if self.max_window_bytes < INITIAL_WINDOW:
            raise ValueError(f"max_window_bytes {self.max_window_bytes} is below yamux's own {INITIAL_WINDOW}")
