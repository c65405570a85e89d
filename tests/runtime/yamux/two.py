"""Two muxes and a wire between them."""

from agentmesh.runtime.yamux import (
    Channel,
    ChannelOpened,
    Event,
    Mux,
    MuxLimits,
)

BATCH = 1 << 20


class Two:
    """A dialer and a listener, and a wire that carries everything at once."""

    def __init__(self, limits: MuxLimits | None = None, dialer_limits: MuxLimits | None = None) -> None:
        self.dialer = Mux(dialer=True, limits=dialer_limits)
        self.listener = Mux(dialer=False, limits=limits)

    def carry(self) -> tuple[list[Event], list[Event]]:
        """Carry bytes until both are quiet. Returns what the dialer and the listener were told."""
        told: tuple[list[Event], list[Event]] = ([], [])
        while self.dialer.wants_to_send or self.listener.wants_to_send:
            told[1].extend(self.listener.receive_data(self.dialer.data_to_send(BATCH)[0]))
            told[0].extend(self.dialer.receive_data(self.listener.data_to_send(BATCH)[0]))
        return told

    def opened(self, data: bytes = b"hello") -> tuple[Channel, Channel]:
        """A stream that the dialer opened with `data`, as both sides see it."""
        ours = self.dialer.open()
        self.dialer.send(ours, data)
        _, told = self.carry()
        assert isinstance(told[0], ChannelOpened)
        return ours, told[0].channel

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(
            count
            for mux in (self.dialer, self.listener)
            for count in (
                mux.statistics().inbound_streams,
                mux.statistics().outbound_streams,
                mux.statistics().lingering_streams,
            )
        )
