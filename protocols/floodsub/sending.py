"""What waits for peers goes to their streams: most of it without a task, and without a turn of anybody's."""

import itertools
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import NoReturn

import trio

from agentmesh.protocols.floodsub.ends import Ends
from agentmesh.protocols.floodsub.link import Link
from agentmesh.runtime.guard import Signal

WRITE_BYTES = 64 * 1024  # of what waits for a peer, in one write
LINKS_AT_ONCE = 64  # that are given what waits for them, and then others have their turn


class Sender:
    """Gives links' streams what waits in their outboxes.

    A stream that has room takes it at once. One that has none gets a task, which waits for it.

    Args:
        ends: the links', by their numbers.
        send_timeout: seconds that a peer may take nothing.
        lose: gives up a link whose peer does.
    """

    def __init__(self, ends: Mapping[int, Ends], send_timeout: float, lose: Callable[[Link], None]) -> None:
        self._ends = ends
        self._send_timeout = send_timeout
        self._lose = lose
        self._ready: dict[Link, None] = {}
        self._wanted = Signal()
        self._sent = trio.lowlevel.ParkingLot()
        self._nursery: trio.Nursery

    def add(self, links: Iterable[Link]) -> None:
        """Something waits for these."""
        self._ready.update(dict.fromkeys(links))
        if self._ready:
            self._wanted.set()

    async def run(self) -> NoReturn:
        """Send, until cancelled."""
        async with trio.open_nursery() as self._nursery:
            while True:
                await self._wanted.wait()
                while self._ready:
                    self._give_some()
                    await trio.lowlevel.checkpoint()
                self._sent.unpark_all()
        raise AssertionError("it has no end")

    async def wait_sent(self, links: Iterable[Link]) -> None:
        """Until nothing waits for any of these; those that are gone wait for nothing."""
        await trio.lowlevel.checkpoint()
        waiting = tuple(links)
        while any(len(link.outbox) or self._is_waiting(link) for link in waiting):
            await self._sent.park()

    def looked(self) -> None:
        """A link is gone, or its stream has come: whoever waits looks again."""
        self._sent.unpark_all()

    def _is_waiting(self, link: Link) -> bool:
        ends = self._ends.get(link.number)
        return ends is not None and ends.waiting is not None

    def _give_some(self) -> None:
        """A method, so that nothing holds on to the last link when it is gone."""
        for link in tuple(itertools.islice(self._ready, LINKS_AT_ONCE)):
            self._ready.pop(link, None)
            self._give(link)

    def _give(self, link: Link) -> None:
        ends = self._ends.get(link.number)
        if ends is None or ends.telling is None or ends.waiting is not None:
            return
        while data := link.outbox.take(WRITE_BYTES):
            if not ends.telling.push(data):
                ends.waiting = trio.CancelScope()
                self._nursery.start_soon(self._give_slowly, link, ends, ends.telling.stream, data)
                return

    async def _give_slowly(self, link: Link, ends: Ends, stream: trio.abc.SendStream, data: bytes) -> None:
        assert ends.waiting is not None
        with ends.waiting, suppress(trio.BrokenResourceError, trio.ClosedResourceError):  # others are told why
            while data:
                with trio.move_on_after(self._send_timeout) as limit:
                    await stream.send_all(data)
                if limit.cancelled_caught:
                    self._lose(link)
                data = link.outbox.take(WRITE_BYTES)
        ends.waiting = None
        self._sent.unpark_all()
