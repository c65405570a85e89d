import enum
import math

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock, memory_stream_one_way_pair, memory_stream_pair

from agentmesh.errors import LimitExceededError, LocalProtocolError, RemoteProtocolError
from agentmesh.runtime.messages import WRITE_TIMEOUT, OneForOne, flush, read_message, wait_event, write_message
from agentmesh.testing import run
from agentmesh.testing.strategies import chunkings
from agentmesh.wire.framing import FrameReader, encode_frame


@given(st.lists(st.binary(max_size=300), max_size=5), chunkings())
def test_messages_come_back_however_the_stream_is_cut(messages: list[bytes], sizes: list[int]) -> None:
    run(_read_what_was_written, messages, sizes)


async def _read_what_was_written(messages: list[bytes], sizes: list[int]) -> None:
    sender, receiver = memory_stream_one_way_pair()
    cut = _CutStream(receiver, list(sizes))
    for message in messages:
        await write_message(sender, message)
    await sender.aclose()
    reader = FrameReader(300)
    assert [await read_message(cut, reader) for _ in messages] == messages
    with pytest.raises(trio.EndOfChannel):
        await read_message(cut, reader)


@attrs.define
class _CutStream(trio.abc.ReceiveStream):
    stream: trio.abc.ReceiveStream
    sizes: list[int]

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        self.sizes.append(size := self.sizes.pop(0))
        return await self.stream.receive_some(size)

    async def aclose(self) -> None:
        await self.stream.aclose()


@pytest.mark.parametrize("cut", [b"\x85", b"\x05abc"])
async def test_an_end_inside_a_message_is_the_peers_fault(cut: bytes) -> None:
    sender, receiver = memory_stream_one_way_pair()
    await sender.send_all(cut)
    await sender.aclose()
    with pytest.raises(RemoteProtocolError):
        await read_message(receiver, FrameReader(10))


async def test_a_long_message_is_refused_before_it_comes() -> None:
    sender, receiver = memory_stream_one_way_pair()
    await sender.send_all(b"\x0b")
    with pytest.raises(LimitExceededError):
        await read_message(receiver, FrameReader(10))


async def test_a_cancelled_read_loses_nothing(autojump_clock: MockClock) -> None:
    sender, receiver = memory_stream_one_way_pair()
    reader, data = FrameReader(100), encode_frame(b"hello")
    for byte in data[:-1]:
        await sender.send_all(bytes([byte]))
        with trio.move_on_after(1):
            await read_message(receiver, reader)
    await sender.send_all(data[-1:])
    assert await read_message(receiver, reader) == b"hello"


# ── the loop that drives machines ──


@attrs.define
class Greeter:
    """Says hello, waits for one byte, and says goodbye."""

    deadline: float
    out: bytes = b"hello"
    event: str | None = None

    def receive_data(self, data: bytes, now: float) -> None:
        self.event = f"{data!r} at {now:g}"
        self.out = b"goodbye"

    def handle_timeout(self, now: float) -> None:
        if now >= self.deadline:
            self.event = f"timeout at {now:g}"

    def data_to_send(self) -> bytes:
        out, self.out = self.out, b""
        return out

    def next_event(self) -> str | None:
        return self.event


async def test_what_a_machine_says_is_sent_before_its_event_is_told(autojump_clock: MockClock) -> None:
    near, far = memory_stream_pair()
    await far.send_all(b"x")
    assert await wait_event(Greeter(math.inf), near) == "b'x' at 0"
    assert await far.receive_some() == b"hellogoodbye"


async def test_the_end_of_the_stream_is_told(autojump_clock: MockClock) -> None:
    near, far = memory_stream_pair()
    await far.send_eof()
    assert await wait_event(Greeter(math.inf), near) == "b'' at 0"


async def test_a_machine_is_told_when_its_time_has_come(autojump_clock: MockClock) -> None:
    near, _far = memory_stream_pair()
    assert await wait_event(Greeter(7.0), near) == "timeout at 7"


async def test_an_event_that_is_there_needs_no_waiting(autojump_clock: MockClock) -> None:
    near, far = memory_stream_pair()
    assert await wait_event(Greeter(math.inf, event="ready"), near) == "ready"
    assert await far.receive_some() == b"hello"


async def test_a_peer_that_takes_nothing_is_not_waited_for_forever(autojump_clock: MockClock) -> None:
    near, _far = trio.testing.lockstep_stream_pair()
    start = trio.current_time()
    with pytest.raises(trio.TooSlowError):
        await flush(Greeter(math.inf), near)
    assert trio.current_time() - start == WRITE_TIMEOUT


async def test_a_broken_stream_is_the_callers_to_know(autojump_clock: MockClock) -> None:
    near, far = memory_stream_pair()
    await far.aclose()
    with pytest.raises(trio.BrokenResourceError):
        await wait_event(Greeter(math.inf), near)


class _State(enum.Enum):
    LISTENING = "listening"
    ANSWERING = "answering"
    OVER = "over"


class _Input(enum.Enum):
    WORD = "a word"
    NOISE = "noise"
    ANSWER = "send_answer"


_ROWS = {
    #                  WORD              NOISE            ANSWER
    _State.LISTENING: (_State.ANSWERING, None, None),
    _State.ANSWERING: (_State.ANSWERING, _State.ANSWERING, _State.OVER),
    _State.OVER: (_State.OVER, _State.OVER, None),
}
_TABLE = {(state, got): to for state, row in _ROWS.items() for got, to in zip(_Input, row, strict=True)}


class _Listener(OneForOne[_State, _Input, str]):
    def __init__(self) -> None:
        super().__init__(_TABLE, _State.LISTENING, _State.OVER, _Input.ANSWER, 10)

    def receive_data(self, data: bytes) -> bool:
        return self._read(data, _Input.WORD, _Input.NOISE, _word_in)

    def send_answer(self, word: str) -> None:
        self._send(word.encode())


def _word_in(frame: bytes) -> str:
    if not frame.isalpha():
        raise RemoteProtocolError("no word")
    return frame.decode()


def test_one_message_for_one() -> None:
    listener = _Listener()
    with pytest.raises(LocalProtocolError, match="send_answer while listening"):
        listener.send_answer("early")
    assert listener.receive_data(encode_frame(b"word")[:2])
    assert listener.next_event() is None
    assert listener.receive_data(encode_frame(b"word")[2:] + encode_frame(b"more"))
    assert (listener.next_event(), listener.next_event(), listener.state) == ("word", None, _State.ANSWERING)
    listener.send_answer("yes")
    assert (listener.data_to_send(), listener.data_to_send(), listener.state) == (b"\x03yes", b"", _State.OVER)
    with pytest.raises(LocalProtocolError, match="send_answer while over"):
        listener.send_answer("again")


@pytest.mark.parametrize("data", [encode_frame(b"?"), encode_frame(b"much too long"), b"\x80\x00"])
def test_what_is_no_message_is_the_peers_fault_and_the_end(data: bytes) -> None:
    listener = _Listener()
    with pytest.raises(RemoteProtocolError):
        listener.receive_data(data)
    assert (listener.state, listener.next_event(), listener.deadline) == (_State.OVER, None, math.inf)
