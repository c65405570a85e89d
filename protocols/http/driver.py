"""One exchange between a stream and an ASGI application."""

import logging
from collections.abc import Mapping
from typing import Any, NoReturn

import trio

from agentmesh.abc import Admission, PeerStream, Stream, StreamLimits
from agentmesh.errors import ErrorCode, LocalProtocolError
from agentmesh.protocols.http.asgi import INFORMATIONAL, TRAILERS, ASGIApp, Message, scope_of
from agentmesh.protocols.http.events import BodyReceived, CallerLeft, RequestReceived, RequestRefused
from agentmesh.protocols.http.machine import GONE, ServerExchange, State
from agentmesh.protocols.http.wire import DEFAULT_LIMITS, HTTP_ID, HttpLimits
from agentmesh.runtime.messages import WRITE_TIMEOUT, wait_event
from agentmesh.runtime.registry import Protocol

logger = logging.getLogger("agentmesh.http")

ONE_EXCHANGE_EACH = StreamLimits()
READ_BYTES = 64 * 1024  # asked of the stream at once


class CallerLeftError(OSError):
    """What an application's `send` raises when nobody is there to read (ASGI's way to say so)."""


def protocol(
    app: ASGIApp,
    *,
    admission: Admission = Admission.ANYONE,
    limits: StreamLimits = ONE_EXCHANGE_EACH,
    http_limits: HttpLimits = DEFAULT_LIMITS,
) -> Protocol:
    """Serve `app` to whoever opens a stream.

    Args:
        app: an ASGI 3 application; called for "http" only. Its lifespan is the caller's business
            (`agentmesh.services.running`).
        admission: whose streams are taken. Anyone's by default, because each request brings its own credential.
        limits: streams per peer.
        http_limits: bounds of each exchange.
    """

    async def serve(stream: Stream) -> None:
        await serve_http(stream, app, http_limits)

    return Protocol(HTTP_ID, serve, admission, limits)


async def serve_http(stream: PeerStream, app: ASGIApp, limits: HttpLimits = DEFAULT_LIMITS) -> None:
    """Answer the one request of `stream`, then return; the stream is then for its owner to close.

    What the caller does wrong is answered 400 (or 408, 431, 501), and what `app` raises is logged and answered 500, or
    by a reset when the answer had begun.

    Cancellation: cancels `app`; the stream is left as it is, to be reset.
    """
    machine = ServerExchange(trio.current_time(), limits)
    try:
        match await wait_event(machine, stream):
            case RequestReceived() as request:
                await AsgiExchange(stream, machine, limits).run(app, request)
            case RequestRefused(status, reason):
                logger.info("request refused", extra={"peer": stream.peer, "status": status, "reason": reason})
            case BodyReceived() | CallerLeft():
                pass
        await _finish(stream, machine, limits)
    except (trio.BrokenResourceError, trio.TooSlowError):
        stream.reset()  # the caller is gone, or takes no answer


async def _finish(stream: PeerStream, machine: ServerExchange, limits: HttpLimits) -> None:
    """Say that the answer is whole, and take in a little of a request that nobody wanted, so that no reset meets it."""
    match machine.state:
        case State.ANSWERED | State.REFUSED:
            await stream.send_eof()
            drained = 0
            with trio.move_on_after(limits.drain_timeout):
                while not machine.request_ended and drained < limits.max_drain_bytes:
                    data = await stream.receive_some(READ_BYTES)
                    if not data:
                        return
                    drained += len(data)
                    machine.receive_data(bytes(data), trio.current_time())
        case State.CUT:
            stream.reset(ErrorCode.PROTOCOL_VIOLATION)
        case _:
            stream.reset()


class AsgiExchange:
    """The two callables of an ASGI application, `receive` and `send`, over one stream."""

    def __init__(self, stream: PeerStream, machine: ServerExchange, limits: HttpLimits) -> None:
        self._stream = stream
        self._machine = machine
        self._limits = limits
        self._promised_trailers = False
        self._trailers: list[tuple[bytes, bytes]] = []
        self._arrived = trio.lowlevel.ParkingLot()  # `receive` waits here for the caller
        self._room = trio.lowlevel.ParkingLot()  # the reader waits here for the application
        self._unsent = trio.Event()  # the writer waits for it
        self._sent = trio.lowlevel.ParkingLot()  # whoever needs the machine's bytes sent waits here for the writer
        self._left = trio.Event()  # the caller is gone before its answer was whole
        self._over = trio.Event()  # the answer has left, or there is nobody to take it

    async def run(self, app: ASGIApp, request: RequestReceived) -> None:
        """Call `app` and see its answer out.

        Raises:
            TooSlowError: what `app` left unsent when it returned was not taken within WRITE_TIMEOUT seconds.
        """
        about = {"peer": self._stream.peer, "method": request.method, "path": request.path.decode("ascii")}
        async with trio.open_nursery() as nursery:
            working = trio.CancelScope()
            nursery.start_soon(self._read, working)
            nursery.start_soon(self._write)
            nursery.start_soon(self._watch, working)
            with working:
                await self._call(app, request, about)
            with trio.move_on_after(WRITE_TIMEOUT) as timeout:
                await self._flush()
            nursery.cancel_scope.cancel()
        if timeout.cancelled_caught:
            raise trio.TooSlowError(f"{self._stream.peer} does not take its answer")

    async def _call(self, app: ASGIApp, request: RequestReceived, about: Mapping[str, Any]) -> None:
        try:
            await app(scope_of(request, self._stream.peer, self._left.wait), self.receive, self.send)
        except Exception:  # the one seam where a stranger's code meets ours: it raises whatever it likes
            if self._machine.state not in GONE:
                logger.exception("application failed", extra=about)
        if self._machine.state is State.OPEN:
            logger.error("application gave no answer", extra=about)
            self._machine.send_response(500, [(b"content-length", b"0")])
            self._machine.send_end()

    # ── what the application calls ──

    async def receive(self) -> Message:
        """ASGI's receive: the body piece by piece, then http.disconnect once there is nobody to answer."""
        await trio.lowlevel.checkpoint()
        if self._machine.awaits_continue:
            self._machine.send_continue()
            await self._flush()
        while True:
            match self._machine.next_event():
                case BodyReceived(data, more, trailers):
                    self._room.unpark_all()
                    message: Message = {"type": "http.request", "body": data, "more_body": more}
                    return {**message, TRAILERS: list(trailers)} if trailers else message
                case None if self._machine.state not in GONE and not self._over.is_set():
                    await self._arrived.park()
                case _:
                    return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """ASGI's send.

        Raises:
            CallerLeftError: the caller went away; an OSError, as ASGI asks.
            LocalProtocolError: messages out of order, or an answer that HTTP cannot carry.
        """
        self._check_caller()
        match message["type"]:
            case "http.response.start":
                self._promised_trailers = message.get("trailers", False)
                self._machine.send_response(message["status"], message.get("headers", ()))
                self._unsent.set()  # it leaves with the first piece of the body, or by itself if that takes its time
            case "http.response.body":
                more = message.get("more_body", False) or self._promised_trailers
                await self._send_body(bytes(message.get("body", b"")), more)
            case "http.response.trailers" if not self._promised_trailers:
                await trio.lowlevel.checkpoint()  # too late: the answer may be over; dropped
            case "http.response.trailers":
                self._trailers += message.get("headers", ())
                await self._send_body(b"", message.get("more_trailers", False))
            case str(kind) if kind == INFORMATIONAL:
                self._machine.send_informational(message["status"], message.get("headers", ()))
                await self._flush()
            case other:
                raise LocalProtocolError(f"no answer to a request: {other!r}")

    async def _send_body(self, data: bytes, more: bool) -> None:
        self._machine.send_body(data)
        if not more:
            self._machine.send_end(self._trailers)
        await self._flush()
        self._check_caller()

    def _check_caller(self) -> None:
        if self._machine.state in GONE:
            raise CallerLeftError(f"{self._stream.peer} left before its answer was whole")

    # ── what happens beside it ──

    async def _watch(self, working: trio.CancelScope) -> None:
        """Notice when the caller leaves, also while nobody reads or sends."""
        error = await self._stream.wait_broken()
        self._machine.caller_left(str(error))
        self._arrived.unpark_all()
        await self._give_up(working)

    async def _read(self, working: trio.CancelScope) -> None:
        """Read ahead of the application."""
        while self._machine.state not in GONE and await self._read_some():
            self._arrived.unpark_all()
        self._arrived.unpark_all()
        await self._flush()
        await self._give_up(working)

    async def _give_up(self, working: trio.CancelScope) -> None:
        """Cancel an application that goes on, for a caller that is gone before its answer was whole."""
        if self._machine.state in GONE:
            self._left.set()
            await trio.sleep(self._limits.leave_timeout)
            working.cancel()

    async def _read_some(self) -> bool:
        """Whether more can come."""
        while self._machine.unread >= self._limits.max_unread_bytes:
            await self._room.park()
        try:
            data = bytes(await self._stream.receive_some(READ_BYTES))
        except trio.BrokenResourceError as exc:
            self._machine.caller_left(str(exc))
            return False
        self._machine.receive_data(data, trio.current_time())
        return bool(data)

    async def _flush(self) -> None:
        """Until all that the machine has to send is sent, or the caller is gone."""
        self._unsent.set()
        await self._sent.park()

    async def _write(self) -> NoReturn:
        """Send for the application's tasks. They only wait: a scope of their own that cancels them, as when `receive`
        says that the exchange is over, cuts no answer short.
        """
        while True:
            await self._unsent.wait()
            self._unsent = trio.Event()
            try:
                while data := self._machine.data_to_send():
                    await self._stream.send_all(data)
                if self._machine.state is State.ANSWERED:
                    await self._stream.send_eof()
                    self._over.set()
            except trio.BrokenResourceError as exc:
                self._machine.caller_left(str(exc))
                self._over.set()
            self._arrived.unpark_all()
            self._sent.unpark_all()
