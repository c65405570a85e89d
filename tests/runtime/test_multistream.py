"""Negotiation: golden bytes, both sides against each other, and what is no negotiation."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmesh.errors import ErrorCode, LimitExceededError, RejectedError, RemoteProtocolError
from agentmesh.runtime.multistream import (
    GREETING,
    HEADER,
    MAX_MESSAGE_BYTES,
    MAX_PROPOSALS,
    Proposer,
    Responder,
    encode_message,
)


def speaks(*protocols: str) -> Responder:
    return Responder(lambda name: name in protocols)


def negotiate(proposer: Proposer, responder: Responder, cut: int = 1 << 16) -> None:
    """Carry bytes both ways, in pieces, until both are quiet."""
    while True:
        there, back = proposer.data_to_send(), b""
        for start in range(0, len(there), cut):
            responder.receive_data(there[start : start + cut])
        back = responder.data_to_send()
        for start in range(0, len(back), cut):
            proposer.receive_data(back[start : start + cut])
        if not there and not back:
            return


def test_golden_first_flight() -> None:
    assert Proposer(["/tls/1.0.0"]).data_to_send() == b"\x13/multistream/1.0.0\n\x0b/tls/1.0.0\n"
    assert speaks().data_to_send() == b"\x13/multistream/1.0.0\n"


@given(
    st.lists(st.sampled_from("abcdef"), min_size=1, unique=True), st.sets(st.sampled_from("abcdef")), st.integers(1, 40)
)
def test_the_first_proposal_that_both_speak_is_agreed(wanted: Sequence[str], known: set[str], cut: int) -> None:
    proposer, responder = Proposer(wanted), speaks(*known)
    expected = next((name for name in wanted if name in known), None)
    if expected is None:
        with pytest.raises(RejectedError) as caught:
            negotiate(proposer, responder, cut)
        assert caught.value.code == ErrorCode.PROTOCOL_NEGOTIATION_FAILED
    else:
        negotiate(proposer, responder, cut)
        assert proposer.agreed == responder.agreed == expected


def test_what_follows_belongs_to_the_protocol() -> None:
    responder = speaks("/echo")
    responder.receive_data(Proposer(["/echo"]).data_to_send() + b"first bytes")
    assert responder.trailing() == b"first bytes"
    proposer = Proposer(["/echo"])
    proposer.receive_data(responder.data_to_send() + b"answer")
    assert proposer.agreed == "/echo"
    assert proposer.trailing() == b"answer"


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: mesh\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # a ClientHello without multistream before it
        encode_message("/multistream/2.0.0"),
        b"\x05hello",
        encode_message(HEADER) + b"\x03\xff\xfe\n",
        b"\xff" * 20,
        b"\x00",
    ],
)
def test_what_is_no_multistream(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        speaks("/echo").receive_data(data)


def test_an_answer_to_nothing_proposed() -> None:
    with pytest.raises(RemoteProtocolError):
        Proposer(["/a"]).receive_data(encode_message(HEADER) + encode_message("/b"))


def test_a_long_message_is_refused_before_it_has_come() -> None:
    assert MAX_MESSAGE_BYTES == 1024
    assert speaks("/echo").receive_data(GREETING + b"\x80\x08") is None
    with pytest.raises(LimitExceededError):
        speaks("/echo").receive_data(GREETING + b"\x81\x08")


def test_endless_proposals_end() -> None:
    responder = speaks("/echo")
    responder.receive_data(encode_message(HEADER) + encode_message("/no") * MAX_PROPOSALS)
    with pytest.raises(LimitExceededError):
        responder.receive_data(encode_message("/no"))


@given(st.lists(st.binary(max_size=60), max_size=8), st.booleans())
def test_any_bytes_raise_only_typed_errors(pieces: list[bytes], after_header: bool) -> None:
    for side in (speaks("/echo"), Proposer(["/echo"])):
        try:
            if after_header:
                side.receive_data(encode_message(HEADER))
            for piece in pieces:
                side.receive_data(piece)
        except (RemoteProtocolError, RejectedError):
            pass
