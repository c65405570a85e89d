"""The sending side of a session: what its mux has to say goes to its link, and how that ends.

Control frames go first, then the streams in turn, and what is queued is joined into one write. A write that the link
takes at once needs no waiting, so an answer to the one stream that was heard leaves where it is sent, without a turn
of the scheduler. Where several were heard at once their answers wait for the writer's turn and share a write, up to
SHARING_STREAMS of them: by then a write is cheap for each, and the peer has something to do while we go on.
"""

import math
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

import trio

from agentmesh.abc import Link
from agentmesh.errors import RemoteProtocolError
from agentmesh.runtime.guard import Signal
from agentmesh.runtime.yamux import Channel, Mux

FAREWELL_TIMEOUT = 1.0  # seconds that a session which has ended may take to say so
SHARING_STREAMS = 32
EVENTS_OF_ONE = 2  # it opens and says something, or says something and ends
LINK_ERRORS = (trio.BrokenResourceError, RemoteProtocolError)


class Writer:
    """Writes to a link for one session.

    After a write that was cut off no other can follow, so the end of the session waits a moment for the one under way.

    Args:
        mux: what is to be sent.
        link: where to.
        write_bytes: how much of it is joined into one write.
        on_progress: called, synchronously, with each stream whose queue became shorter.

    Attributes:
        bytes_sent: what was given to the link.
    """

    def __init__(self, mux: Mux, link: Link, write_bytes: int, on_progress: Callable[[Channel], None]) -> None:
        self.bytes_sent = 0
        self._mux = mux
        self._link = link
        self._write_bytes = write_bytes
        self._on_progress = on_progress
        self._wanted = Signal()
        self._idle = trio.lowlevel.ParkingLot()  # woken whenever there is nothing left to send
        self._clear = False  # nothing waits for the link, and it may be written to from anywhere
        self._prompt = False
        self._until = math.inf
        self._flushing = trio.CancelScope()

    # ── from any task ──

    def wake(self) -> None:
        """There is something to send."""
        self._wanted.set()

    def heard(self, events: int) -> None:
        """So much has come of one read. Where that is no more than one stream says, its answer will be sent at once."""
        self._prompt = 0 < events <= EVENTS_OF_ONE

    def answer(self, *, at_once: bool = False) -> None:
        """There is something to send, by whom may have been heard.

        Args:
            at_once: nothing else of this session will come to share the write.
        Raises:
            BrokenResourceError, RemoteProtocolError: the link is gone.
        """
        if self._clear and (at_once or self._prompt or self._mux.waiting >= SHARING_STREAMS):
            self._prompt = False
            self._clear = self._write()
            if self._clear and not self._mux.wants_to_send:
                return
        self._wanted.set()

    def pass_by(self, channel: Channel, data: bytes) -> bool:
        """Write bytes of a stream past its queue, if nothing else waits. Raises as `answer`."""
        frame = self._mux.pass_by(channel, data) if self._clear else None
        if frame is None:
            return False
        self.bytes_sent += len(frame)
        self._clear = self._link.write(frame)
        if not self._clear:
            self._wanted.set()
        return True

    async def drain(self) -> None:
        """Until nothing waits any more, neither for the link nor for the peer's credit; or the session has ended."""
        self.wake()
        await self._idle.park()
        while self._until == math.inf and not self._mux.flushed:
            await self._idle.park()

    # ── the one task ──

    async def run(self) -> NoReturn:
        """Write what there is, until cancelled; a write under way then goes on for FAREWELL_TIMEOUT seconds.

        Raises:
            BrokenResourceError, RemoteProtocolError: the link is gone.
        """
        self._clear = True
        while True:
            if not self._clear:
                await self._flush()
            elif self._mux.wants_to_send:
                self._clear = self._write()
                if self._clear:
                    await trio.lowlevel.checkpoint()
            else:
                self._idle.unpark_all()
                await self._wanted.wait()

    def _write(self) -> bool:
        """Write once. Returns whether the link took all of it."""
        data, progressed = self._mux.data_to_send(self._write_bytes)
        for channel in progressed:
            self._on_progress(channel)
        self.bytes_sent += len(data)
        return not data or self._link.write(data)

    async def _flush(self) -> None:
        with trio.CancelScope(deadline=self._until, shield=True) as self._flushing:
            await self._link.flush()
            self._clear = True
        await trio.lowlevel.checkpoint_if_cancelled()

    # ── the end ──

    def end(self) -> None:
        """The session has ended: from now on everything has FAREWELL_TIMEOUT seconds."""
        self._until = self._flushing.deadline = trio.current_time() + FAREWELL_TIMEOUT
        self._idle.unpark_all()

    async def say_farewell(self) -> None:
        """Send the last control frames, if the peer takes them, and close the link. Cancellation: not until that is
        done.
        """
        with trio.CancelScope(deadline=self._until, shield=True):
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError, RemoteProtocolError):
                await self._link.send_all(self._mux.data_to_send(0)[0])
            await self._link.aclose()
