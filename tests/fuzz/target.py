"""What a target of the fuzzer is, and how it takes a stream from bytes."""

from collections.abc import Callable, Iterator

import attrs


@attrs.frozen
class Target:
    """One entrance for strangers' bytes.

    Attributes:
        run: takes the bytes; raises one of `allowed` or nothing.
        allowed: the errors that blame whoever sent them.
        seeds: bytes that mean something to it.
    """

    run: Callable[[bytes], None]
    allowed: tuple[type[Exception], ...]
    seeds: tuple[bytes, ...]

    def __call__(self, data: bytes) -> None:
        try:
            self.run(data)
        except self.allowed:
            return


def pieces(data: bytes) -> Iterator[bytes]:
    """`data` in pieces, as long as its own first byte says."""
    size = data[0] + 1 if data else 1
    for start in range(1, len(data), size):
        yield data[start : start + size]


def cut(*messages: bytes) -> bytes:
    """A seed for a target of `pieces`: everything in one piece, if it fits."""
    return b"\xff" + b"".join(messages)
