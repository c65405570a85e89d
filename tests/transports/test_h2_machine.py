"""HTTP/2 as a carrier, without I/O: two of ours and a wire between them, or a client that the `h2` package makes."""

import h2.connection
import h2.events
import pytest
from h2.errors import ErrorCodes
from h2.settings import SettingCodes
from hypothesis import given
from hypothesis import strategies as st

from agentmesh.errors import LimitExceededError, RemoteProtocolError
from agentmesh.testing.transport_setup import pattern
from agentmesh.transports.floods import FLOOD_BURST, FLOOD_PER_SECOND
from agentmesh.transports.h2_flow import Flow, Way
from agentmesh.transports.h2_limits import (
    MAX_CONTINUATIONS,
    MAX_FRAME_BYTES,
    MAX_HEADER_BYTES,
    FrameGate,
)
from agentmesh.transports.h2_machine import (
    MAX_CONTROL_BYTES,
    MAX_UNSENT_BYTES,
    METHOD,
    PATH,
    STREAM_WINDOW,
    Carrier,
)

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS, SETTINGS_ACK, GOAWAY = b"\0\0\0\4\0\0\0\0\0", b"\0\0\0\4\1\0\0\0\0", 7
HEAD = [(b":method", METHOD), (b":scheme", b"http"), (b":authority", b"a.example"), (b":path", PATH)]


def frame(kind: int, payload: bytes = b"", flags: int = 0, stream: int = 0) -> bytes:
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload


def deliver(one: Carrier, other: Carrier) -> None:
    """Until nobody has anything to say."""
    while True:
        there, back = one.data_to_send(), other.data_to_send()
        if not there and not back:
            return
        if there:
            other.receive_data(there, 0.0)
        if back:
            one.receive_data(back, 0.0)


def connected() -> tuple[Carrier, Flow, Carrier, Flow]:
    client, server = Carrier(client=True), Carrier(client=False, max_streams=3)
    flow = client.request("a.example", "http")
    deliver(client, server)
    assert flow.status == 200
    return client, flow, server, server.accepted.popleft()


class Stranger:
    """A client that is the h2 package's own, at a carrier of ours.

    Args:
        max_streams: of our carrier.
        early: how many requests the client sends before it has read our settings.
    """

    def __init__(self, max_streams: int = 3, early: int = 0) -> None:
        self.server = Carrier(client=False, max_streams=max_streams)
        self.h2 = h2.connection.H2Connection()
        self.h2.initiate_connection()
        for number in range(early):
            self.h2.send_headers(1 + 2 * number, HEAD)
        self.events: list[h2.events.Event] = []
        self.exchange()

    def exchange(self, now: float = 0.0) -> None:
        while True:
            there, back = self.h2.data_to_send(), self.server.data_to_send()
            if not there and not back:
                return
            self.server.receive_data(there, now)
            self.events += self.h2.receive_data(back)

    def ask(self, path: bytes = PATH, method: bytes = METHOD, *, end_stream: bool = False) -> int:
        stream_id = self.h2.get_next_available_stream_id()
        head = {**dict(HEAD), b":path": path, b":method": method}
        self.h2.send_headers(stream_id, list(head.items()), end_stream=end_stream)
        self.exchange()
        return stream_id

    def status_of(self, stream_id: int) -> str | None:
        answers = [e for e in self.events if isinstance(e, h2.events.ResponseReceived) and e.stream_id == stream_id]
        return next(
            (value.decode() for answer in answers for name, value in answer.headers if name == b":status"), None
        )

    def reset_of(self, stream_id: int) -> int | None:
        resets = [e for e in self.events if isinstance(e, h2.events.StreamReset) and e.stream_id == stream_id]
        return resets[0].error_code if resets else None


# ── bytes, windows, ends ──


def test_a_sender_stops_at_the_window_and_goes_on_when_bytes_are_taken() -> None:
    client, flow, server, accepted = connected()
    total = 2 * STREAM_WINDOW
    source, sent = memoryview(pattern(0, total)), 0
    while taken := client.send(flow, source[sent:]):
        sent += taken
        deliver(client, server)
    assert STREAM_WINDOW - 65535 <= sent <= STREAM_WINDOW
    assert client.room(flow) == 0
    received = bytearray()
    while len(received) < total:
        received += server.take(accepted, 50_000)
        deliver(client, server)
        sent += client.send(flow, source[sent:])
        deliver(client, server)
    assert received == source


def test_what_nobody_sends_away_is_bounded() -> None:
    client, flow, _, _ = connected()
    assert client.send(flow, memoryview(bytes(STREAM_WINDOW // 2))) == MAX_UNSENT_BYTES
    assert client.send(flow, memoryview(b"x")) == 0


def test_a_stream_that_nobody_reads_does_not_starve_another() -> None:
    stranger = Stranger(max_streams=2)
    stuck, other = stranger.ask(), stranger.ask()
    for stream_id in (stuck, other):
        while window := min(stranger.h2.local_flow_control_window(stream_id), stranger.h2.max_outbound_frame_size):
            stranger.h2.send_data(stream_id, bytes(window))
            stranger.exchange()
    assert len(stranger.server.flows[other].unread) >= STREAM_WINDOW - 65535
    assert stranger.server.take(stranger.server.flows[other], STREAM_WINDOW)
    assert stranger.h2.local_flow_control_window(other) == 0
    stranger.events += stranger.h2.receive_data(stranger.server.data_to_send())
    assert stranger.h2.local_flow_control_window(other) > STREAM_WINDOW // 2
    assert stranger.h2.local_flow_control_window(stuck) == 0


def test_padding_and_what_a_closed_stream_still_gets_are_given_back_at_once() -> None:
    stranger = Stranger(max_streams=1)
    stream_id = stranger.ask()
    (flow,) = stranger.server.flows.values()
    for _ in range(200):  # more padding, and more dropped bytes, than the window has room for
        for _ in range(100):
            stranger.h2.send_data(stream_id, b"x", pad_length=255)
        stranger.exchange()
    assert stranger.server.take(flow, STREAM_WINDOW) == b"x" * 20_000
    stranger.server.end(flow)
    for _ in range(2 * STREAM_WINDOW // 16_000):
        stranger.h2.send_data(stream_id, bytes(16_000))
        stranger.exchange()
    assert not flow.unread


@pytest.mark.parametrize("largest", [16384, 20_000, 1 << 20])
def test_no_frame_is_larger_than_the_peer_takes(largest: int) -> None:
    stranger = Stranger()
    stranger.h2.update_settings({SettingCodes.MAX_FRAME_SIZE: largest})
    stranger.exchange()
    stranger.ask()
    (flow,) = stranger.server.flows.values()
    taken = stranger.server.send(flow, memoryview(bytes(60_000)))
    assert taken == 60_000
    got = stranger.h2.receive_data(stranger.server.data_to_send())
    sizes = [len(event.data) for event in got if isinstance(event, h2.events.DataReceived)]
    assert sum(sizes) == taken
    assert max(sizes) == min(largest, taken)


def test_an_end_is_answered_with_an_end() -> None:
    client, flow, server, accepted = connected()
    client.send(flow, memoryview(b"last"))
    client.end(flow)
    deliver(client, server)
    assert flow.over
    assert (accepted.receiving, accepted.sending) == (Way.ENDED, Way.BROKEN)
    assert server.take(accepted, 10) == b"last"
    client.release(flow)
    server.end(accepted)
    server.release(accepted)
    assert client.flows == server.flows == {}
    assert server.data_to_send() == b""


def test_a_released_stream_that_is_not_over_is_reset() -> None:
    client, flow, server, accepted = connected()
    server.release(accepted)
    deliver(client, server)
    assert (flow.receiving, flow.sending) == (Way.BROKEN, Way.BROKEN)
    assert client.failure is None


def test_a_request_that_comes_after_the_end_is_nobodys() -> None:
    """Sending may fail first, while what the peer sent before it left is still to be read."""
    client, server = Carrier(client=True), Carrier(client=False)
    client.request("a.example", "http")
    server.fail("the socket broke")
    server.receive_data(client.data_to_send(), 0.0)
    assert not server.accepted
    assert not server.flows


def test_a_stream_opened_reset_and_buried_in_one_flight_is_no_error() -> None:
    """h2 has seen the end of the flight before we see its beginning."""
    stranger = Stranger()
    stream_id = stranger.h2.get_next_available_stream_id()
    stranger.h2.send_headers(stream_id, HEAD)
    stranger.h2.send_data(stream_id, b"hello", pad_length=3, end_stream=True)
    stranger.h2.reset_stream(stream_id)
    stranger.h2.close_connection()
    stranger.server.receive_data(stranger.h2.data_to_send(), 0.0)
    flow = stranger.server.accepted.popleft()
    assert stranger.server.take(flow, 10) == b"hello"
    assert flow.receiving is Way.ENDED


# ── requests ──


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [(b"/", b"GET", "404"), (b"/other", METHOD, "404"), (PATH, b"GET", "405"), (PATH + b"?x=1", METHOD, "200")],
)
@pytest.mark.parametrize("end_stream", [True, False])
def test_requests_are_answered(path: bytes, method: bytes, status: str, end_stream: bool) -> None:
    stranger = Stranger()
    stream_id = stranger.ask(path, method, end_stream=end_stream)
    assert stranger.status_of(stream_id) == status
    assert len(stranger.server.flows) == (status == "200")


def test_streams_beyond_the_bound_are_refused_and_do_not_end_the_others() -> None:
    stranger = Stranger(max_streams=2, early=3)
    assert stranger.reset_of(5) == ErrorCodes.REFUSED_STREAM
    assert stranger.status_of(1) == stranger.status_of(3) == "200"
    stranger.server.release(stranger.server.flows[1])
    stranger.exchange()
    assert stranger.status_of(stranger.ask()) == "200"


# ── what a peer may not do ──


def floods() -> dict[str, bytes]:
    headers = frame(1, b"", flags=4, stream=1)
    return {
        "PING": frame(6, bytes(8)),
        "PING answers": frame(6, bytes(8), flags=1),
        "SETTINGS": SETTINGS,
        "empty DATA": frame(0, stream=1),
        "PRIORITY": frame(2, bytes(5), stream=1),
        "resets": frame(3, bytes(4), stream=1),
        "requests": headers,
        "unknown": frame(200, b"x"),
    }


@pytest.mark.parametrize("flood", floods().values(), ids=floods())
def test_frames_that_carry_nothing_are_paid_for(flood: bytes) -> None:
    gate = FrameGate(from_client=True)
    gate.check(PREFACE + SETTINGS, 0.0)
    gate.check(flood * (FLOOD_BURST - 1), 0.0)
    gate.check(flood * int(FLOOD_PER_SECOND), 1.0)  # at this rate for ever
    with pytest.raises(LimitExceededError) as caught:
        gate.check(flood, 1.0)
    assert caught.value.limit == "FLOOD_BURST"


def test_window_updates_are_free_only_for_what_we_sent() -> None:
    update = frame(8, (1).to_bytes(4))
    gate = FrameGate(from_client=False)
    gate.check(SETTINGS, 0.0)
    for _ in range(10_000):  # frames of ours, and the two updates that a peer may send for each
        gate.earn()
        gate.check(update * 2, 0.0)
    gate.check(update * 2 * 10_000, 0.0)  # and two more that others would have sent
    gate.check(update * (FLOOD_BURST - 1), 0.0)
    with pytest.raises(LimitExceededError, match="carry no data"):
        gate.check(update, 0.0)


def test_a_flood_of_window_updates_costs_the_connection() -> None:
    client, flow, server, accepted = connected()
    server.send(accepted, memoryview(bytes(1000)))
    deliver(client, server)
    with pytest.raises(LimitExceededError):
        server.receive_data(frame(8, (1).to_bytes(4)) * (FLOOD_BURST + 10), 0.0)
    assert accepted.sending is Way.BROKEN
    assert flow.sending is Way.OPEN


def test_rapid_reset_costs_the_connection() -> None:
    """Streams opened and reset at once (CVE-2023-44487)."""
    stranger = Stranger()
    with pytest.raises(LimitExceededError):
        for _ in range(FLOOD_BURST):
            stream_id = stranger.h2.get_next_available_stream_id()
            stranger.h2.send_headers(stream_id, HEAD)
            stranger.h2.reset_stream(stream_id)
            stranger.exchange()
    assert len(stranger.server.flows) <= 3
    assert stranger.server.failure is not None
    events = stranger.h2.receive_data(stranger.server.data_to_send())
    assert [e.error_code for e in events if isinstance(e, h2.events.ConnectionTerminated)] == [
        ErrorCodes.ENHANCE_YOUR_CALM
    ]


def test_header_blocks_are_bounded() -> None:
    gate = FrameGate(from_client=True)
    gate.check(PREFACE + SETTINGS + frame(1, stream=1) + frame(9, stream=1) * MAX_CONTINUATIONS, 0.0)
    with pytest.raises(LimitExceededError, match="too many frames"):
        gate.check(frame(9, stream=1), 0.0)
    gate = FrameGate(from_client=True)
    gate.check(PREFACE + SETTINGS + frame(1, bytes(MAX_HEADER_BYTES), stream=1), 0.0)
    with pytest.raises(LimitExceededError, match="too long"):
        gate.check(frame(9, b"x", stream=1), 0.0)


def test_a_header_list_that_unpacks_to_much_costs_the_connection() -> None:
    """A few bytes name one long entry of the table again and again."""
    stranger = Stranger()
    stranger.h2.send_headers(1, [*HEAD, (b"x-long", b"x" * 3000)])
    stranger.exchange()
    stranger.h2.send_headers(3, [*HEAD, *[(b"x-long", b"x" * 3000)] * 10])
    with pytest.raises(RemoteProtocolError, match="Oversized"):
        stranger.exchange()


def test_a_frame_that_is_too_long_is_refused_before_it_comes() -> None:
    server = Carrier(client=False)
    with pytest.raises(LimitExceededError) as caught:
        server.receive_data(PREFACE + SETTINGS + frame(0, bytes(MAX_FRAME_BYTES + 1), stream=1)[:9], 0.0)
    assert caught.value.limit == "MAX_FRAME_BYTES"


def test_answers_that_the_peer_does_not_read_are_bounded() -> None:
    stranger = Stranger(max_streams=1)
    stranger.ask()
    (flow,) = stranger.server.flows.values()
    stranger.server.send(flow, memoryview(bytes(STREAM_WINDOW)))
    with pytest.raises(LimitExceededError) as caught:
        for now in range(MAX_UNSENT_BYTES + MAX_CONTROL_BYTES):
            stranger.server.receive_data(frame(6, bytes(8)) * 40, float(now))
    assert caught.value.limit == "MAX_CONTROL_BYTES"


@pytest.mark.parametrize("said", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"SSH-2.0-OpenSSH_9.6\r\n", b"\x15\x03\x03" * 9])
def test_a_server_of_another_kind_is_seen_at_its_first_bytes(said: bytes) -> None:
    client = Carrier(client=True)
    with pytest.raises(RemoteProtocolError, match="does not speak HTTP/2"):
        client.receive_data(said, 0.0)


FRAMES = st.builds(
    frame,
    st.integers(0, 10),
    st.binary(max_size=30),
    st.sampled_from([0, 1, 4, 5, 8, 32, 45]),
    st.sampled_from([0, 1, 2, 3, 5]),
)


@given(st.lists(FRAMES | st.binary(max_size=20)), st.booleans())
def test_whatever_comes_raises_nothing_else(frames: list[bytes], client: bool) -> None:
    carrier = Carrier(client=client)
    if client:
        carrier.request("a.example", "http")
    try:
        carrier.receive_data((b"" if client else PREFACE) + SETTINGS, 0.0)
        if not client:
            asker = h2.connection.H2Connection()
            asker.send_headers(1, HEAD)
            carrier.receive_data(asker.data_to_send(), 0.0)
        for piece in frames:
            carrier.receive_data(piece, 0.0)
    except RemoteProtocolError:
        assert carrier.failure is not None
    for flow in list(carrier.flows.values()):
        carrier.take(flow, 5)
        carrier.send(flow, memoryview(b"hello"))
        carrier.end(flow)
        carrier.release(flow)
    carrier.close()
    assert carrier.flows == {}
