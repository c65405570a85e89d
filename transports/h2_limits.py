"""What a peer may send over an HTTP/2 connection, read from the frame headers before the HTTP/2 library sees them.

The library takes a frame's word for its length until the frame is whole, answers each PING and SETTINGS, and lets
streams be opened and reset for ever. Here a frame that is too long is refused at its ninth byte, and frames that carry
nothing for us are paid for out of a budget that refills slowly (RFC 9113, 10.5). And a GOAWAY that lets streams go on
does not reach the library, which would not.
"""

import enum

from agentmesh.errors import LimitExceededError, RemoteProtocolError
from agentmesh.transports.floods import FloodBudget

PREFACE_BYTES = 24  # RFC 9113, 3.4: what a client says first
FRAME_HEADER_BYTES = 9
MAX_FRAME_BYTES = 64 * 1024  # of one received frame; the protocol's own default is 16 KiB
MAX_HEADER_BYTES = 16 * 1024  # of one header block, as sent and as unpacked
MAX_CONTINUATIONS = 8  # frames behind the first of a header block
UPDATES_PER_FRAME = 4  # window updates that the peer may send for each frame of data: some send two at once


class Frame(enum.IntEnum):
    """The types of frame that are told apart here (RFC 9113, 6)."""

    DATA = 0
    HEADERS = 1
    SETTINGS = 4
    PUSH_PROMISE = 5
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


HEADER_FRAMES = (Frame.HEADERS, Frame.PUSH_PROMISE, Frame.CONTINUATION)
END_STREAM = 0x01


class FrameGate:
    """Walks along the frames of one direction of a connection and raises when one, or their number, is too much.

    Args:
        from_client: whether the preface comes first.
    """

    def __init__(self, *, from_client: bool) -> None:
        self._preface = PREFACE_BYTES if from_client else 0  # bytes of it that are still to come
        self._frame = bytearray()
        self._left = FRAME_HEADER_BYTES  # until its header is whole, or its payload
        self._expected: Frame | None = Frame.SETTINGS  # either side's first frame
        self._block_bytes = 0
        self._continuations = 0
        self._budget = FloodBudget()
        self._updates = 0  # that the peer has reason for

    def earn(self) -> None:
        """We sent a frame of data, for which window updates will come."""
        self._updates += UPDATES_PER_FRAME

    def check(self, data: bytes | bytearray, now: float, requested: int = 0) -> bytes:
        """Look at what has come.

        Args:
            requested: the last stream that this side has opened.
        Returns:
            What the library is to see: whole frames, and no GOAWAY that lets our streams go on.
        Raises:
            LimitExceededError: it is too much of something; the text says of what.
            RemoteProtocolError: it does not begin as HTTP/2 does.
        """
        passed, rest = bytearray(), memoryview(data)
        while rest:
            wanted = self._preface or self._left
            piece, rest = rest[:wanted], rest[wanted:]
            if self._preface:
                self._preface -= len(piece)
                passed += piece
            else:
                self._frame += piece
                self._left -= len(piece)
                if not self._left:
                    passed += self._advance(now, requested)
        return bytes(passed)

    def spend(self, now: float) -> None:
        """Pay for one frame, or for one answer, that carries nothing for us."""
        self._budget.spend(now)

    def _advance(self, now: float, requested: int) -> bytes | bytearray:
        """A header is whole, or the payload behind it; gives the frame when it is."""
        if len(self._frame) == FRAME_HEADER_BYTES:
            self._left = self._check_header(now)
            if self._left:
                return b""
        frame, self._frame, self._left = self._frame, bytearray(), FRAME_HEADER_BYTES
        return b"" if _is_farewell(frame, requested) else frame

    def _check_header(self, now: float) -> int:
        """Returns how long the payload is."""
        length, kind, flags = int.from_bytes(self._frame[:3]), self._frame[3], self._frame[4]
        if self._expected is not None and kind != self._expected:
            raise RemoteProtocolError("the peer does not speak HTTP/2")
        self._expected = None
        if length > MAX_FRAME_BYTES:
            raise LimitExceededError(f"a frame of {length} bytes", limit="MAX_FRAME_BYTES")
        if kind in HEADER_FRAMES:
            self._check_block(kind, length)
        match kind:
            case Frame.DATA if length or flags & END_STREAM:
                pass
            case Frame.CONTINUATION:
                pass  # has its own bounds
            case Frame.WINDOW_UPDATE if self._updates:
                self._updates -= 1
            case _:
                self.spend(now)
        return length

    def _check_block(self, kind: int, length: int) -> None:
        more = kind == Frame.CONTINUATION
        self._continuations = self._continuations + 1 if more else 0
        self._block_bytes = self._block_bytes + length if more else length
        if self._continuations > MAX_CONTINUATIONS:
            raise LimitExceededError("a header block in too many frames", limit="MAX_CONTINUATIONS")
        if self._block_bytes > MAX_HEADER_BYTES:
            raise LimitExceededError("a header block that is too long", limit="MAX_HEADER_BYTES")


def _is_farewell(frame: bytearray, requested: int) -> bool:
    """Whether it is a GOAWAY that asks for no more streams, and leaves those that are open (RFC 9113, 6.8).

    A proxy that is reloaded sends one. The library would hold the connection to be over.
    """
    last_stream, error = int.from_bytes(frame[9:13]) & 0x7FFFFFFF, bytes(frame[13:17])
    return frame[3] == Frame.GOAWAY and error == bytes(4) and last_stream >= requested
