"""Bytes in the pieces that they came in."""

import sys

Chunk = bytes | memoryview

LARGE_BYTES = 16 * 1024  # a piece that goes out as it came: to join more would cost more than another call


class Chunks:
    """A queue of bytes that are not copied. Every stream has two, so an empty one is small, as a deque is not."""

    __slots__ = ("_pieces", "_start")

    def __init__(self) -> None:
        self._pieces: list[Chunk] = []
        self._start = 0  # what is before it has been taken

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def append(self, chunk: Chunk) -> None:
        self._pieces.append(chunk)

    def clear(self) -> None:
        self._pieces.clear()
        self._start = 0

    def take_some(self, max_bytes: int | None) -> bytes:
        """Take the first piece when it is large, which costs no copy; else all bytes, joined, but for `max_bytes`."""
        first = self._pieces[self._start]
        if len(first) >= LARGE_BYTES and (max_bytes is None or len(first) <= max_bytes):
            return bytes(self.take(len(first))[0])
        taken = self.take(sys.maxsize if max_bytes is None else max_bytes)
        return bytes(taken[0]) if len(taken) == 1 else b"".join(taken)

    def take(self, size: int) -> list[Chunk]:
        """Take the first `size` bytes, or all when there are fewer. However small the pieces, each is moved but once or
        twice.
        """
        taken: list[Chunk] = []
        pieces, start = self._pieces, self._start
        while size and start < len(pieces):
            chunk = pieces[start]
            if len(chunk) > size:
                view = memoryview(chunk)
                chunk, pieces[start] = view[:size], view[size:]
            else:
                pieces[start] = b""
                start += 1
            taken.append(chunk)
            size -= len(chunk)
        if 2 * start >= len(pieces):
            del pieces[:start]
            start = 0
        self._start = start
        return taken
