"""HTTP/2 as a carrier of byte streams: bytes in, streams and bytes out. No I/O, no clock.

Around the machine of the `h2` package. A client asks `POST /h2`, a server answers 200 and one byte at once (a
proxy may keep the head of a response until its body begins: nginx does over TLS); from then on the DATA frames of
either side are its bytes. An HTTP exchange is over for every proxy when its response is, so a stream cannot
be closed by halves: whoever sees END_STREAM answers with its own, and so the other knows that all has arrived.

Credit goes back to the peer when a byte is taken, not when it comes; bytes of a stream that nobody reads any more are
taken at once, or its rest would starve the connection's other streams.
"""

from collections import deque
from collections.abc import Callable
from contextlib import suppress

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings
from h2.errors import ErrorCodes
from h2.settings import SettingCodes

from agentmesh.errors import LimitExceededError, RemoteProtocolError
from agentmesh.transports.h2_flow import OK, Flow, Way
from agentmesh.transports.h2_limits import MAX_FRAME_BYTES, MAX_HEADER_BYTES, FrameGate

PATH = b"/h2"
METHOD = b"POST"
GREETING = b"\0"  # how the body of a response begins; not part of the stream
CONTENT_TYPE = (b"content-type", b"application/octet-stream")
ENOUGH_STREAMS = 100  # that the h2 package lets a peer open before it ends the connection; ours are refused one by one

STREAM_WINDOW = 4 * 1024 * 1024  # bytes that may wait for whoever reads a stream
MAX_UNSENT_BYTES = 256 * 1024  # that may wait for the socket before a sender does
MAX_CONTROL_BYTES = 64 * 1024  # answers to a peer that does not read them
DEFAULT_WINDOW = 65535  # RFC 9113, 6.9.2

NOT_FOUND, METHOD_NOT_ALLOWED = 404, 405


class Carrier:
    """One HTTP/2 connection.

    Args:
        client: which side this is.
        max_streams: that the peer may have open at once; further ones are refused (REFUSED_STREAM).

    Attributes:
        flows: the streams that are not released.
        accepted: those that the peer opened and nobody has picked up.
        failure: why the connection is over; None while it is not.
    """

    def __init__(self, *, client: bool, max_streams: int = 1) -> None:
        self.flows: dict[int, Flow] = {}
        self.accepted: deque[Flow] = deque()
        self.failure: str | None = None
        self._max_streams = max_streams
        self._requested = 0  # the last stream that this side opened
        self._gate = FrameGate(from_client=not client)
        self._out = bytearray()
        self._h2 = _start(client, max_streams)
        self._collect()
        self._handlers: dict[type[h2.events.Event], Callable[..., None]] = {
            h2.events.RequestReceived: self._on_request,
            h2.events.ResponseReceived: self._on_response,
            h2.events.DataReceived: self._on_data,
            h2.events.StreamEnded: self._on_end,
            h2.events.StreamReset: self._on_reset,
            h2.events.ConnectionTerminated: self._on_goaway,
        }

    # ── the connection ──

    def receive_data(self, data: bytes | bytearray, now: float) -> None:
        """Take what has come; nothing once the connection is over, be it because nothing can be sent any more.

        Raises:
            RemoteProtocolError: the peer broke the protocol or crossed a bound; the connection is over, and what is
                left to send tells it so.
        """
        if self.failure is not None:
            return
        try:
            for event in self._h2.receive_data(self._gate.check(data, now, self._requested)):
                self._handlers.get(type(event), _ignore)(event, now)
            self._collect()
            if len(self._out) > MAX_UNSENT_BYTES + MAX_CONTROL_BYTES:
                raise LimitExceededError("the peer does not read our answers", limit="MAX_CONTROL_BYTES")
        except h2.exceptions.ProtocolError as exc:
            self.fail(f"HTTP/2 is broken: {exc}")
            raise RemoteProtocolError(f"HTTP/2 is broken: {exc}") from exc
        except RemoteProtocolError as exc:
            self._h2.close_connection(ErrorCodes.ENHANCE_YOUR_CALM)
            self.fail(str(exc))
            raise

    def data_to_send(self) -> bytes:
        data = bytes(self._out)
        self._out.clear()
        return data

    def close(self) -> None:
        """Say that no more will come (GOAWAY)."""
        if self.failure is None:
            self._h2.close_connection()
            self.fail("closed")

    def fail(self, reason: str) -> None:
        """The connection is over, and all its streams with it."""
        self._collect()
        self.failure = self.failure or reason
        for flow in self.flows.values():
            flow.cut()

    # ── its streams ──

    def request(self, authority: str, scheme: str) -> Flow:
        """Open a stream, as the client."""
        flow = self._add(self._h2.get_next_available_stream_id())
        self._requested = flow.id
        flow.greeting = len(GREETING)
        head = [(b":method", METHOD), (b":scheme", scheme.encode()), (b":authority", authority.encode())]
        self._h2.send_headers(flow.id, [*head, (b":path", PATH), CONTENT_TYPE])
        self._collect()
        return flow

    def room(self, flow: Flow) -> int:
        """How many bytes of the stream can be sent now: what the peer's windows and our own bound leave."""
        if flow.sending is not Way.OPEN:
            return 0
        return max(0, min(self._h2.local_flow_control_window(flow.id), MAX_UNSENT_BYTES - len(self._out)))

    def send(self, flow: Flow, data: memoryview) -> int:
        """Send as much of `data` as there is room for, in frames as the peer takes them; tells how much that was."""
        taken = min(len(data), self.room(flow))
        largest = self._h2.max_outbound_frame_size
        for start in range(0, taken, largest):
            self._h2.send_data(flow.id, data[start : min(start + largest, taken)])
            self._gate.earn()
        self._collect()
        return taken

    def take(self, flow: Flow, max_bytes: int) -> bytes:
        """The next bytes of the stream, and credit for them back to the peer; b"" when none are there."""
        data = bytes(memoryview(flow.unread)[:max_bytes])
        if data:
            del flow.unread[: len(data)]
            self._credit(flow.id, len(data))
            self._collect()
        return data

    def end(self, flow: Flow) -> None:
        """Our side is done with the stream: END_STREAM behind what was sent, and what still comes is dropped."""
        flow.read = False
        self._credit(flow.id, len(flow.unread))
        flow.unread.clear()
        self._end_sending(flow, Way.ENDED)
        self._collect()

    def release(self, flow: Flow) -> None:
        """Forget the stream; reset it if it is not over."""
        self.flows.pop(flow.id, None)
        if not flow.over:
            self._reset(flow.id, ErrorCodes.CANCEL)
            flow.cut()
        self._collect()

    # ── what comes ──

    def _on_request(self, event: h2.events.RequestReceived, now: float) -> None:
        if len(self.flows) >= self._max_streams:
            self._reset(event.stream_id, ErrorCodes.REFUSED_STREAM)
            return
        status = _status_for(dict(event.headers))
        if status == OK:
            self._respond(event.stream_id, status, end_stream=False)
            self._greet(event.stream_id)
            self.accepted.append(self._add(event.stream_id))
            return
        self._gate.spend(now)
        self._respond(event.stream_id, status, end_stream=True)
        if event.stream_ended is None:
            self._reset(event.stream_id, ErrorCodes.NO_ERROR)

    def _on_response(self, event: h2.events.ResponseReceived, now: float) -> None:
        if flow := self.flows.get(event.stream_id):
            status = dict(event.headers)[b":status"]
            flow.status = int(status) if len(status) == 3 and status.isdigit() else 0

    def _on_data(self, event: h2.events.DataReceived, now: float) -> None:
        flow = self.flows.get(event.stream_id)
        kept = b""
        if flow is not None and flow.read:
            kept = event.data[flow.greeting :]
            flow.greeting = max(0, flow.greeting - len(event.data))
            flow.unread += kept
        self._credit(event.stream_id, event.flow_controlled_length - len(kept))

    def _on_end(self, event: h2.events.StreamEnded, now: float) -> None:
        if flow := self.flows.get(event.stream_id):
            flow.receiving = Way.ENDED
            self._end_sending(flow, Way.BROKEN)

    def _on_reset(self, event: h2.events.StreamReset, now: float) -> None:
        if flow := self.flows.get(event.stream_id):
            flow.cut()

    def _on_goaway(self, event: h2.events.ConnectionTerminated, now: float) -> None:
        self.fail(f"the peer said GOAWAY, error code {event.error_code}")

    # ── what goes ──

    def _add(self, stream_id: int) -> Flow:
        flow = self.flows[stream_id] = Flow(stream_id)
        return flow

    # A frame later in what came at once may have ended the stream, or the connection, before its turn: then h2 refuses
    # what is asked below, and nothing is missing.

    def _respond(self, stream_id: int, status: int, *, end_stream: bool) -> None:
        headers = [(b":status", str(status).encode()), CONTENT_TYPE]
        if status == METHOD_NOT_ALLOWED:
            headers.append((b"allow", METHOD))
        with suppress(h2.exceptions.ProtocolError):
            self._h2.send_headers(stream_id, headers, end_stream=end_stream)

    def _greet(self, stream_id: int) -> None:
        try:
            self._h2.send_data(stream_id, GREETING)
        except h2.exceptions.ProtocolError:  # also when the peer's window has no room for even that
            self._reset(stream_id, ErrorCodes.REFUSED_STREAM)

    def _end_sending(self, flow: Flow, way: Way) -> None:
        if flow.sending is Way.OPEN:
            flow.sending = way
            with suppress(h2.exceptions.ProtocolError):
                self._h2.end_stream(flow.id)

    def _reset(self, stream_id: int, code: ErrorCodes) -> None:
        with suppress(h2.exceptions.ProtocolError):
            self._h2.reset_stream(stream_id, code)

    def _credit(self, stream_id: int, size: int) -> None:
        if size:
            with suppress(h2.exceptions.ProtocolError):
                self._h2.acknowledge_received_data(size, stream_id)

    def _collect(self) -> None:
        self._out += self._h2.data_to_send()


def _start(client: bool, max_streams: int) -> h2.connection.H2Connection:
    """A connection that has said its settings and opened its window, wide enough that no stream starves another."""
    connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=client, header_encoding=None))
    values = {
        SettingCodes.MAX_CONCURRENT_STREAMS: ENOUGH_STREAMS,
        SettingCodes.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
        SettingCodes.MAX_FRAME_SIZE: MAX_FRAME_BYTES,
        SettingCodes.MAX_HEADER_LIST_SIZE: MAX_HEADER_BYTES,
    }
    if client:
        values[SettingCodes.ENABLE_PUSH] = 0
    connection.local_settings = h2.settings.Settings(client=client, initial_values=values)
    connection.max_inbound_frame_size = MAX_FRAME_BYTES
    connection.decoder.max_header_list_size = MAX_HEADER_BYTES
    connection.initiate_connection()
    if not client:
        connection.update_settings({SettingCodes.MAX_CONCURRENT_STREAMS: max_streams})
    connection.increment_flow_control_window(max_streams * STREAM_WINDOW - DEFAULT_WINDOW)
    return connection


def _status_for(headers: dict[bytes, bytes]) -> int:
    path = headers.get(b":path", b"").partition(b"?")[0]
    if path != PATH:
        return NOT_FOUND
    return OK if headers.get(b":method") == METHOD else METHOD_NOT_ALLOWED


def _ignore(event: h2.events.Event, now: float) -> None:
    """PING and SETTINGS are answered by h2; the rest is nothing to us."""
