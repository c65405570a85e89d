"""An HTTP proxy that serves CONNECT (RFC 9110, 9.3.6) and nothing else, sans-IO over h11."""

import base64
import binascii
import enum
from collections.abc import Sequence
from http import HTTPStatus

import h11

from agentmesh.errors import AddressError, LocalProtocolError
from agentmesh.forward.credentials import Credentials
from agentmesh.forward.front import Front, RequestRefused, TargetRequested
from agentmesh.node import TunnelTarget
from agentmesh.node.tunnels import SCHEME, reason_of
from agentmesh.protocols.pool import Code, OpenResult

MAX_HEAD_BYTES = 16 * 1024
ERROR_HEADER = "X-Mesh-Error"

STATUSES: dict[Code, HTTPStatus] = {
    Code.OK: HTTPStatus.OK,
    Code.FORBIDDEN: HTTPStatus.FORBIDDEN,
    Code.AGENT_OFFLINE: HTTPStatus.SERVICE_UNAVAILABLE,
    Code.QUEUE_FULL: HTTPStatus.SERVICE_UNAVAILABLE,
    Code.TIMEOUT: HTTPStatus.GATEWAY_TIMEOUT,
    Code.NETWORK_UNREACHABLE: HTTPStatus.BAD_GATEWAY,
    Code.HOST_UNREACHABLE: HTTPStatus.BAD_GATEWAY,
    Code.CONNECTION_REFUSED: HTTPStatus.BAD_GATEWAY,
    Code.UNSUPPORTED_CAPABILITY: HTTPStatus.BAD_GATEWAY,
    Code.INTERNAL_ERROR: HTTPStatus.BAD_GATEWAY,
}
DEFAULT_RETRY_AFTER = 1  # seconds, of a 503 for which nobody said any


class State(enum.Enum):
    HEAD = "awaiting the request"
    OPENING = "request received, not answered"
    OPEN = "accepted"
    CLOSED = "refused"


class Input(enum.Enum):
    CONNECT = "a CONNECT"
    OTHER = "a request that is not served"
    GARBAGE = "no request"
    EOF = "the client's end"
    ACCEPT = "send_accepted"
    REFUSE = "send_refused"


# None: what cannot be, since nothing is read then; or our own caller's fault.
ROWS: dict[State, tuple[State | None, ...]] = {
    #               CONNECT        OTHER         GARBAGE       EOF            ACCEPT      REFUSE
    State.HEAD: (State.OPENING, State.CLOSED, State.CLOSED, State.CLOSED, None, None),
    State.OPENING: (None, None, None, State.OPENING, State.OPEN, State.CLOSED),
    State.OPEN: (None, None, None, State.OPEN, None, None),
    State.CLOSED: (None, None, None, State.CLOSED, None, None),
}
TRANSITIONS = {(state, got): to for state, row in ROWS.items() for got, to in zip(Input, row, strict=True)}


class ConnectServer(Front):
    """One connection of a client of an HTTP proxy.

    Args:
        credentials: that it has to show; None to take whoever comes.
    Attributes:
        state: where it stands.
    """

    def __init__(self, credentials: Credentials | None = None) -> None:
        super().__init__()
        self.state = State.HEAD
        self._credentials = credentials
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._method = b""
        self._behind = bytearray()

    def receive_data(self, data: bytes) -> None:
        if self.state is not State.HEAD:
            if self.state is not State.CLOSED:
                self._behind += data
            return
        if not data:
            self._finish(Input.EOF, "the client hung up")
            return
        try:
            self._http.receive_data(data)
            event = self._http.next_event()
            if isinstance(event, h11.Request):
                self._method = event.method
                self._judge(event)
        except h11.RemoteProtocolError as exc:
            status = HTTPStatus(exc.error_status_hint)
            self._deny(status, Input.GARBAGE, f"no HTTP request: {exc}")

    @property
    def received(self) -> bytes:
        return bytes(self._behind) if self.state is State.OPEN else b""

    def send_accepted(self) -> None:
        self._step(Input.ACCEPT)
        self._send(h11.Response(status_code=200, headers=[], reason=b"Connection established"))
        self._behind[:0] = self._http.trailing_data[0]

    def send_refused(self, result: OpenResult) -> None:
        self._step(Input.REFUSE)
        status, headers = STATUSES[result.code], [(ERROR_HEADER, str(result.code))]
        if status is HTTPStatus.SERVICE_UNAVAILABLE:
            seconds = -(-result.retry_after_ms // 1000) or DEFAULT_RETRY_AFTER
            headers.append(("Retry-After", str(seconds)))
        self._answer(status, reason_of(result), headers)

    # ── requests ──

    def _judge(self, request: h11.Request) -> None:
        method, shown = request.method.decode(), _shown_by(request)
        if method != "CONNECT":
            allow = [("Allow", "CONNECT")]
            said = f"{method} is not served, but CONNECT (curl: --proxytunnel)"
            self._deny(HTTPStatus.METHOD_NOT_ALLOWED, Input.OTHER, said, allow)
        elif self._credentials is not None and (shown is None or not self._credentials.accepts(*shown)):
            ask = [("Proxy-Authenticate", 'Basic realm="agentmesh", charset="UTF-8"')]
            reason = "no password" if shown is None else "the wrong password"
            self._deny(HTTPStatus.PROXY_AUTHENTICATION_REQUIRED, Input.OTHER, reason, ask)
        elif _has_body(request):
            self._deny(HTTPStatus.BAD_REQUEST, Input.OTHER, "a CONNECT has no body")
        else:
            self._connect(request.target)

    def _connect(self, authority: bytes) -> None:
        try:
            target = TunnelTarget.parse(f"{SCHEME}://{authority.decode()}")
        except (AddressError, UnicodeDecodeError):
            self._deny(HTTPStatus.BAD_REQUEST, Input.OTHER, "the target is no host:port")
            return
        self._http.next_event()  # the end of the request: what is behind it is the target's
        self._events.append(TargetRequested(target))
        self._step(Input.CONNECT)

    # ── answers ──

    def _deny(self, status: HTTPStatus, got: Input, reason: str, headers: Sequence[tuple[str, str]] = ()) -> None:
        self._finish(got, reason)
        self._answer(status, reason, headers)

    def _answer(self, status: HTTPStatus, reason: str, headers: Sequence[tuple[str, str]]) -> None:
        body = f"{reason}\n".encode()
        about = [("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(body)))]
        every = [*about, ("Connection", "close"), *headers]
        self._send(h11.Response(status_code=status, headers=every, reason=status.phrase.encode()))
        if self._method != b"HEAD":
            self._send(h11.Data(data=body))
        self._send(h11.EndOfMessage())

    def _send(self, event: h11.Response | h11.Data | h11.EndOfMessage) -> None:
        self._out += self._http.send(event) or b""

    def _step(self, got: Input) -> None:
        after = TRANSITIONS[self.state, got]
        if after is None:
            raise LocalProtocolError(f"{got.value} while {self.state.value}")
        self.state = after

    def _finish(self, got: Input, reason: str) -> None:
        self._step(got)
        self._events.append(RequestRefused(reason))


def _shown_by(request: h11.Request) -> tuple[bytes, bytes] | None:
    """The user and the password of a request; None when it shows none, or not once."""
    values = [value for name, value in request.headers if name == b"proxy-authorization"]
    scheme, _, encoded = values[0].partition(b" ") if len(values) == 1 else (b"", b"", b"")
    if scheme.lower() != b"basic":
        return None
    try:
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
    except binascii.Error:
        return None
    return (user, password) if colon else None


def _has_body(request: h11.Request) -> bool:
    """Whether it says so; a length of 0 says that it has none."""
    lengths = [value for name, value in request.headers if name == b"content-length"]
    return any(name == b"transfer-encoding" for name, _ in request.headers) or any(map(int, lengths))
