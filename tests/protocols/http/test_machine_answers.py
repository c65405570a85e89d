"""The provider's machine as its application drives it: every command and every end in every state."""

import itertools
from collections.abc import Callable

import h11
import pytest

from agentmesh.errors import LocalProtocolError
from agentmesh.protocols.http.events import CallerLeft
from agentmesh.protocols.http.machine import GONE, TRANSITIONS, Input, ServerExchange, State
from tests.protocols.http.machines import OK, POST, answer, answering, events, exchange


def test_an_answer() -> None:
    machine = answering()
    machine.send_response(200, [*OK, (b"connection", b"keep-alive"), (b"Set-Cookie", b"a"), (b"set-cookie", b"b")])
    machine.send_body(b"h")
    machine.send_body(b"i")
    machine.send_end()
    out = machine.data_to_send()
    assert answer(out)[::2] == (200, b"hi")
    assert out.startswith(b"HTTP/1.1 200 OK\r\n")
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


def test_trailers_come_behind_a_body_in_chunks() -> None:
    machine = answering()
    machine.send_response(200, [])
    machine.send_body(b"abc")
    machine.send_end([(b"X-Sum", b"1"), (b"X-Sum", b"2")])
    assert machine.data_to_send().endswith(b"3\r\nabc\r\n0\r\nX-Sum: 1\r\nX-Sum: 2\r\n\r\n")


@pytest.mark.parametrize(
    ("request_line", "headers", "body"),
    [(b"GET / HTTP/1.0", [], b"hi"), (b"GET / HTTP/1.1", OK, b"hi"), (b"HEAD / HTTP/1.1", [], b"")],
)
def test_trailers_are_dropped_where_none_can_be(
    request_line: bytes, headers: list[tuple[bytes, bytes]], body: bytes
) -> None:
    machine = answering(request_line + b"\r\nHost: h\r\n\r\n")
    machine.send_response(200, headers)
    machine.send_body(b"hi")
    machine.send_end([(b"X-Sum", b"1")])
    out = machine.data_to_send()
    assert answer(out, request_line.split()[0].decode())[2] == body
    assert b"X-Sum" not in out


def test_something_is_said_before_the_answer() -> None:
    machine = answering()
    machine.send_informational(103, [(b"Link", b"</a>"), (b"Connection", b"close")])
    machine.send_informational(102, [])
    assert machine.data_to_send() == b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n"
    machine.send_response(200, OK)
    machine.send_body(b"hi")
    machine.send_end()
    assert answer(machine.data_to_send())[2] == b"hi"


def test_an_old_caller_hears_nothing_before_the_answer() -> None:
    machine = answering(b"GET / HTTP/1.0\r\n\r\n")
    machine.send_informational(103, [])
    assert machine.data_to_send() == b""


@pytest.mark.parametrize("status", [99, 101, 200])
def test_only_1xx_is_said_before_the_answer(status: int) -> None:
    with pytest.raises(LocalProtocolError):
        answering().send_informational(status, [])


COMMANDS: dict[Input, Callable[[ServerExchange], None]] = {
    Input.ANSWER: lambda machine: machine.send_response(200, OK),
    Input.INTERIM: lambda machine: machine.send_informational(103, []),
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
