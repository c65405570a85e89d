"""The provider's machine against h11 as its caller, and against anything at all."""

import itertools
import math

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmesh.protocols.http.events import BodyReceived, CallerLeft, RequestReceived, RequestRefused
from agentmesh.protocols.http.machine import TRANSITIONS, Input, State
from agentmesh.protocols.http.wire import HttpLimits
from tests.protocols.http.machines import CHUNKED, GET, OK, POST, answer, answering, cut, events, exchange


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


def test_pieces_that_came_meanwhile_are_one() -> None:
    machine = exchange(CHUNKED)
    assert isinstance(machine.next_event(), RequestReceived)
    assert machine.next_event() is None
    machine.receive_data(b"1\r\na\r\n" * 3, 0.0)
    assert machine.unread == 3
    assert events(machine) == [BodyReceived(b"aaa", more=True)]
    machine.receive_data(b"1\r\nb\r\n0\r\nTrailer: t\r\nTrailer: u\r\n\r\n", 0.0)
    trailers = ((b"trailer", b"t"), (b"trailer", b"u"))
    assert events(machine) == [BodyReceived(b"b", more=False, trailers=trailers)]


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


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"HEAD +nowhere HTTP/1.1\r\nHost: h\r\n\r\n", 400),
        (b"HEAD / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"HEAD / HTTP/1.1\r\nHost: h\r\n" + b"a: b\r\n" * 200 + b"\r\n", 431),
    ],
)
def test_a_refusal_of_the_head_of_head_has_no_body(sent: bytes, status: int) -> None:
    machine = exchange(sent, limits=HttpLimits(max_headers=20))
    assert answer(machine.data_to_send(), "HEAD")[::2] == (status, b"")


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
