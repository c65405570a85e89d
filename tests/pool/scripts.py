"""What a client and a target say to each other through the pool, and what each of them gets to hear."""

import enum
import itertools
from typing import Protocol

import attrs
import trio
from hypothesis import strategies as st
from trio.testing import lockstep_stream_pair

PATIENCE = 3600.0  # virtual seconds after which nothing will come any more


class End(enum.Enum):
    """How one side ends what it says."""

    EOF = "it has said everything"
    RESET = "it breaks off"


class Cuttable(Protocol):
    """A stream that can be broken off."""

    async def send_all(self, data: bytes) -> None: ...
    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray: ...
    async def send_eof(self) -> None: ...
    async def aclose(self) -> None: ...
    def reset(self) -> None: ...


@attrs.define
class Cuts:
    """What has broken off a connection between an agent and a target."""

    by_target: trio.Event = attrs.Factory(trio.Event)
    by_agent: bool = False


class FarEnd:
    """The target's end of a connection that an agent made. It holds no bytes of its own."""

    def __init__(self, stream: trio.abc.HalfCloseableStream, cuts: Cuts) -> None:
        self._stream, self._cuts = stream, cuts

    async def send_all(self, data: bytes) -> None:
        await self._stream.send_all(data)

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        data = bytes(await self._stream.receive_some(max_bytes))
        if not data and self._cuts.by_agent:
            raise trio.BrokenResourceError
        return data

    async def send_eof(self) -> None:
        await self._stream.send_eof()

    async def aclose(self) -> None:
        await self._stream.aclose()

    def reset(self) -> None:
        """As a server that was killed: what the agent reads next breaks."""
        self._cuts.by_target.set()


class NearEnd(trio.abc.HalfCloseableStream):
    """The agent's end of it. Closed without an end, it is cut, as a socket that is reset."""

    def __init__(self, stream: trio.abc.HalfCloseableStream, cuts: Cuts) -> None:
        self._stream, self._cuts = stream, cuts
        self._ended = False

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        found: list[bytes] = []
        async with trio.open_nursery() as nursery:

            async def receive() -> None:
                found.append(bytes(await self._stream.receive_some(max_bytes)))
                nursery.cancel_scope.cancel()

            nursery.start_soon(receive)
            await self._cuts.by_target.wait()
            nursery.cancel_scope.cancel()
        if found:
            return found[0]
        raise trio.BrokenResourceError

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def send_eof(self) -> None:
        self._ended = True
        await self._stream.send_eof()

    async def aclose(self) -> None:
        self._cuts.by_agent = self._cuts.by_agent or not self._ended
        await self._stream.aclose()


def make_far_end() -> tuple[NearEnd, FarEnd]:
    near, far = lockstep_stream_pair()
    cuts = Cuts()
    return NearEnd(near, cuts), FarEnd(far, cuts)


@attrs.frozen
class Way:
    """What one side says, and how the other listens.

    Attributes:
        chunks: bytes of each piece, and seconds before it.
        reads: the most that is taken at once, and seconds before that; then whatever comes, as it comes.
    """

    chunks: tuple[tuple[int, float], ...]
    reads: tuple[tuple[int, float], ...]
    end: End = End.EOF

    @property
    def data(self) -> bytes:
        size = sum(size for size, _ in self.chunks)
        return bytes(itertools.islice(itertools.cycle(range(251)), size))


@attrs.frozen
class Script:
    """Both ways of one stream."""

    forth: Way
    back: Way


@attrs.frozen
class Heard:
    """What came one way, and whether it came to its end."""

    data: bytes = attrs.field(repr=lambda data: str(len(data)))
    ended: bool

    def is_all_of(self, way: Way) -> bool:
        return self.ended and self.data == way.data

    def is_part_of(self, way: Way) -> bool:
        return not self.ended and way.data.startswith(self.data)


@attrs.frozen
class Transcript:
    """What a target and a client heard."""

    forth: Heard
    back: Heard


async def play(script: Script, client: Cuttable, target: Cuttable) -> Transcript:
    """Both sides talk and listen at once, until each way has ended or broken. Fails when that does not come about."""
    heard: dict[str, Heard] = {}
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_say, client, script.forth)
            nursery.start_soon(_say, target, script.back)
            nursery.start_soon(_hear, target, script.forth, heard, "forth")
            nursery.start_soon(_hear, client, script.back, heard, "back")
    await client.aclose()
    await target.aclose()
    return Transcript(heard["forth"], heard["back"])


async def _say(stream: Cuttable, way: Way) -> None:
    data, start = way.data, 0
    try:
        for size, pause in way.chunks:
            await trio.sleep(pause)
            await stream.send_all(data[start : start + size])
            start += size
        if way.end is End.EOF:
            await stream.send_eof()
        else:
            stream.reset()
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        return  # the other way was broken off, and this one with it


async def _hear(stream: Cuttable, way: Way, heard: dict[str, Heard], name: str) -> None:
    data, ended = bytearray(), False
    try:
        for size, pause in itertools.chain(way.reads, itertools.repeat((64 * 1024, 0.0))):
            await trio.sleep(pause)
            if not (piece := await stream.receive_some(size)):
                ended = True
                break
            data += piece
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass
    heard[name] = Heard(bytes(data), ended)


PAUSES = st.sampled_from([0.0, 0.0, 0.0, 0.001, 0.3, 7.0])
SIZES = st.sampled_from([1, 2, 100, 4095, 4096, 16_384, 32_768]) | st.integers(1, 32_768)
BULK = st.just(400_000)  # more than a stream's window


def ways(*ends: End) -> st.SearchStrategy[Way]:
    """Any pieces, taken in any pieces."""
    chunks = st.lists(st.tuples(SIZES | BULK, PAUSES), max_size=6).map(tuple)
    reads = st.lists(st.tuples(SIZES | BULK, PAUSES), max_size=8).map(tuple)
    return st.builds(Way, chunks, reads, st.sampled_from(ends))


SCRIPTS = st.builds(Script, ways(End.EOF), ways(End.EOF))
CUT_SCRIPTS = st.builds(Script, ways(*End), ways(*End)).filter(
    lambda script: End.RESET in (script.forth.end, script.back.end)
)
