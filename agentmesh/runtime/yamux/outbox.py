"""Who may write next: control frames first, then the streams in turn, one frame each."""

from collections import deque

from agentmesh.runtime.yamux.channel import Channel
from agentmesh.runtime.yamux.chunks import Chunk
from agentmesh.runtime.yamux.frames import FIN, FrameType, encode_header


class Outbox:
    """What waits for the link. A bulk stream never delays a ping, nor another stream by more than one frame each
    turn.

    Attributes:
        control: frames that go first, encoded.
        turns: the streams that have something to send, and may, in the order of their turns.
    """

    def __init__(self, max_frame_bytes: int) -> None:
        self.control = bytearray()
        self._max_frame_bytes = max_frame_bytes
        self.turns: deque[Channel] = deque()

    def schedule(self, channel: Channel) -> None:
        """Give the stream a turn, when its queue and its credit allow a frame."""
        if not channel.scheduled and channel.has_frame:
            channel.scheduled = True
            self.turns.append(channel)

    def pass_by(self, channel: Channel, data: bytes) -> bytes | None:
        """The frame of bytes that need not be queued: nothing waits that they would overtake, and there is credit for
        them. Else None.
        """
        if self.control or self.turns or channel.queued or channel.flags_pending or channel.fin_pending:
            return None
        if not 0 < len(data) <= min(channel.send_credit, self._max_frame_bytes):
            return None
        channel.send_credit -= len(data)
        return encode_header(FrameType.DATA, 0, channel.id, len(data)) + data

    def take(self, max_bytes: int) -> tuple[bytes, list[Channel]]:
        """The next bytes for the link and the streams that had a turn in them."""
        parts: list[Chunk] = []
        size = len(self.control)
        if size:
            parts.append(bytes(self.control))
            self.control.clear()
        progressed: list[Channel] = []
        while self.turns and size < max_bytes:
            channel = self.turns.popleft()
            channel.scheduled = False
            if not channel.has_frame:
                continue
            size += self._take_frame(channel, parts)
            progressed.append(channel)
            self.schedule(channel)
        return b"".join(parts), progressed

    def _take_frame(self, channel: Channel, parts: list[Chunk]) -> int:
        size = min(channel.queued, channel.send_credit, self._max_frame_bytes)
        flags, channel.flags_pending = channel.flags_pending, 0
        if channel.fin_pending and not channel.queued:  # alone: some peers drop the bytes that come with the end
            flags |= FIN
            channel.fin_pending = False
        frame_type = FrameType.DATA if size else FrameType.WINDOW_UPDATE
        parts.append(encode_header(frame_type, flags, channel.id, size))
        parts.extend(channel.take(size))
        channel.send_credit -= size
        return size
