"""A connection of the simulated network: pipes in which bytes take their time.

Nothing here has a task of its own. A segment gets its time of arrival when it is sent; a reader sleeps until then, a
writer until there is room. So the arithmetic of latency and bandwidth is exact under a virtual clock.
"""

import enum
import math
import random
from collections import deque
from collections.abc import Callable

import attrs
import trio

from agentmesh.testing.links import Lane
from agentmesh.transports.pipes import Data, End, Pipe

SEGMENT_BYTES = 16 * 1024  # what travels, and is lost, as one
GARBLED_BYTES = 16  # of a segment that is damaged, at most


class Mark(enum.Enum):
    """What travels and is not bytes."""

    END = enum.auto()
    RESET = enum.auto()


class Fate(enum.Enum):
    """What becomes of bytes that are sent."""

    CARRIED = enum.auto()
    DROPPED = enum.auto()  # the path has ended the direction: they are taken and thrown away
    LOST = enum.auto()  # the path has forgotten the connection: they are sent again and again


@attrs.define
class Segment:
    """Bytes or a mark under way; `arrives_at` is math.inf while it is lost, to be sent again."""

    content: bytes | Mark
    arrives_at: float


Record = Callable[[str, int], None]  # what happened, and to how many bytes


class LinkPipe(Pipe):
    """One direction of a connection.

    Attributes:
        lane: where the bytes travel.
        twin: the connection's other direction.
    """

    twin: "LinkPipe"

    def __init__(self, lane: Lane, back: Lane, chance: random.Random, record: Record) -> None:
        super().__init__()
        self.lane = lane
        self._back = back  # where the writer hears from the reader
        self._chance = chance
        self._record = record
        self._sent = 0
        self._under_way: deque[Segment] = deque()
        self._latest = -math.inf  # arrival of the last segment: the next one does not overtake it
        self._writer_told_at = math.inf  # when the writer hears that the reader is gone
        self._fate = Fate.CARRIED
        self._garbles = False  # the next segment

    # ── the writer ──

    async def put(self, data: Data) -> None:
        await trio.lowlevel.checkpoint()
        self.check_writer()
        source = bytes(data)
        while source:
            await self._wait_room()
            size = min(SEGMENT_BYTES, self.lane.conditions.window - self._size)
            self._transmit(source[:size])
            source = source[size:]
            self.check_writer()

    async def wait_room(self) -> None:
        await trio.lowlevel.checkpoint()
        await self._wait_room()

    async def _wait_room(self) -> None:
        while True:
            self.check_writer()
            if self.lane.source.frozen or self._size >= self.lane.conditions.window:
                await self._pause(self._writer_told_at)
            elif trio.current_time() < self.lane.ready_at:
                await self._pause(min(self._writer_told_at, self.lane.ready_at))
            else:
                return

    def check_writer(self) -> None:
        if self.writer is End.OPEN and trio.current_time() >= self._writer_told_at:
            self.writer = End.BROKEN
        if self.writer is End.BROKEN:
            raise trio.BrokenResourceError("the other end of the stream is gone")
        if self.writer is End.CLOSED:
            raise trio.ClosedResourceError("this end of the stream was closed for sending")

    def _transmit(self, segment: bytes) -> None:
        if self._fate is Fate.DROPPED:
            self._record("drop", len(segment))
            return
        conditions = self.lane.conditions
        left = math.inf if conditions.reset_at is None else conditions.reset_at - self._sent
        lost = self._chance.random() < conditions.reset_probability if conditions.reset_probability else False
        if not lost:
            segment = self._damaged(segment[: int(min(left, len(segment)))])
            self._sent += len(segment)
            self._size += len(segment)
            self._send(segment)
            self._record("send", len(segment))
        if lost or self._sent == conditions.reset_at:
            self.reset()

    def _damaged(self, segment: bytes) -> bytes:
        """The segment as it goes out: garbled, if it is to be."""
        if not (self._garbles and segment):
            return segment
        self._garbles = False
        self._record("garble", len(segment))
        at = self._chance.randrange(len(segment))
        noise = self._chance.randbytes(min(GARBLED_BYTES, len(segment) - at))
        changed = bytes(byte ^ (other | 1) for byte, other in zip(segment[at:], noise, strict=False))
        return segment[:at] + changed + segment[at + len(changed) :]

    def reset(self) -> None:
        """Break the connection from the writer's side: here at once, over there when the reset has arrived."""
        self._record("reset", 0)
        self.writer = End.BROKEN
        self._send(Mark.RESET)
        self.twin.reader = End.BROKEN
        self.twin.tell_writer()
        self.twin.wake()

    def close_writer(self) -> None:
        if self.writer is not End.CLOSED:
            was, self.writer = self.writer, End.CLOSED
            if was is End.OPEN:
                self._record("end", 0)
                self._send(Mark.END)
        self.wake()

    # ── the reader ──

    async def get(self, max_bytes: int) -> bytes:
        await trio.lowlevel.checkpoint()
        while True:
            self.check_reader()
            if self.lane.target.frozen:
                await self._pause(math.inf)
                continue
            mark = self._arrive()
            if self._pieces:
                data = self._take(max_bytes)
                self.wake()
                return data
            if mark is Mark.END:
                return b""
            if mark is Mark.RESET:
                self.reader = End.BROKEN
            else:
                await self._pause(self._under_way[0].arrives_at if self._under_way else math.inf)

    def _arrive(self) -> Mark | None:
        """Take in the bytes whose time has come; the mark behind them, if its time has come too."""
        now = trio.current_time()
        while self._under_way and self._under_way[0].arrives_at <= now:
            content = self._under_way[0].content
            if isinstance(content, Mark):
                return content
            self._pieces.append(content)
            self._under_way.popleft()
        return None

    def close_reader(self) -> None:
        if self.reader is not End.CLOSED:
            was, self.reader = self.reader, End.CLOSED
            self._pieces.clear()
            if was is End.OPEN:
                self.tell_writer()
        self.wake()

    # ── the link ──

    def tell_writer(self) -> None:
        """The reader is gone; the news travels back as everything does."""
        held = self._fate is Fate.LOST or self._back.blocked or self._back.source.frozen
        self._writer_told_at = math.inf if held else self._back.arrival(0, self._chance)

    def lose(self) -> None:
        """The lane was blocked: what is under way does not arrive."""
        now = trio.current_time()
        for segment in self._under_way:
            if segment.arrives_at > now:
                segment.arrives_at = math.inf
        self._latest = now
        self.wake()

    def resume(self) -> None:
        """The lane was healed, or a host thawed: what was lost or held back is sent again."""
        if self._fate is Fate.LOST:
            return
        for segment in self._under_way:
            if segment.arrives_at == math.inf:
                segment.arrives_at = self._arrival(segment.content)
        if self.reader is not End.OPEN and self._writer_told_at == math.inf:
            self.tell_writer()
        self.wake()

    def end(self) -> None:
        """End the direction on the way: the reader gets what was sent so far, and the writer knows nothing of it."""
        if self._fate is Fate.CARRIED and self.writer is End.OPEN:
            self._record("half-close", 0)
            self._send(Mark.END)
            self._fate = Fate.DROPPED

    def forget(self) -> None:
        """Lose what is under way and all that is sent from now on; neither end is told."""
        self._record("forget", 0)
        self._fate = Fate.LOST
        self.lose()

    def garble(self) -> None:
        """Damage the next segment."""
        self._garbles = True

    def cut(self) -> None:
        super().cut()
        self._under_way.clear()

    def wake(self) -> None:
        """Let both ends look again."""
        self._changed.unpark_all()

    @property
    def finished(self) -> bool:
        return self.writer is not End.OPEN and self.reader is not End.OPEN

    def _send(self, content: bytes | Mark) -> None:
        if self._fate is Fate.DROPPED and content is Mark.END:
            return  # it has been said
        self._under_way.append(Segment(content, self._arrival(content)))
        self.wake()

    def _arrival(self, content: bytes | Mark) -> float:
        # A frozen host's writers wait, so what is held back for it is what closing its streams would have said.
        if self._fate is Fate.LOST or self.lane.blocked or self.lane.source.frozen:
            return math.inf
        size = len(content) if isinstance(content, bytes) else 0
        self._latest = max(self._latest, self.lane.arrival(size, self._chance))
        return self._latest

    async def _pause(self, until: float) -> None:
        if until == math.inf:
            await self._changed.park()
        else:
            with trio.move_on_at(until):
                await self._changed.park()
