"""The control stream and the opens of a pooled connection, over streams of the mesh."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

import attrs
import trio

from agentmesh.abc import Admission, Session, Stream, StreamLimits
from agentmesh.errors import DialError, ErrorCode, RejectedError, RemoteProtocolError
from agentmesh.protocols.pool.close_wire import (
    CLOSE_ID,
    MAX_CLOSE_BYTES,
    CloseRequest,
    decode_close,
    decode_closing,
    encode_close,
    encode_closing,
)
from agentmesh.protocols.pool.events import Event
from agentmesh.protocols.pool.open_wire import (
    MAX_OPEN_BYTES,
    MAX_RESULT_BYTES,
    OPEN_ID,
    decode_open,
    decode_result,
    encode_open,
    encode_result,
)
from agentmesh.protocols.pool.side import Side
from agentmesh.protocols.pool.values import Closing, Code, Open, OpenResult, Stage
from agentmesh.runtime.messages import WRITE_TIMEOUT, write_message
from agentmesh.runtime.nursery import open_background
from agentmesh.runtime.registry import Protocol
from agentmesh.types import ProtocolId
from agentmesh.wire.framing import MAX_VARINT_BYTES, decode_varint

OPEN_TIMEOUT = 8.0  # seconds from an open to its result
REQUEST_TIMEOUT = 5.0  # seconds that the open itself may take to come
EMPTY_OBJECT_BYTES = 2
READ_BYTES = 16 * 1024
MAX_CLOSES_PER_PEER = 64

MachineT = TypeVar("MachineT", bound=Side)
T = TypeVar("T")


def close_protocol(close: Callable[[CloseRequest], Closing], admission: Admission = Admission.ROUTER) -> Protocol:
    """A router's part: `close` is called with what an operator wants, and says what becomes of it."""

    async def serve(stream: Stream) -> None:
        with trio.fail_after(REQUEST_TIMEOUT):
            request = decode_close(await _read_exactly_one(stream, MAX_CLOSE_BYTES))
            await write_message(stream, encode_closing(close(request)))

    return Protocol(CLOSE_ID, serve, admission, StreamLimits(MAX_CLOSES_PER_PEER))


class Control(Generic[MachineT]):
    """A control stream and its machine, while `open_control` lasts.

    Attributes:
        machine: to be asked; what sends goes through `tell`.
        failure: what ended the stream, unless the peer or the machine did.
    """

    def __init__(self, machine: MachineT, stream: trio.abc.HalfCloseableStream) -> None:
        self.machine = machine
        self.failure: RemoteProtocolError | trio.BrokenResourceError | trio.TooSlowError | None = None
        self._stream = stream
        self._to_write = trio.Event()
        self._news = trio.lowlevel.ParkingLot()
        self._taken = trio.lowlevel.ParkingLot()
        self._written = trio.lowlevel.ParkingLot()
        self._unwritten = False

    def tell(self, command: Callable[[MachineT], T]) -> T:
        """Give the machine a command, and send what it says. Raises what the command does."""
        try:
            return command(self.machine)
        finally:
            self._to_write.set()

    async def next_event(self) -> Event:
        """The next event.

        Raises:
            EndOfChannel: the machine is finished.
            RemoteProtocolError: the peer broke the protocol.
            BrokenResourceError: the stream broke.
            TooSlowError: the peer does not read.
        Cancellation: safe, nothing is lost.
        """
        await trio.lowlevel.checkpoint()
        while (event := self.machine.next_event()) is None:
            if self.failure is not None:
                raise self.failure
            if self.machine.is_finished:
                raise trio.EndOfChannel
            await self._news.park()
        self._taken.unpark_all()
        return event

    async def finish(self) -> None:
        """Send what is still to be sent, and end our side. Does nothing on a broken stream."""
        with trio.move_on_after(WRITE_TIMEOUT):
            self._to_write.set()
            self._unwritten = True
            while self._unwritten and self.failure is None:
                await self._written.park()
            if self.failure is None:
                try:
                    await self._stream.send_eof()
                except trio.BrokenResourceError as exc:
                    self._fail(exc)

    async def read(self) -> None:
        """For `open_control`: hear the peer. It waits until what came is taken, so that a peer cannot hurry us."""
        try:
            while not self.machine.is_finished:
                data = await self._stream.receive_some(READ_BYTES)
                self.machine.receive_data(bytes(data), trio.current_time())
                self._to_write.set()
                self._news.unpark_all()
                while self.machine.has_events:
                    await self._taken.park()
        except (RemoteProtocolError, trio.BrokenResourceError) as exc:
            self._fail(exc)

    async def write(self) -> None:
        """For `open_control`: send what the machine says, and keep its deadlines."""
        try:
            while True:
                self._to_write = trio.Event()
                self.machine.handle_timeout(trio.current_time())
                if data := self.machine.data_to_send():
                    with trio.fail_after(WRITE_TIMEOUT):
                        await self._stream.send_all(data)
                else:
                    self._unwritten = False
                    self._written.unpark_all()
                self._news.unpark_all()
                if not data:
                    with trio.move_on_at(self.machine.deadline):
                        await self._to_write.wait()
        except (RemoteProtocolError, trio.BrokenResourceError, trio.TooSlowError) as exc:
            self._fail(exc)

    def _fail(self, exc: RemoteProtocolError | trio.BrokenResourceError | trio.TooSlowError) -> None:
        self.failure = self.failure or exc
        self._written.unpark_all()
        self._news.unpark_all()


@asynccontextmanager
async def open_control(machine: MachineT, stream: trio.abc.HalfCloseableStream) -> AsyncGenerator[Control[MachineT]]:
    """Run a machine over its control stream for as long as the block lasts; the stream stays the caller's to close."""
    control = Control(machine, stream)
    async with open_background() as nursery:
        nursery.start_soon(control.read)
        nursery.start_soon(control.write)
        yield control


# ── opens ──


@attrs.frozen
class Opening:
    """What became of an open: the result, and the stream to the target when it was accepted."""

    result: OpenResult
    stream: Stream | None = None


async def open_target(
    session: Session, request: Open, timeout: float = OPEN_TIMEOUT, protocol: ProtocolId = OPEN_ID
) -> Opening:
    """Have the agent at the other end of a session connect to a target, or a router have an agent do so.

    Args:
        timeout: seconds until the result has to be there.
        protocol: OPEN_ID to an agent, DIAL_ID to a router, RELAY_ID from one to another.
    Returns:
        Its result. That the session or the stream broke, or no result came, is one too; nothing is raised for it. The
        stream, when there is one, is the caller's; its bytes are the target's.
    Cancellation: safe; the stream is reset.
    """
    try:
        stream = await session.open_stream(protocol)
    except (DialError, trio.BrokenResourceError) as exc:
        return Opening(_failure(exc))
    try:
        with trio.fail_after(timeout):
            await write_message(stream, encode_open(request))
            result = decode_result(await _read_exactly_one(stream, MAX_RESULT_BYTES))
    except (RemoteProtocolError, trio.BrokenResourceError, trio.TooSlowError) as exc:
        stream.reset(ErrorCode.NO_ERROR)
        return Opening(_failure(exc))
    except BaseException:
        stream.reset(ErrorCode.NO_ERROR)
        raise
    if not result.accepted:
        await stream.aclose()
        return Opening(result)
    return Opening(result, stream)


async def receive_open(stream: Stream, protocol: ProtocolId = OPEN_ID) -> Open:
    """The other side: what is to be opened. Nothing behind it is read.

    Raises:
        RemoteProtocolError: that is no open.
        BrokenResourceError, TooSlowError: it did not come whole within 5 seconds.
    """
    with trio.fail_after(REQUEST_TIMEOUT):
        return decode_open(await _read_exactly_one(stream, MAX_OPEN_BYTES), protocol)


async def answer_open(stream: Stream, result: OpenResult) -> None:
    """Send the result; the target's bytes follow it. Raises BrokenResourceError."""
    await write_message(stream, encode_result(result))


async def ask_close(session: Session, request: CloseRequest) -> Closing:
    """Have another router close a connection.

    Raises:
        DialError: it could not be asked, or does not say what became of it.
    """
    try:
        async with await session.open_stream(CLOSE_ID) as stream:
            with trio.fail_after(REQUEST_TIMEOUT):
                await write_message(stream, encode_close(request))
                return decode_closing(await _read_exactly_one(stream, MAX_CLOSE_BYTES))
    except (RemoteProtocolError, trio.BrokenResourceError, trio.TooSlowError) as exc:
        raise DialError(f"{session.peer} does not say whether it closes the connection") from exc


async def _read_exactly_one(stream: trio.abc.ReceiveStream, max_bytes: int) -> bytes:
    """One message and not a byte more: what follows belongs to the target. The shortest message is an empty object."""
    head = b""
    while (found := decode_varint(head)) is None:
        head += await _read_some(stream, 1 if head else EMPTY_OBJECT_BYTES)
        if len(head) > MAX_VARINT_BYTES:
            raise RemoteProtocolError("a length that does not end")
    size, used = found
    if not EMPTY_OBJECT_BYTES <= size <= max_bytes:
        raise RemoteProtocolError(f"a message of {size} bytes; from {EMPTY_OBJECT_BYTES} to {max_bytes} are allowed")
    body = bytearray(head[used:])
    while len(body) < size:
        body += await _read_some(stream, size - len(body))
    return bytes(body)


async def _read_some(stream: trio.abc.ReceiveStream, max_bytes: int) -> bytes:
    data = bytes(await stream.receive_some(max_bytes))
    if not data:
        raise RemoteProtocolError("the stream ended inside a message")
    return data


def _failure(exc: Exception) -> OpenResult:
    """The result of an open that got none. All of them can be tried on another connection."""
    match exc:
        case trio.TooSlowError():
            return OpenResult(Stage.QUEUE, Code.TIMEOUT, retryable=True)
        case RejectedError(code=ErrorCode.RESOURCE_LIMIT_EXCEEDED, retry_after=seconds):
            return OpenResult(Stage.QUEUE, Code.QUEUE_FULL, True, round((seconds or 0.0) * 1000))
        case RejectedError(code=ErrorCode.GATED):
            return OpenResult(Stage.AUTHORIZATION, Code.FORBIDDEN)
        case RejectedError(code=ErrorCode.PROTOCOL_NEGOTIATION_FAILED):
            return OpenResult(Stage.PROTOCOL, Code.UNSUPPORTED_CAPABILITY, retryable=True)
        case _:
            return OpenResult(Stage.RELAY, Code.NETWORK_UNREACHABLE, retryable=True)
