"""One HTTP/1.1 exchange passed on: what an ASGI server was asked goes to a stream, what comes back goes to the asker.

Both directions run at once, so an answer may come while the request is still being sent, and neither is held back to
be whole. What HTTP/1.1 says beside bodies passes too: trailers, and answers of 1xx but for 100 and 101.
"""

import math
from collections.abc import Awaitable, Callable
from http import HTTPStatus

import attrs
import h11
import trio

from agentmesh.errors import RejectedError, ServiceError
from agentmesh.protocols.http import INFORMATIONAL, TRAILERS, Receive, Scope, Send, wait_left_of
from agentmesh.services.headers import Headers, end_to_end

MAX_HEAD_BYTES = 100 * 1024  # of an answer
READ_BYTES = 64 * 1024  # asked of the stream at once


class NoAnswerError(ServiceError):
    """The exchange broke before an answer had begun: somebody else may say something in its place."""


@attrs.frozen
class Head:
    """How a request begins on the stream. The headers are those that pass; how the body is framed is added."""

    method: str
    target: bytes
    headers: Headers

    def framed_as(self, scope: Scope) -> "Head":
        """With the framing that the request came with."""
        chunked = any(name == b"transfer-encoding" for name, _ in scope["headers"])
        framing = [(b"Transfer-Encoding", b"chunked")] if chunked else []
        return attrs.evolve(self, headers=[*self.headers, *framing, (b"Connection", b"close")])


async def pass_on(
    stream: trio.abc.Stream,
    abort: Callable[[], None],
    head: Head,
    scope: Scope,
    receive: Receive,
    send: Send,
    *,
    changed: Callable[[Headers], Headers] = end_to_end,
    send_timeout: float = math.inf,
) -> bool:
    """Send a request over `stream`, and its answer to whoever asked. The stream is then for its owner to cut.

    Args:
        abort: cuts `stream` at once, so that whoever reads it hears of it.
        head: how the request begins; its body comes from `receive`.
        scope: of the request that is passed on.
        changed: gives the headers of an answer, and its trailers, as the asker is to have them.
        send_timeout: seconds the other side may take nothing of the request while more of it is there.
    Returns:
        Whether the answer was whole; it is not when the asker left.
    Raises:
        RejectedError: the stream was refused.
        NoAnswerError: it broke before an answer began; nothing was sent.
        ServiceError: it broke inside the answer, which is then to be cut, too.
    Cancellation: safe; cut the stream.
    """
    passing = _Passing(stream, abort, scope, send, changed, send_timeout)
    failures: list[ServiceError | RejectedError] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_watch, wait_left_of(scope), nursery.cancel_scope)
        nursery.start_soon(passing.request, head.framed_as(scope), receive, nursery.cancel_scope)
        try:
            await passing.answer()
        except (ServiceError, RejectedError) as exc:
            failures.append(exc)
        nursery.cancel_scope.cancel()
    if failures:
        raise failures[0]
    return passing.is_whole


async def _watch(wait_left: Callable[[], Awaitable[None]], working: trio.CancelScope) -> None:
    """End everything when the asker leaves, also while the other side takes nothing of its request."""
    await wait_left()
    working.cancel()


class _Passing:
    def __init__(
        self,
        stream: trio.abc.Stream,
        abort: Callable[[], None],
        scope: Scope,
        send: Send,
        changed: Callable[[Headers], Headers],
        send_timeout: float,
    ) -> None:
        self._h11 = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._stream = stream
        self._abort = abort
        self._send = send
        self._changed = changed
        self._send_timeout = send_timeout
        self._extensions = scope.get("extensions", {})
        self._begun = trio.Event()  # the request's head was written: before that h11 reads no answer
        self._answering = False
        self.is_whole = False

    # ── there ──

    async def request(self, head: Head, receive: Receive, working: trio.CancelScope) -> None:
        """Send the request as it comes, then look whether the asker leaves; when he does, everything ends."""
        request = h11.Request(method=head.method, target=head.target, headers=head.headers)
        data = self._h11.send(request) or b""
        self._begun.set()
        taken, more = await self._write(data), True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                working.cancel()
                return
            more = message.get("more_body", False)
            if taken and (data := self._piece(message.get("body", b""), more, message.get(TRAILERS, ()))):
                taken = await self._write(data)
        await receive()  # the whole request was there, so this can only be http.disconnect
        working.cancel()

    def _piece(self, body: bytes, more: bool, trailers: Headers) -> bytes:
        try:
            data = self._h11.send(h11.Data(data=body)) or b"" if body else b""
            return data if more else data + (self._h11.send(h11.EndOfMessage(headers=trailers)) or b"")
        except h11.LocalProtocolError:  # the other side broke HTTP, or the body is none that it said it was
            return b""

    async def _write(self, data: bytes) -> bool:
        """Whether the other side takes more. When it does not, there may be an answer all the same."""
        try:
            with trio.move_on_after(self._send_timeout):
                await self._stream.send_all(data)
                return True
            self._abort()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        return False

    # ── and back ──

    async def answer(self) -> None:
        await self._begun.wait()
        while True:
            match await self._next_event():
                case h11.InformationalResponse() as early:
                    await self._say(early)
                case h11.Response() as response:
                    await self._begin(response)
                case h11.Data(data=data):
                    await self._send({"type": "http.response.body", "body": bytes(data), "more_body": True})
                case h11.EndOfMessage(headers=trailers):
                    await self._end(trailers.raw_items())
                    return
                case _:
                    raise self._broken("the stream ended before an answer")

    async def _next_event(self) -> h11.Event | type[h11.PAUSED]:
        try:
            while (event := self._h11.next_event()) is h11.NEED_DATA:
                self._h11.receive_data(bytes(await self._stream.receive_some(READ_BYTES)))
        except RejectedError:
            raise
        except (trio.BrokenResourceError, trio.ClosedResourceError, h11.RemoteProtocolError) as exc:
            raise self._broken(str(exc) or "it ended too soon") from exc
        return event  # type: ignore[return-value]  # h11's stubs know no NEED_DATA that was ruled out

    async def _say(self, early: h11.InformationalResponse) -> None:
        if early.status_code not in (HTTPStatus.CONTINUE, HTTPStatus.SWITCHING_PROTOCOLS):
            headers = self._changed(early.headers.raw_items())
            if INFORMATIONAL in self._extensions:
                await self._send({"type": INFORMATIONAL, "status": early.status_code, "headers": headers})

    async def _begin(self, response: h11.Response) -> None:
        headers = self._changed(response.headers.raw_items())
        chunked = any(name == b"transfer-encoding" for name, _ in response.headers)
        self._promised = chunked and "http.response.trailers" in self._extensions
        self._answering = True
        start = {"type": "http.response.start", "status": response.status_code, "headers": headers}
        await self._send({**start, "trailers": True} if self._promised else start)

    async def _end(self, trailers: Headers) -> None:
        self.is_whole = True
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})
        if self._promised:
            await self._send(
                {"type": "http.response.trailers", "headers": self._changed(trailers), "more_trailers": False}
            )

    def _broken(self, reason: str) -> ServiceError:
        return ServiceError(f"broke off: {reason}") if self._answering else NoAnswerError(f"no answer: {reason}")
