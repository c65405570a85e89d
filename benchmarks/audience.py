"""One event to many: who says it, and an audience in one process that knows when the last of it has heard.

Needs Trio and nothing else, so that it runs in environments of other implementations too. An event says when it was
sent, by the clock that all processes of a machine share.
"""

import struct
import time
from collections import Counter
from collections.abc import Awaitable, Callable

import trio

from benchmarks.commands import Answer

TOPIC = "bench"
EVENT_BYTES = 300
STAMP = struct.Struct(">Id")  # its number, and when it was sent
HEARING_TIMEOUT = 30.0  # seconds

Publish = Callable[[bytes], Awaitable[object]]


class Audience:
    """Listeners of one process.

    Attributes:
        listeners: how many there are.
    """

    def __init__(self) -> None:
        self.listeners = 0
        self._heard: Counter[int] = Counter()
        self._took: dict[int, float] = {}
        self._changed = trio.Event()

    def hear(self, event: bytes) -> None:
        """One of them has heard an event."""
        number, sent = STAMP.unpack_from(event)
        self._heard[number] += 1
        if self._heard[number] == self.listeners:
            self._took[number] = time.monotonic() - sent
            self._changed.set()
            self._changed = trio.Event()

    async def heard(self, number: int) -> Answer:
        """Wait until all have heard an event: how long that took from when it was sent."""
        with trio.fail_after(HEARING_TIMEOUT):
            while number not in self._took:
                await self._changed.wait()
        return {"took": self._took[number], "listeners": self.listeners}


def publisher_command(publish: Publish) -> Callable[[int], Awaitable[Answer]]:
    """What the one who publishes can be asked: to send the event of a number."""

    async def publish_event(number: int) -> Answer:
        stamp = STAMP.pack(number, time.monotonic())
        await publish(stamp + bytes(EVENT_BYTES - len(stamp)))
        return {}

    return publish_event
