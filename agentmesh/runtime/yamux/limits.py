"""What one mux allows its peer, and what each number defends against."""

from collections.abc import Mapping

import attrs

from agentmesh.runtime.yamux.ledger import Allowance, Waste

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
    max_buffered_bytes: int = 256 * 1024 * 1024
    """What may wait on all streams of the session for applications to take it: as much as a thousand first windows.
    Beyond it the session ends.
    """
    max_frame_bytes: int = 64 * 1024
    """The largest data frame sent: one stream's turn when several have something to say."""
    max_control_bytes: int = 256 * 1024
    """Control frames waiting for the link: a peer that causes more of them than it reads (pings, opens) is cut off."""
    linger_timeout: float = 60.0
    """Seconds that a closed stream waits for the peer, to end it and to take the last bytes, before it is reset."""
    stall_timeout: float = 600.0
    """Seconds that bytes may wait for a peer that gives a stream no credit; then the stream is reset."""

    # What the peer may waste. Beyond one of these the session ends. The bursts let an honest peer cancel everything
    # that it may have open, twice; each rate is below a twentieth of one core.
    max_resets: Allowance = Allowance(burst=8192, per_second=256)
    """Streams that the peer opens and cuts before they have ended."""
    max_refusals: Allowance = Allowance(burst=16384, per_second=512)
    """Streams that the peer opens beyond max_inbound_streams, or on a session that drains."""
    max_unnamed: Allowance = Allowance(burst=8192, per_second=64)
    """Streams that the peer opens and on which it agrees to no protocol: silence, garbage, proposals without end."""
    max_late_frames: Allowance = Allowance(burst=65536, per_second=4096)
    """Frames of streams that are not there, or behind their end. Many are under way when a bulk stream is cut."""
    max_empty_frames: Allowance = Allowance(burst=16384, per_second=512)
    """Frames that say nothing; for each stream that we open the peer may send one more, to acknowledge it."""
    max_pings: Allowance = Allowance(burst=1024, per_second=16)
    """Pings, and answers to pings."""
    max_go_aways: Allowance = Allowance(burst=8, per_second=0.1)
    """Go-aways; the first says all that there is to say."""

    @property
    def allowances(self) -> Mapping[Waste, Allowance]:
        """What the peer may waste, by kind."""
        return {
            Waste.RESETS: self.max_resets,
            Waste.REFUSALS: self.max_refusals,
            Waste.UNNAMED: self.max_unnamed,
            Waste.LATE_FRAMES: self.max_late_frames,
            Waste.EMPTY_FRAMES: self.max_empty_frames,
            Waste.PINGS: self.max_pings,
            Waste.GO_AWAYS: self.max_go_aways,
        }

    def __attrs_post_init__(self) -> None:
        if self.max_window_bytes < INITIAL_WINDOW:
            raise ValueError(f"max_window_bytes {self.max_window_bytes} is below yamux's own {INITIAL_WINDOW}")
