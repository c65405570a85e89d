"""Connections that were accepted and have not yet said what they want: bounded in number and in time."""

from collections.abc import Generator
from contextlib import contextmanager

import trio


class Handshakes:
    """Places for them; when all are taken, the one who took longest goes, so that silent clients keep nobody out.

    Args:
        max_handshakes: how many there are.
    """

    def __init__(self, max_handshakes: int) -> None:
        self._max = max_handshakes
        self._under_way: dict[trio.CancelScope, None] = {}  # in the order in which they began

    @contextmanager
    def place(self, deadline: float) -> Generator[None]:
        """A block that is cut short at the deadline, or when its place is needed."""
        if len(self._under_way) >= self._max:
            oldest = next(iter(self._under_way))
            del self._under_way[oldest]
            oldest.cancel()
        with trio.CancelScope(deadline=deadline) as scope:
            self._under_way[scope] = None
            try:
                yield
            finally:
                self._under_way.pop(scope, None)
