"""The HTTP machine, with h11 as its client: CONNECT, and what is not."""

import base64
import itertools
from http import HTTPStatus
from typing import Any

import attrs
import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmesh.errors import LocalProtocolError
from agentmesh.forward.credentials import Credentials
from agentmesh.forward.front import RequestRefused, TargetRequested
from agentmesh.forward.http_connect import STATUSES, TRANSITIONS, ConnectServer, Input, State
from agentmesh.node import TunnelTarget
from agentmesh.protocols.pool import Code, OpenResult, Stage
from tests.forward.fronts import pieces_of, said

CONNECT = b"CONNECT db.internal:5432 HTTP/1.1\r\nHost: db.internal:5432\r\n\r\n"
MINE = Credentials(b"me", b"secret:word")


def with_header(name: str, value: str) -> bytes:
    return CONNECT[:-2] + f"{name}: {value}\r\n\r\n".encode()


def basic(user_and_password: bytes) -> bytes:
    return with_header("Proxy-Authorization", f"Basic {base64.b64encode(user_and_password).decode()}")


@attrs.frozen
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


def answer_to(method: bytes, wire: bytes) -> Answer:
    """A whole answer, as h11 reads it for a client that sent this method."""
    client = h11.Connection(h11.CLIENT)
    target = b"h:1" if method == b"CONNECT" else b"/"
    client.send(h11.Request(method=method, target=target, headers=[("Host", "h")]))
    client.send(h11.EndOfMessage())
    client.receive_data(wire)
    client.receive_data(b"")
    response, body = client.next_event(), b""
    assert isinstance(response, h11.Response)
    while isinstance(event := client.next_event(), h11.Data):
        body += event.data
    assert isinstance(event, h11.EndOfMessage)
    assert client.trailing_data == (b"", True)
    headers = {name.decode(): value.decode() for name, value in response.headers}
    assert headers["connection"] == "close"
    return Answer(response.status_code, headers, body)


def test_every_cell_is_decided() -> None:
    assert set(TRANSITIONS) == set(itertools.product(State, Input))


@given(host=st.sampled_from(["db.internal", "192.0.2.7", "2001:db8::7"]), behind=st.binary(max_size=60), data=st.data())
def test_a_request_is_what_was_sent_however_it_is_cut(host: str, behind: bytes, data: st.DataObject) -> None:
    """And what comes behind it is the target's, to the byte: before the answer and after it."""
    authority = f"[{host}]:5432" if ":" in host else f"{host}:5432"
    head = f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: x\r\n\r\n".encode()
    machine = ConnectServer()
    pieces = data.draw(pieces_of(head + behind))
    for piece in pieces:
        machine.receive_data(piece)
    assert said(machine) == [TargetRequested(TunnelTarget(host, 5432))]
    assert machine.data_to_send() == b""
    assert machine.received == b""
    machine.send_accepted()
    assert machine.data_to_send() == b"HTTP/1.1 200 Connection established\r\n\r\n"
    assert machine.received == behind


@pytest.mark.parametrize("method", ["GET", "POST", "HEAD", "OPTIONS"])
def test_other_methods_are_not_served(method: str) -> None:
    machine = ConnectServer()
    machine.receive_data(f"{method} http://h/ HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n".encode())
    answer = answer_to(method.encode(), machine.data_to_send())
    assert (answer.status, answer.headers["allow"]) == (405, "CONNECT")
    assert bool(answer.body) is (method != "HEAD")
    assert said(machine) == [RequestRefused(f"{method} is not served, but CONNECT (curl: --proxytunnel)")]


MALFORMED: dict[str, tuple[bytes, int]] = {
    "no HTTP": (b"\x05\x01\x00 what?\r\n\r\n", 400),
    "no port": (CONNECT.replace(b":5432", b""), 400),
    "port 0": (CONNECT.replace(b":5432", b":0"), 400),
    "no host": (CONNECT.replace(b"db.internal", b""), 400),
    "no Host": (b"CONNECT h:1 HTTP/1.1\r\n\r\n", 400),
    "a body": (with_header("Content-Length", "3") + b"abc", 400),
    "a body in chunks": (with_header("Transfer-Encoding", "chunked") + b"0\r\n\r\n", 400),
    "a head without end": (b"CONNECT h:1 HTTP/1.1\r\nHost: h\r\nX: " + b"x" * 20_000, 431),
}


@pytest.mark.parametrize("name", MALFORMED)
@given(data=st.data())
def test_what_is_no_connect_is_refused_however_it_is_cut(name: str, data: st.DataObject) -> None:
    wire, status = MALFORMED[name]
    machine = ConnectServer()
    for piece in data.draw(pieces_of(wire)) if len(wire) < 1000 else [wire]:
        machine.receive_data(piece)
    assert answer_to(b"CONNECT", machine.data_to_send()).status == status
    [event] = said(machine)
    assert isinstance(event, RequestRefused)
    assert machine.state is State.CLOSED
    assert machine.received == b""


def test_a_length_of_zero_is_no_body() -> None:
    machine = ConnectServer()
    machine.receive_data(with_header("Content-Length", "0") + b"behind")
    assert said(machine) == [TargetRequested(TunnelTarget("db.internal", 5432))]
    machine.send_accepted()
    assert machine.received == b"behind"


@pytest.mark.parametrize(("code", "status"), [pair for pair in STATUSES.items() if pair[0] is not Code.OK])
def test_each_code_of_a_result_has_a_status(code: Code, status: HTTPStatus) -> None:
    machine = ConnectServer()
    machine.receive_data(CONNECT)
    machine.send_refused(OpenResult(Stage.CONNECT, code, retry_after_ms=2100))
    answer = answer_to(b"CONNECT", machine.data_to_send())
    assert (answer.status, answer.headers["x-mesh-error"]) == (status, code)
    assert answer.headers.get("retry-after") == ("3" if status == 503 else None)
    assert code.value.encode() in answer.body


def test_the_codes_are_all_there_are() -> None:
    assert set(STATUSES) == set(Code)
    kinds = {code: status.value for code, status in STATUSES.items()}
    assert kinds[Code.FORBIDDEN] == 403
    assert kinds[Code.AGENT_OFFLINE] == kinds[Code.QUEUE_FULL] == 503
    assert kinds[Code.CONNECTION_REFUSED] == kinds[Code.HOST_UNREACHABLE] == kinds[Code.NETWORK_UNREACHABLE] == 502
    assert kinds[Code.TIMEOUT] == 504


def test_who_has_a_password_asks_for_it() -> None:
    machine = ConnectServer(MINE)
    machine.receive_data(basic(b"me:secret:word") + b"behind")
    assert said(machine) == [TargetRequested(TunnelTarget("db.internal", 5432))]


WRONG = {
    "none": CONNECT,
    "another": basic(b"me:wrong"),
    "another user": basic(b"you:secret:word"),
    "no colon": basic(b"me"),
    "another scheme": with_header("Proxy-Authorization", "Bearer abc"),
    "no base64": with_header("Proxy-Authorization", "Basic ***"),
    "no ASCII": with_header("Proxy-Authorization", "Basic ü"),
    "twice": with_header("Proxy-Authorization", "Basic bWU6c2VjcmV0OndvcmQ=\r\nProxy-Authorization: Basic bWU6eA=="),
    "of the target": with_header("Authorization", "Basic bWU6c2VjcmV0OndvcmQ="),
}


@pytest.mark.parametrize("name", WRONG)
def test_the_wrong_password_is_refused(name: str) -> None:
    machine = ConnectServer(MINE)
    machine.receive_data(WRONG[name])
    answer = answer_to(b"CONNECT", machine.data_to_send())
    assert (answer.status, answer.headers["proxy-authenticate"]) == (407, 'Basic realm="agentmesh", charset="UTF-8"')
    assert MINE.password not in answer.body
    assert machine.state is State.CLOSED


def test_our_own_order_is_held() -> None:
    machine = ConnectServer()
    with pytest.raises(LocalProtocolError):
        machine.send_accepted()
    machine.receive_data(CONNECT)
    machine.send_accepted()
    with pytest.raises(LocalProtocolError):
        machine.send_refused(OpenResult(Stage.CONNECT, Code.TIMEOUT))


@pytest.mark.parametrize("sent", [b"", b"CONN", CONNECT[:-1]])
def test_a_client_that_hangs_up(sent: bytes) -> None:
    machine = ConnectServer()
    if sent:
        machine.receive_data(sent)
    machine.receive_data(b"")
    assert said(machine) == [RequestRefused("the client hung up")]
    machine.receive_data(b"")
    assert said(machine) == []


@given(data=st.binary(max_size=300) | st.binary(max_size=40).map(CONNECT.__add__), cuts=st.data())
def test_anything_at_all_is_taken_the_same_however_it_is_cut(data: bytes, cuts: st.DataObject) -> None:
    def run(pieces: list[bytes]) -> tuple[Any, ...]:
        machine = ConnectServer()
        for piece in pieces:
            machine.receive_data(piece)
        events = [type(event) for event in said(machine)]
        return machine.state, events, machine.data_to_send()[:12]

    assert run([data] if data else []) == run(cuts.draw(pieces_of(data)))
