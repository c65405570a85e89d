"""When what a session has to say leaves: at once, in the writer's turn, or when the link takes more."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from agentmesh.abc import Link
from agentmesh.identity import Identity
from agentmesh.runtime.writer import SHARING_STREAMS, Writer
from agentmesh.runtime.yamux import Channel, ChannelReadable, Mux
from agentmesh.types import PeerId

PEER = Identity.generate().peer


class Wire(Link):
    """A link to a mux of the other side. When it is full it takes nothing before somebody makes room."""

    def __init__(self, other: Mux) -> None:
        self.peer: PeerId = PEER
        self.writes: list[bytes] = []
        self.heard: list[bytes] = []
        self.full = False
        self._other = other
        self._rest = b""
        self._room = trio.Event()

    def write(self, data: bytes) -> bool:
        self.writes.append(data)
        if self.full:
            self._rest += data
            return False
        self._deliver(data)
        return True

    async def flush(self) -> None:
        if self.full:
            await self._room.wait()
        rest, self._rest = self._rest, b""
        self._deliver(rest)

    def make_room(self) -> None:
        self.full = False
        self._room.set()

    def _deliver(self, data: bytes) -> None:
        for event in self._other.receive_data(data):
            if isinstance(event, ChannelReadable):
                self.heard.append(self._other.read(event.channel))

    async def receive_some(self) -> memoryview:
        await trio.sleep_forever()
        raise AssertionError

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


@attrs.frozen
class Desk:
    """A writer that runs, what it writes for, and where to."""

    writer: Writer
    mux: Mux
    wire: Wire

    def say(self, data: bytes) -> Channel:
        channel = self.mux.open()
        self.mux.send(channel, data)
        self.writer.answer()
        return channel


@asynccontextmanager
async def open_desk(progress: list[Channel] | None = None) -> AsyncGenerator[Desk]:
    mux = Mux(dialer=True)
    wire = Wire(Mux(dialer=False))
    shorter: list[Channel] = [] if progress is None else progress
    writer = Writer(mux, wire, 1 << 18, shorter.append)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.run)
        await wait_all_tasks_blocked()
        yield Desk(writer, mux, wire)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("events", [1, 2])
async def test_the_answer_to_one_stream_leaves_where_it_is_sent(events: int) -> None:
    async with open_desk() as desk:
        desk.writer.heard(events)
        desk.say(b"at once")
        assert desk.wire.heard == [b"at once"]
        desk.say(b"more")
        assert desk.wire.heard == [b"at once"]
        await wait_all_tasks_blocked()
        assert desk.wire.heard == [b"at once", b"more"]


@pytest.mark.parametrize("events", [0, 3])
async def test_answers_to_several_share_a_write(events: int) -> None:
    async with open_desk() as desk:
        desk.writer.heard(events)
        for data in (b"one", b"two", b"three"):
            desk.say(data)
        assert desk.wire.writes == []
        await wait_all_tasks_blocked()
        assert desk.wire.heard == [b"one", b"two", b"three"]
        assert len(desk.wire.writes) == 1


async def test_as_many_as_share_a_write_do_not_wait_for_more() -> None:
    async with open_desk() as desk:
        for number in range(SHARING_STREAMS + 1):
            desk.say(bytes([number]))
        assert len(desk.wire.heard) == SHARING_STREAMS
        assert len(desk.wire.writes) == 1
        await wait_all_tasks_blocked()
        assert len(desk.wire.heard) == SHARING_STREAMS + 1


async def test_what_a_full_link_does_not_take_leaves_before_all_that_follows() -> None:
    progress: list[Channel] = []
    async with open_desk(progress) as desk:
        desk.wire.full = True
        desk.writer.heard(1)
        first = desk.say(b"first")
        assert progress == [first]
        desk.writer.heard(1)
        desk.say(b"second")
        await wait_all_tasks_blocked()
        assert desk.wire.heard == []
        assert len(desk.wire.writes) == 1
        desk.wire.make_room()
        await wait_all_tasks_blocked()
        assert desk.wire.heard == [b"first", b"second"]
        assert desk.writer.bytes_sent == sum(map(len, desk.wire.writes))


async def test_draining_waits_until_the_link_has_taken_everything() -> None:
    async with open_desk() as desk, trio.open_nursery() as nursery:
        desk.wire.full = True
        desk.say(b"last")
        nursery.start_soon(desk.writer.drain)
        await wait_all_tasks_blocked()
        assert nursery.child_tasks
        desk.wire.make_room()
        await wait_all_tasks_blocked()
        assert not nursery.child_tasks
        assert desk.wire.heard == [b"last"]


async def test_draining_ends_with_the_session() -> None:
    async with open_desk() as desk, trio.open_nursery() as nursery:
        desk.wire.full = True
        desk.say(b"last")
        nursery.start_soon(desk.writer.drain)
        await wait_all_tasks_blocked()
        desk.writer.end()
        await wait_all_tasks_blocked()
        assert not nursery.child_tasks
        desk.wire.make_room()
