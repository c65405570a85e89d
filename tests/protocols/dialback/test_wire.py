from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmesh.errors import LimitExceededError, RemoteProtocolError
from agentmesh.protocols.dialback.wire import (
    MAX_ADDRESS_CHARS,
    MAX_ADDRESSES,
    MAX_MESSAGE_BYTES,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from agentmesh.testing.strategies import addresses, damaged, dialbacks
from agentmesh.types import Address
from agentmesh.wire.messages.mesh.v1 import DialBackRequest

HERE = Address.parse("/ip4/192.0.2.1/tcp/4001")
Decode = Callable[[bytes], tuple[Address, ...]]
BOTH = pytest.mark.parametrize("decode", [decode_request, decode_response])


@given(st.lists(addresses(), min_size=1, max_size=MAX_ADDRESSES).map(tuple))
def test_what_is_sent_comes_back(sent: tuple[Address, ...]) -> None:
    assert decode_request(encode_request(sent)) == sent
    assert decode_response(encode_response(sent)) == sent


def test_the_longest_message_is_within_its_bound() -> None:
    assert len(bytes(DialBackRequest(addresses=["x" * MAX_ADDRESS_CHARS] * MAX_ADDRESSES))) <= MAX_MESSAGE_BYTES


def test_a_request_for_nothing_is_none_and_an_answer_may_be_empty() -> None:
    with pytest.raises(RemoteProtocolError):
        decode_request(b"")
    assert decode_response(b"") == ()


@BOTH
@pytest.mark.parametrize(
    ("texts", "limit"),
    [
        ([str(HERE)] * (MAX_ADDRESSES + 1), "MAX_ADDRESSES"),
        ([f"/dns4/{'a.' * MAX_ADDRESS_CHARS}/tcp/1"], "MAX_ADDRESS_CHARS"),
    ],
)
def test_more_than_the_bound_is_the_peers_fault(decode: Decode, texts: list[str], limit: str) -> None:
    with pytest.raises(LimitExceededError) as caught:
        decode(bytes(DialBackRequest(addresses=texts)))
    assert caught.value.limit == limit


@BOTH
def test_what_is_no_address_is_the_peers_fault(decode: Decode) -> None:
    with pytest.raises(RemoteProtocolError, match="an address that is none"):
        decode(bytes(DialBackRequest(addresses=[str(HERE), "here"])))


@BOTH
@given(data=dialbacks().map(bytes) | damaged(dialbacks().map(bytes)))
def test_any_bytes_are_addresses_or_the_peers_fault(decode: Decode, data: bytes) -> None:
    try:
        found = decode(data)
    except RemoteProtocolError:
        return
    assert len(found) <= MAX_ADDRESSES
