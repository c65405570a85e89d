"""Long bytes in short pieces."""

from collections.abc import Iterator


def pieces_of(data: bytes | bytearray | memoryview, size: int) -> Iterator[bytes | memoryview]:
    """The bytes in pieces of at most `size`; one piece of no bytes. What may change is copied as it is taken."""
    if len(data) <= size:
        yield data if isinstance(data, bytes) else bytes(data)
        return
    whole = bytes(data) if isinstance(data, memoryview) else data
    view = memoryview(whole)
    for start in range(0, len(view), size):
        piece = view[start : start + size]
        yield piece if isinstance(whole, bytes) else bytes(piece)
