"""Cuts a link's bytes into frame headers and pieces of their bodies, wherever the link cut them."""

from collections.abc import Iterator

from agentmesh.runtime.yamux.frames import HEADER_BYTES, FrameType, Header, decode_header

Piece = bytes | memoryview


class FrameCutter:
    """Holds an unfinished header, never a body: pieces of it go out as they come.

    Attributes:
        body_left: bytes of the body under way that are still to come.
    """

    def __init__(self) -> None:
        self.body_left: int = 0
        self._head = bytearray()

    def cut(self, data: Piece) -> Iterator[Header | Piece]:
        """The headers and pieces of bodies in `data`, in order. Raises RemoteProtocolError for what is no header."""
        position, end = 0, len(data)
        while position < end:
            if self.body_left:
                size = min(self.body_left, end - position)
                self.body_left -= size
                yield data[position : position + size]
                position += size
            elif self._head or end - position < HEADER_BYTES:
                size = min(HEADER_BYTES - len(self._head), end - position)
                self._head += data[position : position + size]
                position += size
                if len(self._head) == HEADER_BYTES:
                    header = decode_header(self._head)
                    self._head.clear()
                    yield self._begin(header)
            else:
                header = decode_header(data, position)
                position += HEADER_BYTES
                yield self._begin(header)

    def _begin(self, header: Header) -> Header:
        self.body_left = header.length if header.type == FrameType.DATA else 0
        return header
