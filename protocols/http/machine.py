"""The provider's side of one exchange, sans-IO: one request in, one answer out, nothing after.

h11 parses and writes HTTP/1.1; what is here holds the exchange to one, bounds it, and says what happens when either
side stops in the middle. Call order for a driver: after each command, `receive_data`, `handle_timeout` or
`caller_left`, send `data_to_send()`; take events with `next_event()`. `receive_data(b"")` says that the caller ended
its side, which is its right once the request is whole.
"""

import enum
import math
from collections import deque
from collections.abc import Iterable
from http import HTTPStatus

import h11

from agentmesh.errors import LocalProtocolError, RemoteProtocolError
from agentmesh.protocols.http.events import BodyReceived, CallerLeft, Event, RequestReceived, RequestRefused
from agentmesh.protocols.http.wire import DEFAULT_LIMITS, ERROR_HEADER, HttpLimits, head_size, split_target

Headers = Iterable[tuple[bytes, bytes]]


class State(enum.Enum):
    AWAITING = "awaiting the request's head"
    OPEN = "request received, answer not begun"
    ANSWERING = "answer begun"
    ANSWERED = "answer sent"
    REFUSED = "request refused"
    CUT = "cut"


class Input(enum.Enum):
    HEAD = "head of the request"
    MALFORMED = "malformed bytes"
    LEFT = "caller left"
    TIMEOUT = "timeout"
    ANSWER = "send_response"
    INTERIM = "send_informational"
    PIECE = "send_body"
    END = "send_end"


# None: our own application broke the order. A command after the exchange is over does nothing: it could not know yet.
# fmt: off
ROWS: dict[State, tuple[State | None, ...]] = {
    #                 HEAD             MALFORMED       LEFT            TIMEOUT
    State.AWAITING:  (State.OPEN,      State.REFUSED,  State.CUT,      State.REFUSED,
                      None, None, None, None),
    State.OPEN:      (State.OPEN,      State.REFUSED,  State.CUT,      State.OPEN,
                      State.ANSWERING, State.OPEN, None, None),
    State.ANSWERING: (State.ANSWERING, State.CUT,      State.CUT,      State.ANSWERING,
                      None, None, State.ANSWERING, State.ANSWERED),
    State.ANSWERED:  (State.ANSWERED,  State.ANSWERED, State.ANSWERED, State.ANSWERED,
                      None, None, None, None),
    State.REFUSED:   (State.REFUSED,) * len(Input),
    State.CUT:       (State.CUT,) * len(Input),
    #                 ANSWER           INTERIM     PIECE            END
}
# fmt: on
TRANSITIONS = {(state, got): to for state, row in ROWS.items() for got, to in zip(Input, row, strict=True)}

GONE = frozenset({State.REFUSED, State.CUT})  # the application can do nothing for this caller any more

UNFINISHED = frozenset({h11.IDLE, h11.SEND_BODY})  # h11's states of a caller that has more of its request to send
BODILESS = frozenset({204, 304})
REASONS = {status.value: status.phrase.encode("ascii") for status in HTTPStatus}
CONNECTION_HEADERS = frozenset({b"connection", b"keep-alive", b"proxy-connection"})


class ServerExchange:
    """One request and its answer.

    Attributes:
        state: where the exchange stands.
        deadline: when `handle_timeout` has something to do, on the driver's clock; math.inf when never.
        unread: bytes of the body that `next_event` has not given out yet. Stop reading while they are many.
    """

    def __init__(self, now: float, limits: HttpLimits = DEFAULT_LIMITS) -> None:
        self.state = State.AWAITING
        self.deadline = now + limits.head_timeout
        self._limits = limits
        self._h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=limits.max_head_bytes)
        self._events: deque[Event] = deque()
        self._body = bytearray()
        self._out: list[bytes] = []
        self._has_body = True  # the answer: not to HEAD, not 204 or 304
        self._takes_trailers = False  # the answer: of a body in chunks

    @property
    def unread(self) -> int:
        return len(self._body)

    @property
    def request_ended(self) -> bool:
        """No byte of the request is to come."""
        return self._h11.their_state not in UNFINISHED

    @property
    def awaits_continue(self) -> bool:
        """The caller sends its body only when told to (Expect: 100-continue)."""
        return self._h11.they_are_waiting_for_100_continue and self.state is State.OPEN

    # ── from the caller ──

    def receive_data(self, data: bytes, now: float) -> None:
        """Take bytes as they came; b"" when the caller ended its side."""
        if self.state in GONE:
            return
        if self.request_ended:
            if data:
                self._malformed("a second request on one stream")
            return
        self._h11.receive_data(data)
        try:
            self._parse()
        except (h11.RemoteProtocolError, RemoteProtocolError) as exc:
            if data:
                self._malformed(str(exc), exc.error_status_hint if isinstance(exc, h11.RemoteProtocolError) else 400)
            else:
                self.caller_left("it ended its side inside the request")

    def handle_timeout(self, now: float) -> None:
        if now >= self.deadline:
            self.deadline = math.inf
            if self._step(Input.TIMEOUT) is State.REFUSED:
                self._refuse(408, "no request came in time")

    def caller_left(self, reason: str) -> None:
        """The stream broke: the caller cut it, or its session ended."""
        was = self.state
        if self._step(Input.LEFT) is State.CUT and was is not State.CUT:
            self._end(CallerLeft(reason))

    def next_event(self) -> Event | None:
        """What happened next; pieces of the body that came meanwhile are joined."""
        if self._body and not (self._events and isinstance(self._events[0], RequestReceived)):
            data = bytes(self._body)
            self._body.clear()
            match self._events.popleft() if self._events else None:
                case BodyReceived(trailers=trailers):
                    return BodyReceived(data, more=False, trailers=trailers)
                case _:
                    return BodyReceived(data, more=True)
        return self._events.popleft() if self._events else None

    # ── from the application ──

    def send_continue(self) -> None:
        """Ask for the body that the caller holds back."""
        if self.awaits_continue:
            self._write(h11.InformationalResponse(status_code=100, headers=[]))

    def send_informational(self, status: int, headers: Headers) -> None:
        """Say something before the answer, 103 Early Hints for one; dropped when the caller speaks HTTP/1.0.

        Raises:
            LocalProtocolError: the answer has begun, the status is not of 1xx or is 101, or a header is malformed.
        """
        if not 100 <= status < 200 or status == 101:
            raise LocalProtocolError(f"{status} is not said before an answer")
        kept = [(name, value) for name, value in headers if name.lower() not in CONNECTION_HEADERS]
        speaks_1_1 = self._h11.their_http_version != b"1.0"
        if self._step(Input.INTERIM) is State.OPEN and speaks_1_1:
            self._write(h11.InformationalResponse(status_code=status, headers=kept, reason=REASONS.get(status, b"")))

    def send_response(self, status: int, headers: Headers) -> None:
        """Begin the answer. Framing and connection headers are set as the exchange needs them.

        Raises:
            LocalProtocolError: the answer has begun already, or a header cannot be written.
        """
        kept = [(name, value) for name, value in headers if name.lower() not in CONNECTION_HEADERS]
        kept.append((b"connection", b"close"))
        try:
            response = h11.Response(status_code=status, headers=kept, reason=REASONS.get(status, b""))
        except h11.LocalProtocolError as exc:
            raise LocalProtocolError(str(exc)) from exc
        if self._step(Input.ANSWER) is State.ANSWERING:
            self._has_body = self._has_body and status not in BODILESS
            sized = any(name == b"content-length" for name, _ in response.headers)
            self._takes_trailers = self._has_body and not sized and self._h11.their_http_version != b"1.0"
            self._write(response)

    def send_body(self, data: bytes) -> None:
        """Send a piece of the answer's body; dropped where an answer has none (HEAD, 204, 304).

        Raises:
            LocalProtocolError: no answer was begun, or it is longer than its Content-Length.
        """
        if self._step(Input.PIECE) is State.ANSWERING and data and self._has_body:
            self._write(h11.Data(data=data))

    def send_end(self, trailers: Headers = ()) -> None:
        """Finish the answer. The driver then ends its side of the stream.

        Args:
            trailers: to come behind the body; dropped where none can: only a body in chunks has them.
        Raises:
            LocalProtocolError: no answer was begun, or it is shorter than its Content-Length.
        """
        if self._after(Input.END) is State.ANSWERED:
            headers = list(trailers) if self._takes_trailers else []
            self._write(h11.EndOfMessage(headers=headers))  # raises when it is too short: then it stays unfinished
            self._step(Input.END)

    def data_to_send(self) -> bytes:
        out, self._out = self._out, []
        return out[0] if len(out) == 1 else b"".join(out)

    # ── inside ──

    def _after(self, got: Input) -> State:
        after = TRANSITIONS[self.state, got]
        if after is None:
            raise LocalProtocolError(f"{got.value} while {self.state.value}")
        return after

    def _step(self, got: Input) -> State:
        self.state = self._after(got)
        return self.state

    def _parse(self) -> None:
        while True:
            match self._h11.next_event():
                case h11.Request() as request:
                    self._take_head(request)
                case h11.Data(data=data):
                    self._take_body(data)
                case h11.EndOfMessage(headers=trailers):
                    self._take_end(tuple(trailers))
                    return
                case h11.ConnectionClosed():
                    raise RemoteProtocolError("no request came")
                case _:  # h11.NEED_DATA, or h11.PAUSED behind the request
                    return

    def _take_head(self, request: h11.Request) -> None:
        self.deadline = math.inf
        method = request.method.decode("ascii")
        self._has_body = method != "HEAD"  # of a refusal too
        headers = tuple(request.headers)
        size = head_size(request.target, headers)
        if size > self._limits.max_head_bytes or len(headers) > self._limits.max_headers:
            raise h11.RemoteProtocolError("the request's head is too large", error_status_hint=431)
        names = {name for name, _ in headers}
        if {b"content-length", b"transfer-encoding"} <= names:  # read differently by different servers: smuggling
            raise RemoteProtocolError("both Content-Length and Transfer-Encoding")
        path, query = split_target(method, request.target)
        self._step(Input.HEAD)
        self._events.append(RequestReceived(method, path, query, headers, request.http_version.decode("ascii")))

    def _take_body(self, data: bytes | bytearray) -> None:
        if self.state is not State.ANSWERED:
            self._body += data

    def _take_end(self, trailers: tuple[tuple[bytes, bytes], ...]) -> None:
        if self._h11.trailing_data[0]:
            raise RemoteProtocolError("a second request on one stream")
        if self.state is not State.ANSWERED:
            self._events.append(BodyReceived(b"", more=False, trailers=trailers))

    def _malformed(self, reason: str, status: int = 400) -> None:
        was = self.state
        after = self._step(Input.MALFORMED)
        if after is State.REFUSED:
            self._refuse(status, reason)
        elif after is State.CUT and was is not State.CUT:
            self._end(CallerLeft(f"broke HTTP: {reason}"))

    def _refuse(self, status: int, reason: str) -> None:
        body = f"{reason}\n".encode()
        headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
        headers += [(ERROR_HEADER, b"malformed"), (b"connection", b"close")]
        self._write(h11.Response(status_code=status, headers=headers, reason=REASONS.get(status, b"")))
        if self._has_body:
            self._write(h11.Data(data=body))
        self._write(h11.EndOfMessage())
        self._end(RequestRefused(status, reason))

    def _end(self, event: RequestRefused | CallerLeft) -> None:
        self.deadline = math.inf
        self._body.clear()
        self._events.clear()
        self._events.append(event)

    def _write(self, event: h11.Event) -> None:
        try:
            self._out += self._h11.send_with_data_passthrough(event) or []
        except h11.LocalProtocolError as exc:
            raise LocalProtocolError(str(exc)) from exc
