"""One stream as the mux sees it: state, receive buffer, and what waits to be sent."""

from agentmesh.runtime.yamux.chunks import Chunk, Chunks
from agentmesh.runtime.yamux.flow import ReceiveWindow
from agentmesh.runtime.yamux.limits import INITIAL_WINDOW
from agentmesh.runtime.yamux.memory import Memory
from agentmesh.runtime.yamux.states import State


class Channel:
    """A stream of a `Mux`. The driver reads its attributes and changes it through the mux only.

    Attributes:
        id: the stream's number on the wire; odd when the dialer opened it.
        state: where its life stands.
        reset_code: libp2p's error code once `state` is CUT or RESET.
        queued: bytes given to `Mux.send` that have not been taken for the link yet.
        readable: bytes received that `Mux.read` has not given out yet.
    """

    __slots__ = (
        "_memory",
        "fin_pending",
        "flags_pending",
        "id",
        "inbox",
        "outbox",
        "queued",
        "reset_code",
        "scheduled",
        "send_credit",
        "state",
        "window",
    )

    def __init__(self, stream_id: int, window: ReceiveWindow, flags_pending: int, memory: Memory) -> None:
        self._memory = memory
        self.id = stream_id
        self.state = State.OPEN
        self.reset_code = 0
        self.window = window
        self.inbox = Chunks()
        self.outbox = Chunks()
        self.queued = 0
        self.send_credit = INITIAL_WINDOW
        self.fin_pending = False
        self.flags_pending = flags_pending  # SYN until the first frame of a stream that we opened has left
        self.scheduled = False  # waits in the mux's round robin

    @property
    def readable(self) -> int:
        return self.window.buffered

    @property
    def flushed(self) -> bool:
        """Everything queued, and the end if there is one, has left."""
        return not self.queued and not self.fin_pending

    @property
    def has_frame(self) -> bool:
        """Whether the peer's credit and our queue allow a frame now."""
        if self.queued:
            return self.send_credit > 0
        return self.fin_pending or self.flags_pending != 0

    def queue(self, data: Chunk) -> None:
        """Add bytes to those that wait to be sent."""
        self.outbox.append(data)
        self.queued += len(data)
        self._memory.queue(len(data))

    def take(self, size: int) -> list[Chunk]:
        """Take exactly `size` queued bytes, without copying them."""
        self.queued -= size
        self._memory.queue(-size)
        return self.outbox.take(size)

    def take_received(self, max_bytes: int | None) -> bytes:
        """Take received bytes, at most `max_bytes`."""
        return self.inbox.take_some(max_bytes)

    def discard(self) -> None:
        """Forget everything received: nobody will read it."""
        self.inbox.clear()
        self.window.taken(self.readable)

    def drop(self) -> None:
        """Forget everything queued: the stream was reset."""
        self.outbox.clear()
        self._memory.queue(-self.queued)
        self.queued = self.flags_pending = 0
        self.fin_pending = False

    def __repr__(self) -> str:
        return f"<Channel {self.id} {self.state.value}, {self.queued} queued, {self.readable} readable>"
