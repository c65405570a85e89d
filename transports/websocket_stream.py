"""A WebSocket as a plain stream of bytes, over trio-websocket.

trio-websocket keeps a task per connection that reads, answers pings and queues messages. It leaves three things open
that are closed here: a peer that hangs up during the opening handshake (it would be waited for in vain), an error in
its task (it would take down whoever owns the nursery), and a send cancelled in the middle of a frame (the next one
would be read as its rest).
"""

import math
import operator
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import cast

import h11
import trio
import trio_websocket
import wsproto.utilities
from trio_websocket import WebSocketConnection

from agentmesh.errors import DialError, LimitExceededError
from agentmesh.runtime.guard import Guard
from agentmesh.runtime.nursery import open_background
from agentmesh.transports.websocket_limits import FrameGate

MESSAGE_BYTES = 64 * 1024  # the most that is sent in one message
RECEIVE_BYTES = 256 * 1024  # read from the socket at once; trio-websocket's own 4 KiB is three to ten times slower
QUEUED_MESSAGES = 1  # between the reader task and whoever reads the stream
CLOSE_TIMEOUT = 3.0  # seconds the peer has to answer our closing
MAX_OPENING_BYTES = 4 * 1024 * 1024  # from a peer before the handshake is over: the body of a refusal, say

NORMAL, GOING_AWAY, BINARY_ONLY, NO_STATUS = 1000, 1001, 1003, 1005  # RFC 6455, 7.4.1
ENDINGS = {NORMAL, GOING_AWAY, NO_STATUS}  # a stream that ended; any other close code is one that broke

# What the reader task dies of when the peer's handshake or frames are not as they should be, or it refuses.
READER_ERRORS = (
    trio_websocket.HandshakeError,
    trio_websocket.ConnectionClosed,
    wsproto.utilities.ProtocolError,
    h11.ProtocolError,
    UnicodeError,
)

Data = bytes | bytearray | memoryview
Opening = Callable[[trio.Nursery, "Wire"], Awaitable[WebSocketConnection]]


class Wire(trio.abc.Stream):
    """The stream under a WebSocket; it tells whoever waits for the peer's answer that none will come.

    Args:
        stream: what carries the bytes.
        deadline: until when the opening handshake has to be over.
        received: bytes that were read from `stream` already.
    """

    def __init__(self, stream: trio.abc.Stream, deadline: float, received: bytes = b"") -> None:
        self.deadline = deadline
        self._stream = stream
        self._received = received
        self._budget: float = MAX_OPENING_BYTES
        self._gate = FrameGate()
        self._sending = trio.Lock()
        self._torn = False
        self._waiting: set[trio.CancelScope] = set()

    @contextmanager
    def waiting(self, scope: trio.CancelScope) -> Generator[None]:
        """A block whose scope is cancelled when the stream ends: nothing more comes then."""
        self._waiting.add(scope)
        try:
            yield
        finally:
            self._waiting.remove(scope)

    def opened(self) -> None:
        """The handshake is over: bytes are now the stream's own, and not counted."""
        self._budget = math.inf

    async def send_all(self, data: Data) -> None:
        async with self._sending:
            if self._torn:
                raise trio.BrokenResourceError("a send was cancelled in the middle of a message")
            self._torn = True
            await self._stream.send_all(data)
            self._torn = False

    async def wait_send_all_might_not_block(self) -> None:
        async with self._sending:
            await self._stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        data: bytes | bytearray = b""
        try:
            if self._received:
                await trio.lowlevel.checkpoint()
                data, self._received = self._received, b""
            elif self._budget > 0:
                data = await self._stream.receive_some(max_bytes)
        finally:
            if not data:
                self._end()
        self._budget -= len(data)
        try:
            self._gate.check(data, trio.current_time())
        except LimitExceededError as exc:
            self._end()
            raise trio.BrokenResourceError(str(exc)) from exc
        return data

    async def aclose(self) -> None:
        try:
            await self._stream.aclose()
        finally:
            self._end()

    def _end(self) -> None:
        for scope in self._waiting:
            scope.cancel()


class WebSocketStream(trio.abc.Stream):
    """The bytes of a WebSocket's binary messages, however they are split; it cannot be closed by halves.

    Cancellation: a cancelled `receive_some` loses nothing; a cancelled `send_all` may break the stream for sending.
    `aclose` waits for the peer's answer, CLOSE_TIMEOUT at most; cancelled, it hangs up.
    """

    def __init__(self, connection: WebSocketConnection, wire: Wire) -> None:
        self._connection = connection
        self._wire = wire
        self._unread = memoryview(b"")
        self._closed = False
        self._receiving = Guard("receiving")
        self._sending = Guard("sending")

    async def send_all(self, data: Data) -> None:
        with self._sending:
            self._check_open()
            await trio.lowlevel.checkpoint()
            source = bytes(data)
            for start in range(0, len(source), MESSAGE_BYTES):
                await self._send(source[start : start + MESSAGE_BYTES])

    async def wait_send_all_might_not_block(self) -> None:
        with self._sending:
            self._check_open()
            await self._wire.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        max_bytes = MESSAGE_BYTES if max_bytes is None else operator.index(max_bytes)
        if max_bytes < 1:
            raise ValueError("max_bytes must be at least 1")
        with self._receiving:
            self._check_open()
            await trio.lowlevel.checkpoint()
            while not self._unread:  # a message may be empty, and is no end
                message = await self._next_message()
                if message is None:
                    return b""
                self._unread = memoryview(message)
            data, self._unread = self._unread[:max_bytes], self._unread[max_bytes:]
            return bytes(data)

    async def aclose(self) -> None:
        self._closed = True
        await self._hang_up()

    async def _hang_up(self, code: int = NORMAL, reason: str | None = None) -> None:
        try:
            with trio.move_on_after(CLOSE_TIMEOUT) as scope, self._wire.waiting(scope):
                await self._connection.aclose(code, reason)
        finally:
            await trio.aclose_forcefully(self._wire)

    async def _send(self, message: bytes) -> None:
        try:
            await self._connection.send_message(message)
        except trio_websocket.ConnectionClosed as exc:
            raise self._broken(exc) from exc

    async def _next_message(self) -> bytes | None:
        """None at the end."""
        try:
            message = await self._connection.get_message()
        except trio_websocket.ConnectionClosed as exc:
            if not self._closed and exc.reason is not None and exc.reason.code in ENDINGS:
                return None
            raise self._broken(exc) from exc
        if isinstance(message, bytes):
            return message
        await self._hang_up(BINARY_ONLY, "binary messages only")
        raise trio.BrokenResourceError("the peer sent a text message")

    def _check_open(self) -> None:
        if self._closed:
            raise trio.ClosedResourceError("this stream was closed")

    def _broken(self, error: trio_websocket.ConnectionClosed) -> Exception:
        if self._closed:
            return trio.ClosedResourceError("this stream was closed")
        return trio.BrokenResourceError(f"the WebSocket broke: {error.reason}")


def request_upgrade(authority: str, path: str, max_message_bytes: int) -> Opening:
    """The client's handshake.

    Args:
        authority: the host, and port, to name in the request.
        path: what to ask for.
        max_message_bytes: a longer message closes the connection.
    """

    async def opening(nursery: trio.Nursery, wire: Wire) -> WebSocketConnection:
        carrier = cast(trio.SocketStream, wire)  # typed narrowly: any stream will do
        return await trio_websocket.wrap_client_stream(
            nursery,
            carrier,
            authority,
            path,
            max_message_size=max_message_bytes,
            message_queue_size=QUEUED_MESSAGES,
            receive_buffer_size=RECEIVE_BYTES,
        )

    return opening


def accept_upgrade(max_message_bytes: int) -> Opening:
    """The server's handshake, whatever the client asked for."""

    async def opening(nursery: trio.Nursery, wire: Wire) -> WebSocketConnection:
        request = await trio_websocket.wrap_server_stream(
            nursery,
            wire,
            max_message_size=max_message_bytes,
            message_queue_size=QUEUED_MESSAGES,
            receive_buffer_size=RECEIVE_BYTES,
        )
        return await request.accept()

    return opening


@asynccontextmanager
async def open_stream(wire: Wire, opening: Opening, name: str) -> AsyncGenerator[WebSocketStream]:
    """A WebSocket for the length of a block.

    Args:
        wire: the stream that carries it; its deadline holds for the opening handshake.
        opening: makes the handshake, and starts the reader task in the nursery that it is given.
        name: what to call the connection in an error.
    Raises:
        DialError: no handshake: the peer refused, hung up, took too long, or does not speak WebSocket.
    """
    async with open_background() as nursery:
        connection: WebSocketConnection = await nursery.start(_run, wire, opening, name)
        async with WebSocketStream(connection, wire) as stream:
            yield stream


async def _run(wire: Wire, opening: Opening, name: str, task_status: trio.TaskStatus[WebSocketConnection]) -> None:
    """The handshake, and then the reader task until it ends; what that dies of is the peer's doing, not a crash."""
    connection = None
    failures: BaseExceptionGroup[Exception] | None = None
    try:
        async with trio.open_nursery() as nursery:
            connection = await _open(nursery, wire, opening)
            if connection is None:
                nursery.cancel_scope.cancel()
            else:
                wire.opened()
                task_status.started(connection)
    except* READER_ERRORS as group:
        failures = group
    finally:
        await trio.aclose_forcefully(wire)
    if connection is None:
        failure = failures.exceptions[0] if failures else None
        raise DialError(f"no WebSocket {name}: {_reason(failure, wire.deadline)}") from failure


async def _open(nursery: trio.Nursery, wire: Wire, opening: Opening) -> WebSocketConnection | None:
    """The handshake; None when the stream ended, or the time did."""
    with trio.move_on_at(wire.deadline) as scope, wire.waiting(scope):
        return await opening(nursery, wire)
    return None


def _reason(failure: BaseException | None, deadline: float) -> str:
    if isinstance(failure, trio_websocket.ConnectionRejected):
        return f"refused with HTTP status {failure.status_code}"
    if failure is not None:
        return f"the peer's handshake is wrong: {failure}"
    return "no answer in time" if trio.current_time() >= deadline else "the peer hung up"
