"""Two muxes and a wire that cuts and delays: bytes arrive intact, credit is conserved, nothing deadlocks."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, MultipleResults, RuleBasedStateMachine, consumes, invariant, multiple, rule

from agentmesh.runtime.yamux import Channel, ChannelOpened, HostMemory, Memory, Mux, MuxLimits
from agentmesh.runtime.yamux.limits import INITIAL_WINDOW
from agentmesh.runtime.yamux.states import OVER, SENDABLE, State

LIMITS = MuxLimits(max_frame_bytes=1000, max_window_bytes=4 * INITIAL_WINDOW, stall_timeout=1e9)


class Flow:
    """One direction of one stream, as its two applications see it."""

    def __init__(self) -> None:
        self.sent = bytearray()
        self.received = bytearray()


class TwoMuxes(RuleBasedStateMachine):
    channels = Bundle("channels")

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.host = HostMemory(3 * INITIAL_WINDOW)  # as if one host had both ends
        memories = [Memory(LIMITS.max_session_window_bytes, self.host) for _ in range(2)]
        self.muxes = (
            Mux(dialer=True, limits=LIMITS, memory=memories[0]),
            Mux(dialer=False, limits=LIMITS, memory=memories[1]),
        )
        self.wires = (bytearray(), bytearray())  # by receiver
        self.ends: dict[tuple[int, int], Channel] = {}  # (side, stream number)
        self.flows: dict[tuple[int, int], Flow] = {}  # (sending side, stream number)
        self.reset: set[int] = set()
        self.closed: dict[int, tuple[int, float]] = {}  # by whom, and until when the other side may take the rest
        self.counter = 0

    @rule(target=channels, side=st.integers(0, 1))
    def open(self, side: int) -> int:
        channel = self.muxes[side].open()
        self.ends[side, channel.id] = channel
        self.flows[0, channel.id], self.flows[1, channel.id] = Flow(), Flow()
        return channel.id

    @rule(stream=channels, side=st.integers(0, 1), size=st.integers(0, 3 * INITIAL_WINDOW))
    def send(self, stream: int, side: int, size: int) -> None:
        channel = self.ends.get((side, stream))
        if channel is not None and channel.state in SENDABLE:
            self.counter += 1
            data = self.counter.to_bytes(4) * (size // 4)
            self.muxes[side].send(channel, data)
            self.flows[side, stream].sent += data

    @rule(side=st.integers(0, 1), max_bytes=st.integers(1, 300_000))
    def write(self, side: int, max_bytes: int) -> None:
        self.wires[1 - side].extend(self.muxes[side].data_to_send(max_bytes)[0])

    @rule(side=st.integers(0, 1), size=st.integers(1, 200_000))
    def deliver(self, side: int, size: int) -> None:
        piece = bytes(self.wires[side][:size])
        del self.wires[side][:size]
        for event in self.muxes[side].receive_data(piece):
            if isinstance(event, ChannelOpened):
                self.ends[side, event.channel.id] = event.channel

    @rule(stream=channels, side=st.integers(0, 1), max_bytes=st.none() | st.integers(1, 100_000))
    def read(self, stream: int, side: int, max_bytes: int | None) -> None:
        if (channel := self.ends.get((side, stream))) is not None:
            self.flows[1 - side, stream].received += self.muxes[side].read(channel, max_bytes)

    @rule(stream=channels, side=st.integers(0, 1))
    def finish(self, stream: int, side: int) -> None:
        channel = self.ends.get((side, stream))
        if channel is not None and channel.state in SENDABLE:
            self.muxes[side].finish(channel)

    @rule(target=channels, stream=consumes(channels), side=st.integers(0, 1), hard=st.booleans())
    def end(self, stream: int, side: int, hard: bool) -> MultipleResults[int]:
        """One side leaves: by close, which stops reading, or by reset."""
        channel = self.ends.get((side, stream))
        if channel is None:
            return multiple(stream)
        if hard:
            self.reset.add(stream)
            self.muxes[side].reset(channel)
        else:
            self.closed[stream] = side, self.now + LIMITS.linger_timeout
            self.muxes[side].close(channel, self.now)
        return multiple()

    @rule(dt=st.floats(0, 90))
    def wait(self, dt: float) -> None:
        self.now += dt
        for mux in self.muxes:
            mux.handle_timeout(self.now)
        self.reset |= {stream for stream, (_, until) in self.closed.items() if until <= self.now}

    @rule()
    def settle(self) -> None:
        """Readers that read and a wire that carries: everything sent arrives, whatever happened before."""
        for _ in range(10_000):
            before = sum(len(flow.received) for flow in self.flows.values())
            moved = False
            for side in (0, 1):
                self.write(side, 1 << 20)
                moved = moved or bool(self.wires[1 - side])
                self.deliver(1 - side, 1 << 30)
                for other, stream in list(self.ends):
                    if other == side and self.takes(side, stream):
                        self.read(stream, side, None)
            after = sum(len(flow.received) for flow in self.flows.values())
            if not moved and before == after:
                break
        for (side, stream), flow in self.flows.items():
            if (1 - side, stream) in self.ends and self.takes(1 - side, stream):
                assert flow.received == flow.sent

    def takes(self, side: int, stream: int) -> bool:
        """Whether this side still reads the stream: neither reset it, nor was it reset, nor closed it."""
        closed_by, _ = self.closed.get(stream, (None, 0.0))
        return stream not in self.reset and closed_by != side

    @invariant()
    def bytes_arrive_in_order(self) -> None:
        for flow in self.flows.values():
            assert flow.sent.startswith(flow.received)

    @invariant()
    def no_stream_holds_more_than_its_window(self) -> None:
        for channel in self.ends.values():
            if channel.state in OVER:  # its window is given back already
                continue
            assert channel.readable + channel.window.credit <= max(channel.window.size, INITIAL_WINDOW)

    @invariant()
    def credit_is_conserved(self) -> None:
        """What a sender may send, plus what is on the way or unread, never exceeds the receiver's window."""
        for (side, stream), channel in self.ends.items():
            peer = self.ends.get((1 - side, stream))
            if (
                peer is not None
                and stream not in self.reset | self.closed.keys()
                and channel.state is peer.state is State.OPEN
            ):
                assert channel.send_credit <= max(peer.window.size, INITIAL_WINDOW)

    @invariant()
    def memory_is_counted(self) -> None:
        for mine, mux in enumerate(self.muxes):
            channels = [channel for (side, _), channel in self.ends.items() if side == mine]
            assert mux.memory.received == sum(channel.readable for channel in channels)
            assert mux.memory.queued == sum(channel.queued for channel in channels)
        assert self.host.held == sum(mux.memory.held for mux in self.muxes)
        assert 0 <= self.host.growth_left <= 3 * INITIAL_WINDOW

    def teardown(self) -> None:
        self.settle()
        for (side, _), channel in self.ends.items():
            self.muxes[side].reset(channel)
        self.settle()
        for mux in self.muxes:
            statistics = mux.statistics()
            assert statistics.inbound_streams == statistics.outbound_streams == statistics.lingering_streams == 0
            assert statistics.window_bytes_left == LIMITS.max_session_window_bytes
            assert statistics.held_bytes == 0
            assert mux.flushed
        assert (self.host.held, self.host.growth_left) == (0, 3 * INITIAL_WINDOW)


TestTwoMuxes = TwoMuxes.TestCase
TestTwoMuxes.settings = settings(max_examples=300, stateful_step_count=40, deadline=None)
