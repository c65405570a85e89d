"""CONNECT without I/O: the request, every kind of answer, in any pieces and with any damage."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmesh.errors import LimitExceededError, RemoteProtocolError
from agentmesh.testing.strategies import chunks, damaged
from agentmesh.transports.proxy_connect import MAX_ANSWER_BYTES, ConnectExchange, Established, Refused

OPENED = b"HTTP/1.1 200 Connection established\r\n\r\n"
REFUSAL = b"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\nContent-Length: 3\r\n\r\nno!"


def answer(pieces: Iterable[bytes]) -> tuple[Established | Refused | None, bytes]:
    """What the exchange makes of the pieces, and the pieces that it did not need."""
    exchange = ConnectExchange("router.example:443")
    waiting = iter(pieces)
    for piece in waiting:
        if (found := exchange.receive_data(piece)) is not None:
            return found, b"".join(waiting)
    return None, b""


@pytest.mark.parametrize(
    "target", ["router.example:443", "10.0.0.1:4001", "[2001:db8::1]:443", "xn--bcher-kva.example:1"]
)
def test_the_request(target: str) -> None:
    exchange = ConnectExchange(target)
    assert exchange.data_to_send() == f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode()
    assert exchange.data_to_send() == b""


def test_credentials_are_in_the_request() -> None:
    request = ConnectExchange("h:1", "Basic dTpw").data_to_send()
    assert request == b"CONNECT h:1 HTTP/1.1\r\nHost: h:1\r\nProxy-Authorization: Basic dTpw\r\n\r\n"


@pytest.mark.parametrize(
    "head",
    [
        OPENED,
        b"HTTP/1.0 200 Connection established\r\nProxy-agent: tinyproxy/1.11.1\r\n\r\n",
        b"HTTP/1.1 299 Fine\r\n\r\n",
        b"HTTP/1.1 200\r\n\r\n",
        b"HTTP/1.1 200 OK\nServer: old\n\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",  # these two say nothing in the answer to a CONNECT
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OPENED,
    ],
)
@pytest.mark.parametrize("behind", [b"", b"\r\n\r\n", b"HTTP/1.1 407 No\r\n\r\n", bytes(range(256)) * 300])
def test_an_open_tunnel_loses_no_byte_behind_the_head(head: bytes, behind: bytes) -> None:
    assert answer([head + behind]) == (Established(behind), b"")
    assert answer([head[:9], head[9:], behind]) == (Established(b""), behind)


@given(st.sampled_from([b"", b"\n", b"hello", b"HTTP/1.1 200 OK\r\n\r\n"]).flatmap(lambda data: chunks(OPENED + data)))
def test_in_any_pieces_the_targets_bytes_are_the_same(pieces: list[bytes]) -> None:
    found, rest = answer(pieces)
    assert isinstance(found, Established)
    assert OPENED + found.received + rest == b"".join(pieces)


@given(chunks(REFUSAL))
def test_a_refusal_in_any_pieces(pieces: list[bytes]) -> None:
    found, _ = answer(pieces)
    assert found == Refused(407)


@pytest.mark.parametrize("status", [300, 302, 400, 403, 404, 407, 429, 500, 502, 503, 504, 599, 999])
def test_every_other_status_is_a_refusal(status: int) -> None:
    assert answer([f"HTTP/1.1 {status} \r\n\r\n".encode()]) == (Refused(status), b"")


@pytest.mark.parametrize(
    "junk",
    [
        b"SSH-2.0-OpenSSH_9.2p1\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA : b\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
        b"\r\n\r\n\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        b"",
    ],
)
def test_what_is_no_answer_blames_the_proxy(junk: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        answer([junk])


def bomb(size: int) -> bytes:
    """The beginning of a head without end."""
    return (b"HTTP/1.1 200 OK\r\n" + b"X-Bomb: " + b"x" * size)[:size]


@pytest.mark.parametrize("piece", [1000, MAX_ANSWER_BYTES])
def test_a_head_without_end_is_bounded(piece: int) -> None:
    exchange = ConnectExchange("h:1")
    data = bomb(MAX_ANSWER_BYTES + 1)
    with pytest.raises(LimitExceededError) as caught:
        for start in range(0, len(data), piece):
            assert exchange.receive_data(data[start : start + piece]) is None
    assert caught.value.limit == "MAX_ANSWER_BYTES"


def test_informational_answers_without_end_are_bounded() -> None:
    exchange = ConnectExchange("h:1")
    fill = b"HTTP/1.1 102 Processing\r\n\r\n"
    with pytest.raises(LimitExceededError):
        for _ in range(MAX_ANSWER_BYTES // len(fill) + 1):
            assert exchange.receive_data(fill) is None


@given(damaged(st.sampled_from([OPENED + b"hello", REFUSAL])).flatmap(chunks) | st.lists(st.binary(max_size=50)))
def test_damage_is_an_answer_or_blames_the_proxy(pieces: list[bytes]) -> None:
    try:
        found, _ = answer(pieces)
    except RemoteProtocolError:
        return
    assert found is None or isinstance(found, Established | Refused)
