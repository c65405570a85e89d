"""The provider's machine against h11 as its caller, and against anything at all."""

import itertools
import math
from collections.abc import Callable, Iterable

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmesh.errors import LocalProtocolError
from agentmesh.protocols.http.events import BodyReceived, CallerLeft, Event, RequestReceived, RequestRefused
from agentmesh.protocols.http.machine import GONE, TRANSITIONS, Input, ServerExchange, State
from agentmesh.protocols.http.wire import DEFAULT_LIMITS, HttpLimits

GET = b"GET /a?b HTTP/1.1\r\nHost: h\r\n\r\n"
POST = b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\n"
CHUNKED = b"POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
OK = [(b"content-length", b"2")]


def exchange(*received: bytes, limits: HttpLimits = DEFAULT_LIMITS) -> ServerExchange:
    machine = ServerExchange(0.0, limits)
    for data in received:
        machine.receive_data(data, 0.0)
    return machine


def events(machine: ServerExchange) -> list[Event]:
    return list(iter(machine.next_event, None))


def answer(data: bytes, method: str = "GET") -> tuple[int, dict[bytes, bytes], bytes]:
    """Status, headers and body of an answer, as a strict client reads it. Raises when it is cut short."""
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method=method, target="/", headers=[("Host", "h")]))
    client.send(h11.EndOfMessage())
    client.receive_data(data)
    client.receive_data(b"")
    status, headers, body = 0, dict[bytes, bytes](), b""
    while not isinstance(event := client.next_event(), h11.EndOfMessage):
        match event:
            case h11.Response():
                status, headers = event.status_code, dict(event.headers)
            case h11.Data():
                body += event.data
            case _:
                pass
    return status, headers, body


def test_every_cell_is_decided() -> None:
    assert set(TRANSITIONS) == set(itertools.product(State, Input))


# ── requests ──


def test_a_request_without_a_body() -> None:
    headers = ((b"host", b"h"),)
    assert events(exchange(GET)) == [RequestReceived("GET", b"/a", b"b", headers, "1.1"), BodyReceived(b"", more=False)]


@given(st.data())
def test_a_request_is_what_was_sent_however_it_is_cut(data: st.DataObject) -> None:
    token = st.text("abcdefghijklmnopqrstuvwxyz-", min_size=1, max_size=10).map(str.encode)
    value = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), max_size=20).map(str.encode)
    known = (b"host", b"connection", b"content-length", b"transfer-encoding", b"expect", b"upgrade")
    headers = data.draw(st.lists(st.tuples(token.filter(lambda name: name not in known), value), max_size=8))
    pieces = data.draw(st.lists(st.binary(min_size=1, max_size=200), max_size=5))
    chunked = data.draw(st.booleans())
    framing = (b"transfer-encoding", b"chunked") if chunked else (b"content-length", b"%d" % sum(map(len, pieces)))
    sent = [(b"host", b"h"), *headers, framing]
    client = h11.Connection(h11.CLIENT)
    wire = client.send(h11.Request(method="PUT", target="/x%2f?y", headers=sent))
    wire += b"".join(client.send(h11.Data(data=piece)) for piece in pieces) + client.send(h11.EndOfMessage())

    machine = exchange(*cut(wire, data.draw(st.lists(st.integers(0, len(wire)), max_size=12))))
    request, *body = events(machine)
    assert request == RequestReceived("PUT", b"/x%2f", b"y", tuple(sent), "1.1")
    assert b"".join(piece.data for piece in body if isinstance(piece, BodyReceived)) == b"".join(pieces)
    assert [piece.more for piece in body if isinstance(piece, BodyReceived)][-1] is False
    assert machine.request_ended
    assert machine.unread == 0


def cut(wire: bytes, places: Iterable[int]) -> list[bytes]:
    edges = [0, *sorted(places), len(wire)]
    return [wire[start:end] for start, end in itertools.pairwise(edges) if start < end]


def test_pieces_that_came_meanwhile_are_one() -> None:
    machine = exchange(CHUNKED)
    assert isinstance(machine.next_event(), RequestReceived)
    assert machine.next_event() is None
    machine.receive_data(b"1\r\na\r\n" * 3, 0.0)
    assert machine.unread == 3
    assert events(machine) == [BodyReceived(b"aaa", more=True)]
    machine.receive_data(b"1\r\nb\r\n0\r\nTrailer: dropped\r\n\r\n", 0.0)
    assert events(machine) == [BodyReceived(b"b", more=False)]


def test_a_caller_that_ends_its_side_behind_a_whole_request_waits_for_its_answer() -> None:
    machine = exchange(GET, b"")
    assert machine.state is State.OPEN
    assert len(events(machine)) == 2


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET /\r\n\r\n",
        b"GET a HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: h\r\na : b\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        CHUNKED + b"x\r\n",
        GET + GET,
        POST + b"12345",
        b"CONNECT peer:80 HTTP/1.1\r\nHost: h\r\n\r\n",
    ],
)
def test_what_is_no_request_is_answered_400(sent: bytes) -> None:
    machine = exchange(sent)
    assert machine.state is State.REFUSED
    (refused,) = events(machine)
    assert isinstance(refused, RequestRefused)
    status, headers, body = answer(machine.data_to_send())
    assert (status, headers[b"x-mesh-error"], headers[b"connection"]) == (400, b"malformed", b"close")
    assert body.decode() == f"{refused.reason}\n"


def test_a_second_request_in_a_segment_of_its_own_is_refused_too() -> None:
    machine = exchange(GET, GET)
    assert answer(machine.data_to_send())[0] == 400


def test_a_wish_to_upgrade_is_answered_as_if_it_were_none() -> None:
    machine = answering(b"GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n")
    machine.send_response(200, OK)
    machine.send_body(b"hi")
    machine.send_end()
    assert answer(machine.data_to_send())[::2] == (200, b"hi")


def test_an_unknown_transfer_coding_is_answered_501() -> None:
    machine = exchange(b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\n")
    assert answer(machine.data_to_send())[0] == 501


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /" + b"a" * 2000,
        b"GET /" + b"a" * 2000 + b" HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: h\r\na: " + b"b" * 2000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: h\r\n" + b"a: b\r\n" * 20 + b"\r\n",
    ],
)
def test_too_large_a_head_is_answered_431(sent: bytes) -> None:
    machine = exchange(sent, limits=HttpLimits(max_head_bytes=1000, max_headers=20))
    assert answer(machine.data_to_send())[0] == 431


def test_a_refusal_of_head_has_no_body() -> None:
    machine = exchange(b"HEAD / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n", b"x")
    assert isinstance(machine.next_event(), RequestReceived)
    machine.receive_data(b"\r\n", 0.0)
    assert answer(machine.data_to_send(), "HEAD")[::2] == (400, b"")


def test_the_head_must_come_in_time() -> None:
    machine = exchange(GET[:-2])
    assert machine.deadline == HttpLimits().head_timeout
    machine.handle_timeout(machine.deadline - 0.1)
    assert machine.state is State.AWAITING
    machine.handle_timeout(machine.deadline)
    assert events(machine) == [RequestRefused(408, "no request came in time")]
    assert answer(machine.data_to_send())[0] == 408
    assert machine.deadline == math.inf


def test_a_body_may_take_its_time() -> None:
    machine = exchange(POST)
    assert machine.deadline == math.inf
    machine.handle_timeout(1e9)
    machine.handle_timeout(math.inf)
    assert machine.state is State.OPEN


@pytest.mark.parametrize("sent", [b"", b"GET /", GET[:-2]])
def test_a_caller_that_leaves_in_the_head_is_not_answered(sent: bytes) -> None:
    machine = exchange(*filter(None, [sent]), b"")
    assert [type(event) for event in events(machine)] == [CallerLeft]
    assert machine.data_to_send() == b""


@pytest.mark.parametrize("sent", [POST + b"123", CHUNKED + b"4\r\n1234\r\n"])
def test_a_caller_that_leaves_in_the_body_takes_it_along(sent: bytes) -> None:
    machine = exchange(sent, b"")
    assert [type(event) for event in events(machine)] == [CallerLeft]
    assert (machine.state, machine.unread) == (State.CUT, 0)


# ── answers ──


def answering(sent: bytes = GET) -> ServerExchange:
    machine = exchange(sent)
    events(machine)
    return machine


def test_an_answer() -> None:
    machine = answering()
    machine.send_response(200, [*OK, (b"connection", b"keep-alive"), (b"Set-Cookie", b"a"), (b"set-cookie", b"b")])
    machine.send_body(b"h")
    machine.send_body(b"i")
    machine.send_end()
    out = machine.data_to_send()
    assert answer(out)[::2] == (200, b"hi")
    assert out.startswith(b"HTTP/1.1 200 \r\n")
    assert b"Set-Cookie: a\r\nset-cookie: b\r\n" in out
    assert b"keep-alive" not in out
    assert machine.state is State.ANSWERED
    assert machine.data_to_send() == b""


def test_an_answer_of_unknown_length_is_chunked() -> None:
    machine = answering()
    machine.send_response(200, [])
    machine.send_body(b"")
    machine.send_body(b"abc")
    cut_short = machine.data_to_send()
    machine.send_end()
    assert answer(cut_short + machine.data_to_send())[2] == b"abc"
    with pytest.raises(h11.RemoteProtocolError):
        answer(cut_short)


def test_an_old_caller_gets_its_answer_to_the_end_of_the_stream() -> None:
    machine = answering(b"GET / HTTP/1.0\r\n\r\n")
    machine.send_response(200, [])
    machine.send_body(b"abc")
    machine.send_end()
    assert answer(machine.data_to_send())[2] == b"abc"


@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("GET", 204), ("GET", 304)])
def test_an_answer_that_has_no_body_loses_it(method: str, status: int) -> None:
    machine = answering(f"{method} / HTTP/1.1\r\nHost: h\r\n\r\n".encode())
    machine.send_response(status, [(b"content-length", b"3")])
    machine.send_body(b"abc")
    machine.send_end()
    assert answer(machine.data_to_send(), method)[::2] == (status, b"")


def test_continue_is_said_once_and_only_to_who_waits() -> None:
    machine = exchange(POST.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n"))
    assert machine.awaits_continue
    machine.send_continue()
    assert machine.data_to_send().startswith(b"HTTP/1.1 100 ")
    machine.send_continue()
    assert machine.data_to_send() == b""
    assert not machine.awaits_continue


COMMANDS: dict[Input, Callable[[ServerExchange], None]] = {
    Input.ANSWER: lambda machine: machine.send_response(200, OK),
    Input.PIECE: lambda machine: machine.send_body(b"x"),
    Input.END: lambda machine: machine.send_end(),
}


def in_state(state: State) -> ServerExchange:
    machine = exchange()
    if state is State.AWAITING:
        return machine
    machine.receive_data(POST + b"12", 0.0)
    if state is State.CUT:
        machine.caller_left("so")
    elif state is State.REFUSED:
        machine.receive_data(b"345", 0.0)
    elif state is not State.OPEN:
        machine.send_response(200, OK)
        if state is State.ANSWERED:
            machine.send_body(b"hi")
            machine.send_end()
    return machine


@pytest.mark.parametrize(("state", "command"), list(itertools.product(State, COMMANDS)))
def test_every_command_in_every_state(state: State, command: Input) -> None:
    machine = in_state(state)
    assert machine.state is state
    after = TRANSITIONS[state, command]
    if after is None:
        with pytest.raises(LocalProtocolError):
            COMMANDS[command](machine)
        assert machine.state is state
    elif command is Input.END:
        machine.send_body(b"xx")
        machine.send_end()
        assert machine.state is after
    else:
        COMMANDS[command](machine)
        assert machine.state is after
        assert state not in GONE or command is not Input.PIECE or not machine.data_to_send().endswith(b"x")


@pytest.mark.parametrize(
    ("state", "after"),
    [
        (State.AWAITING, State.REFUSED),
        (State.OPEN, State.REFUSED),
        (State.ANSWERING, State.CUT),
        (State.ANSWERED, State.ANSWERED),
        (State.REFUSED, State.REFUSED),
        (State.CUT, State.CUT),
    ],
)
def test_garbage_in_every_state(state: State, after: State) -> None:
    machine = in_state(state)
    machine.receive_data(b"more than was promised\0\r\n\r\n", 0.0)
    assert machine.state is after


@pytest.mark.parametrize("state", list(State))
def test_leaving_in_every_state_is_said_once(state: State) -> None:
    machine = in_state(state)
    events(machine)
    machine.caller_left("one")
    machine.caller_left("two")
    assert machine.state is TRANSITIONS[state, Input.LEFT]
    assert events(machine) == ([CallerLeft("one")] if state not in GONE | {State.ANSWERED} else [])


def test_what_http_cannot_carry_is_our_applications_fault() -> None:
    machine = answering()
    with pytest.raises(LocalProtocolError):
        machine.send_response(200, [(b"a", b"b\r\nc: d")])
    assert machine.state is State.OPEN
    machine.send_response(500, [(b"content-length", b"0")])
    machine.send_end()
    assert answer(machine.data_to_send())[0] == 500


def test_an_answer_of_another_length_than_it_said_is_our_applications_fault() -> None:
    machine = answering()
    machine.send_response(200, OK)
    with pytest.raises(LocalProtocolError):
        machine.send_body(b"abc")
    machine = answering()
    machine.send_response(200, OK)
    with pytest.raises(LocalProtocolError):
        machine.send_end()
    assert machine.state is State.ANSWERING  # nobody may take it for a whole answer


def test_the_rest_of_a_request_behind_its_answer_is_dropped() -> None:
    machine = in_state(State.ANSWERED)
    events(machine)
    before = machine.request_ended
    machine.receive_data(b"34", 0.0)
    assert (before, machine.request_ended) == (False, True)
    assert events(machine) == []


# ── anything at all ──

REQUESTS = st.sampled_from([GET, POST + b"1234", CHUNKED + b"4\r\n1234\r\n0\r\n\r\n"])
EDITS = st.lists(st.tuples(st.integers(0, 90), st.integers(0, 255)), max_size=5)


def edited(request: bytes, edits: list[tuple[int, int]]) -> bytes:
    data = bytearray(request)
    for at, byte in edits:
        data[at % len(data)] = byte
    return bytes(data)


@given(st.binary(max_size=300) | st.builds(edited, REQUESTS, EDITS), st.lists(st.integers(0, 300), max_size=6))
def test_no_bytes_raise(wire: bytes, places: list[int]) -> None:
    machine = exchange(*cut(wire, [place % (len(wire) + 1) for place in places]), b"")
    found = events(machine)
    if machine.state is State.REFUSED:
        assert isinstance(found[-1], RequestRefused)
        assert answer(machine.data_to_send())[0] in range(400, 600)
    elif machine.state is State.CUT:
        assert isinstance(found[-1], CallerLeft)
    else:
        assert machine.state is State.OPEN
        assert isinstance(found[0], RequestReceived)
        machine.send_response(200, OK)
        machine.send_body(b"hi")
        machine.send_end()
        assert answer(machine.data_to_send(), found[0].method)[0] == 200
