"""The SOCKS machine: every message of RFC 1928 and 1929, however it is cut, and anything at all."""

import ipaddress
import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmesh.errors import LocalProtocolError
from agentmesh.forward.credentials import Credentials
from agentmesh.forward.front import RequestRefused, TargetRequested
from agentmesh.forward.socks import REPLIES, TRANSITIONS, Input, Reply, SocksServer, State
from agentmesh.node import TunnelTarget
from agentmesh.protocols.pool import Code, OpenResult, Stage
from tests.forward.fronts import pieces_of, said

GREETING = bytes((5, 1, 0))
REQUEST = bytes((5, 1, 0, 3, 4)) + b"host" + (22).to_bytes(2)
MINE = Credentials(b"me", b"secret:word")
SUCCEEDED = bytes((5, 0, 0, 1, 0, 0, 0, 0, 0, 0))


def password(user: bytes, word: bytes) -> bytes:
    return bytes((1, len(user))) + user + bytes((len(word),)) + word


def asked_for(host: str, port: int) -> bytes:
    try:
        packed = ipaddress.ip_address(host).packed
    except ValueError:
        name = host.encode()
        return bytes((5, 1, 0, 3, len(name))) + name + port.to_bytes(2)
    return bytes((5, 1, 0, 1 if len(packed) == 4 else 4)) + packed + port.to_bytes(2)


def test_every_cell_is_decided() -> None:
    assert set(TRANSITIONS) == set(itertools.product(State, Input))


@pytest.mark.parametrize("host", ["192.0.2.7", "2001:db8::7", "db.internal"])
def test_the_three_kinds_of_addresses(host: str) -> None:
    machine = SocksServer()
    machine.receive_data(GREETING)
    assert machine.data_to_send() == b"\x05\x00"
    machine.receive_data(asked_for(host, 5432))
    assert said(machine) == [TargetRequested(TunnelTarget(host, 5432))]
    assert machine.data_to_send() == b""
    machine.send_accepted()
    assert machine.data_to_send() == SUCCEEDED


targets = st.tuples(
    st.ip_addresses().map(str) | st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,60}[a-z0-9])?", fullmatch=True),
    st.integers(1, 65535),
)


@given(
    target=targets, offered=st.binary(max_size=20), behind=st.binary(max_size=50), secret=st.booleans(), data=st.data()
)
def test_a_request_is_what_was_sent_however_it_is_cut(
    target: tuple[str, int], offered: bytes, behind: bytes, secret: bool, data: st.DataObject
) -> None:
    """And what comes behind it is the target's, to the byte."""
    method = 2 if secret else 0
    methods = bytes((method,)) + offered
    shown = password(MINE.user, MINE.password) if secret else b""
    wire = bytes((5, len(methods))) + methods + shown + asked_for(*target) + behind
    machine = SocksServer(MINE if secret else None)
    for piece in data.draw(pieces_of(wire)):
        machine.receive_data(piece)
    assert said(machine) == [TargetRequested(TunnelTarget.of(*target))]
    assert machine.data_to_send() == bytes((5, method)) + (b"\x01\x00" if secret else b"")
    assert machine.received == b""
    machine.send_accepted()
    assert machine.received == behind


REFUSED: dict[str, tuple[bytes, bytes]] = {  # what a client says, and what it hears
    "SOCKS 4": (bytes((4, 1, 0, 80, 127, 0, 0, 1, 0)), b""),
    "HTTP": (b"GET / HTTP/1.1\r\n\r\n", b""),
    "no method": (bytes((5, 0)), b"\x05\xff"),
    "another method": (bytes((5, 2, 1, 2)), b"\x05\xff"),
    "BIND": (GREETING + bytes((5, 2, 0, 1, 0, 0, 0, 0, 0, 80)), b"\x05\x00\x05\x07"),
    "UDP ASSOCIATE": (GREETING + bytes((5, 3, 0, 1, 0, 0, 0, 0, 0, 0)), b"\x05\x00\x05\x07"),
    "type of address": (GREETING + bytes((5, 1, 0, 2, 0, 0, 0, 0, 0, 80)), b"\x05\x00\x05\x08"),
    "no name": (GREETING + asked_for("", 80), b"\x05\x00\x05\x04"),
    "a name that is none": (GREETING + asked_for("a b", 80), b"\x05\x00\x05\x04"),
    "no text": (GREETING + bytes((5, 1, 0, 3, 1, 0xFF, 0, 80)), b"\x05\x00\x05\x04"),
    "port 0": (GREETING + asked_for("h", 0), b"\x05\x00\x05\x04"),
    "version of the request": (GREETING + bytes((4, 1, 0, 1, 0)), b"\x05\x00"),
}


@pytest.mark.parametrize("name", REFUSED)
@given(data=st.data())
def test_what_is_not_served_is_refused_with_its_code_however_it_is_cut(name: str, data: st.DataObject) -> None:
    wire, reply = REFUSED[name]
    machine = SocksServer()
    for piece in data.draw(pieces_of(wire + b"more")):
        machine.receive_data(piece)
    [event] = said(machine)
    assert isinstance(event, RequestRefused)
    assert machine.data_to_send() == (reply + SUCCEEDED[2:] if len(reply) == 4 else reply)
    assert machine.state is State.CLOSED
    assert machine.received == b""


@pytest.mark.parametrize(("code", "reply"), REPLIES.items())
def test_each_code_of_a_result_has_a_reply(code: Code, reply: Reply) -> None:
    machine = SocksServer()
    machine.receive_data(GREETING + REQUEST)
    machine.data_to_send()
    machine.send_refused(OpenResult(Stage.CONNECT, code))
    assert machine.data_to_send() == bytes((5, reply)) + SUCCEEDED[2:]
    assert machine.state is State.CLOSED


def test_the_codes_are_all_there_are() -> None:
    assert set(REPLIES) == set(Code)


@pytest.mark.parametrize(
    ("user", "word"), [(b"me", b"wrong"), (b"you", MINE.password), (b"", b""), (b"me:secret", b"word")]
)
def test_another_password_is_refused(user: bytes, word: bytes) -> None:
    machine = SocksServer(MINE)
    machine.receive_data(bytes((5, 2, 0, 2)))
    assert machine.data_to_send() == b"\x05\x02"
    machine.receive_data(password(user, word) + REQUEST)
    assert said(machine) == [RequestRefused("the wrong password")]
    assert machine.data_to_send() == b"\x01\x01"


def test_who_has_a_password_takes_nobody_without() -> None:
    machine = SocksServer(MINE)
    machine.receive_data(GREETING + REQUEST)
    assert machine.data_to_send() == b"\x05\xff"
    assert machine.state is State.CLOSED


def test_another_exchange_for_a_password_is_none() -> None:
    machine = SocksServer(MINE)
    machine.receive_data(bytes((5, 1, 2, 5)))
    assert said(machine) == [RequestRefused("not the exchange of RFC 1929")]


@pytest.mark.parametrize("sent", [b"", b"\x05", GREETING, GREETING + REQUEST[:-1]])
def test_a_client_that_hangs_up(sent: bytes) -> None:
    machine = SocksServer()
    if sent:
        machine.receive_data(sent)
    machine.receive_data(b"")
    assert said(machine) == [RequestRefused("the client hung up")]
    machine.receive_data(b"")
    assert said(machine) == []


def test_a_client_may_end_its_side_behind_its_request() -> None:
    machine = SocksServer()
    machine.receive_data(GREETING + REQUEST + b"question")
    machine.receive_data(b"")
    machine.send_accepted()
    assert machine.received == b"question"


def test_our_own_order_is_held() -> None:
    machine = SocksServer()
    with pytest.raises(LocalProtocolError):
        machine.send_accepted()
    machine.receive_data(GREETING + REQUEST)
    machine.send_accepted()
    with pytest.raises(LocalProtocolError):
        machine.send_refused(OpenResult(Stage.CONNECT, Code.TIMEOUT))


@given(data=st.binary(max_size=300), secret=st.booleans(), cuts=st.data())
def test_anything_at_all_is_taken_the_same_however_it_is_cut(data: bytes, secret: bool, cuts: st.DataObject) -> None:
    def run(pieces: list[bytes]) -> tuple[Any, ...]:
        machine = SocksServer(MINE if secret else None)
        for piece in pieces:
            machine.receive_data(piece)
        return machine.state, said(machine), machine.data_to_send()

    assert run([data] if data else []) == run(cuts.draw(pieces_of(data)))


@pytest.mark.parametrize(("mine", "says"), [(MINE, "offers no password"), (None, "insists on authentication")])
def test_what_a_client_is_not_ready_for_is_said_in_words(mine: Credentials | None, says: str) -> None:
    machine = SocksServer(mine)
    machine.receive_data(bytes((5, 1, 0 if mine else 1)))
    assert said(machine) == [RequestRefused(f"the client {says}")]
