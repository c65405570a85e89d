"""Messages over any Trio stream, and the one loop that drives a protocol's machine over it.

A message is preceded by its length as an unsigned varint (`agentmesh.wire.framing`). A `Machine` is a protocol's state
machine: bytes, commands and the time go in; bytes, events and the next deadline come out.
"""

from typing import Protocol as Interface
from typing import TypeVar

import trio

from agentmesh.errors import RemoteProtocolError
from agentmesh.runtime.direct import nowait_sender
from agentmesh.wire.framing import FrameReader, encode_frame

WRITE_TIMEOUT = 10.0  # seconds a peer may take to accept the few bytes of a control message

EventT_co = TypeVar("EventT_co", covariant=True)


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
