"""Cuts a link's bytes into frame headers and pieces of their bodies, wherever the link cut them."""

from collections.abc import Callable

from agentmesh.runtime.yamux.frames import HEADER_BYTES, FrameType, Header, decode_header

Piece = bytes | memoryview


class FrameCutter:
    """Holds an unfinished header, never a body: pieces of it go out as they come.

    Args:
        take_header: called with each header.
        take_body: called with each piece of the body behind it.

    Attributes:
        body_left: bytes of the body under way that are still to come.
    """

    def __init__(self, take_header: Callable[[Header], None], take_body: Callable[[Piece], None]) -> None:
        self.body_left: int = 0
        self._head = bytearray()
        self._take_header = take_header
        self._take_body = take_body

    def receive_data(self, data: Piece) -> None:
        """Call with the headers and pieces in `data`, in order. Raises RemoteProtocolError for what is no header."""
        position, end = 0, len(data)
        while position < end:
            if self.body_left:
                size = min(self.body_left, end - position)
                self.body_left -= size
                self._take_body(data[position : position + size])
                position += size
            elif self._head or end - position < HEADER_BYTES:
                size = min(HEADER_BYTES - len(self._head), end - position)
                self._head += data[position : position + size]
                position += size
                if len(self._head) == HEADER_BYTES:
                    header = decode_header(self._head)
                    self._head.clear()
                    self._begin(header)
            else:
                self._begin(decode_header(data, position))
                position += HEADER_BYTES

    def _begin(self, header: Header) -> None:
        if header[0] == FrameType.DATA:
            self.body_left = header[3]
        self._take_header(header)
