"""What a peer may send over a WebSocket, read from the frame headers before the WebSocket library sees them.

The library answers each ping, keeps every fragment of a message until the last, and takes messages without a byte for
ever. Here frames that carry nothing are paid for out of a budget that refills slowly, and a message has an end.
"""

from agentmesh.errors import LimitExceededError
from agentmesh.transports.floods import FloodBudget

MAX_FRAGMENTS = 1024  # frames of one message
HEAD_END = b"\r\n\r\n"
SWITCHED = (b"GET ", b"HTTP/1.1 101")  # how a head begins behind which frames come: a request's, and an answer's
CONTINUATION, TEXT, BINARY = 0, 1, 2  # RFC 6455, 5.2
DATA = (CONTINUATION, TEXT, BINARY)
LENGTH_BYTES = {126: 2, 127: 8}  # of the length, where it is not in the second byte


class FrameGate:
    """Walks along one direction of a connection, its HTTP head first, and raises when something is too much."""

    def __init__(self) -> None:
        self._budget = FloodBudget()
        self._head: bytearray | None = bytearray()  # of HTTP; None behind its end
        self._carries_frames = True
        self._header = bytearray()
        self._payload_left = 0
        self._fragments = 0

    def check(self, data: bytes | bytearray, now: float) -> None:
        """Look at what has come.

        Raises:
            LimitExceededError: it is too much; the text says of what.
        """
        at = 0 if self._head is None else self._skip_head(self._head, data)
        while at < len(data) and self._carries_frames:
            if self._payload_left:
                step = min(self._payload_left, len(data) - at)
                self._payload_left -= step
            else:
                step = min(_header_size(self._header) - len(self._header), len(data) - at)
                self._header += data[at : at + step]
                if len(self._header) == _header_size(self._header):
                    self._take_header(now)
            at += step

    def _skip_head(self, head: bytearray, data: bytes | bytearray) -> int:
        """Returns how much of `data` belongs to the head. Whoever reads it bounds it."""
        before = len(head)
        head += data
        end = head.find(HEAD_END, max(0, before - len(HEAD_END) + 1))
        if end < 0:
            return len(data)
        self._carries_frames = head.startswith(SWITCHED)
        self._head = None
        return end + len(HEAD_END) - before

    def _take_header(self, now: float) -> None:
        header, self._header = self._header, bytearray()
        length = header[1] & 0x7F
        if size := LENGTH_BYTES.get(length):
            length = int.from_bytes(header[2 : 2 + size])
        self._payload_left = length
        opcode = header[0] & 0x0F
        if opcode in DATA:
            self._fragments = self._fragments + 1 if opcode == CONTINUATION else 1
            if self._fragments > MAX_FRAGMENTS:
                raise LimitExceededError("a message in too many fragments", limit="MAX_FRAGMENTS")
        if opcode not in DATA or not length:
            self._budget.spend(now)


def _header_size(header: bytearray) -> int:
    """How long a frame's header is, as far as it is known; two bytes say it."""
    if len(header) < 2:
        return 2
    mask = 4 if header[1] & 0x80 else 0
    return 2 + LENGTH_BYTES.get(header[1] & 0x7F, 0) + mask
