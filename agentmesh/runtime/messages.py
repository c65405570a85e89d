"""Messages over any Trio stream, the one loop that drives a protocol's machine over it, and what machines share that
exchange one message for one.

A message is preceded by its length as an unsigned varint (`agentmesh.wire.framing`). A `Machine` is a protocol's state
machine: bytes, commands and the time go in; bytes, events and the next deadline come out.
"""

import enum
import math
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar
from typing import Protocol as Interface

import trio

from agentmesh.errors import LocalProtocolError, RemoteProtocolError
from agentmesh.runtime.direct import nowait_sender
from agentmesh.wire.framing import FrameReader, encode_frame

WRITE_TIMEOUT = 10.0  # seconds a peer may take to accept the few bytes of a control message

EventT_co = TypeVar("EventT_co", covariant=True)
EventT = TypeVar("EventT")
StateT = TypeVar("StateT", bound=enum.Enum)
InputT = TypeVar("InputT", bound=enum.Enum)


class Machine(Interface[EventT_co]):
    """What `wait_event` drives. After the end of the stream (`receive_data(b"")`) or a timeout there is an event, or a
    raise.
    """

    @property
    def deadline(self) -> float:
        """When `handle_timeout` has something to do; math.inf when never."""
        ...

    def receive_data(self, data: bytes, now: float) -> None: ...

    def handle_timeout(self, now: float) -> None: ...

    def data_to_send(self) -> bytes: ...

    def next_event(self) -> EventT_co | None: ...


class OneForOne(Generic[StateT, InputT, EventT]):
    """What a machine is made of that takes one message of its peer and sends one: the one that asks, or that answers.

    Args:
        table: what follows on an input; None where it is a fault, of `command` our caller's, of the others the peer's.
        start, finished: the states in which it begins and ends.
        command: the input that stands for what our caller has it send.
        max_bytes: of the peer's message. What comes behind the message means nothing.

    Attributes:
        state: as the table has it.
        deadline: when `handle_timeout` has something to do. Each input takes it away; a subclass sets another.
    """

    def __init__(
        self,
        table: Mapping[tuple[StateT, InputT], StateT | None],
        start: StateT,
        finished: StateT,
        command: InputT,
        max_bytes: int,
    ) -> None:
        self.state = start
        self.deadline = math.inf
        self._table = table
        self._finished = finished
        self._command = command
        self._reader = FrameReader(max_bytes)
        self._out = b""
        self._event: EventT | None = None

    def data_to_send(self) -> bytes:
        out, self._out = self._out, b""
        return out

    def next_event(self) -> EventT | None:
        event, self._event = self._event, None
        return event

    def _send(self, message: bytes) -> None:
        """Send our message. Raises LocalProtocolError where the table has no place for one."""
        self._step(self._command)
        self._out = encode_frame(message)

    def _read(self, data: bytes, message: InputT, garbage: InputT, read: Callable[[bytes], EventT]) -> bool:
        """Take bytes of the peer's message.

        Args:
            message, garbage: the inputs that it may be.
            read: makes an event of it, or raises RemoteProtocolError.
        Returns:
            Whether it is, so far, no garbage that the table takes.
        """
        try:
            self._reader.receive_data(data)
            frame = self._reader.next_frame()
            event = None if frame is None else read(frame)
        except RemoteProtocolError as exc:
            self._step(garbage, exc)
            return False
        if event is not None:
            self._take(message, event)
        return True

    def _take(self, got: InputT, event: EventT) -> None:
        """An input of which our caller is told, unless it changes nothing any more."""
        was = self.state
        self._step(got)
        if self.state is not was:
            self._event = event

    def _step(self, got: InputT, cause: RemoteProtocolError | None = None) -> None:
        was, after = self.state, self._table[self.state, got]
        if after is None and got is self._command:
            raise LocalProtocolError(f"{got.value} while {was.value}")
        self.state, self.deadline = after or self._finished, math.inf
        if after is None:
            raise cause or RemoteProtocolError(f"{got.value} while {was.value}")


async def wait_event(machine: Machine[EventT_co], stream: trio.abc.Stream) -> EventT_co:
    """Run `machine` over `stream` until it has an event; what the machine wanted to send has then been sent.

    Raises:
        RemoteProtocolError: whatever the machine raises for the peer's bytes.
        BrokenResourceError: the stream broke (RejectedError, StreamResetError and SessionClosedError are such).
        TooSlowError: the peer did not take the machine's bytes within WRITE_TIMEOUT.
    Cancellation: bytes that were being sent may have left or not; give the stream up.
    """
    while True:
        await flush(machine, stream)
        if (event := machine.next_event()) is not None:
            return event
        data: bytes | None = None
        with trio.move_on_at(machine.deadline):
            data = bytes(await stream.receive_some())
        now = trio.current_time()
        if data is None:
            machine.handle_timeout(now)
        else:
            machine.receive_data(data, now)


async def flush(machine: Machine[object], stream: trio.abc.SendStream) -> None:
    """Send what the machine has queued. Raises TooSlowError after WRITE_TIMEOUT seconds, BrokenResourceError as the
    stream.
    """
    data = machine.data_to_send()
    if data and (sent := nowait_sender(stream)(data)) < len(data):
        with trio.fail_after(WRITE_TIMEOUT):
            await stream.send_all(data[sent:])


async def read_message(stream: trio.abc.ReceiveStream, reader: FrameReader) -> bytes:
    """The next message. `reader` belongs to the stream: it keeps what came behind the message, and bounds its size.

    Raises:
        EndOfChannel: the peer ended the stream between two messages.
        RemoteProtocolError: it ended inside one, or its length is no varint.
        LimitExceededError: the message is longer than the reader allows.
    Cancellation: safe, nothing is lost.
    """
    while (message := reader.next_frame()) is None:
        data = await stream.receive_some()
        if not data:
            if reader.trailing():
                raise RemoteProtocolError("the stream ended inside a message")
            raise trio.EndOfChannel
        reader.receive_data(data)
    return message


async def write_message(stream: trio.abc.SendStream, data: bytes) -> None:
    """Send one message. Cancellation: all, part or none of it may have been sent; give the stream up."""
    await stream.send_all(encode_frame(data))
