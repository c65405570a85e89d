"""The two messages to and from bytes."""

from collections.abc import Iterable

from agentmesh.errors import AddressError, LimitExceededError, RemoteProtocolError
from agentmesh.types import Address, ProtocolId
from agentmesh.wire.codec import decode
from agentmesh.wire.messages.mesh.v1 import DialBackRequest, DialBackResponse

DIALBACK_ID = ProtocolId("/mesh/dialback/1.0.0")

MAX_ADDRESSES = 8  # of one request: a router dials each of them
MAX_ADDRESS_CHARS = 400  # of one of them; MAX_ADDRESSES such fit a message
MAX_MESSAGE_BYTES = 4096


def encode_request(addresses: Iterable[Address]) -> bytes:
    """It decodes at the other end if there are at least one and at most MAX_ADDRESSES, of MAX_ADDRESS_CHARS at most."""
    return bytes(DialBackRequest(addresses=list(map(str, addresses))))


def decode_request(data: bytes) -> tuple[Address, ...]:
    """Raises RemoteProtocolError when `data` is no request, or asks for nothing; LimitExceededError beyond a bound."""
    addresses = _addresses_in(decode(DialBackRequest, data).addresses)
    if not addresses:
        raise RemoteProtocolError("a dial-back request for no address")
    return addresses


def encode_response(addresses: Iterable[Address]) -> bytes:
    return bytes(DialBackResponse(addresses=list(map(str, addresses))))


def decode_response(data: bytes) -> tuple[Address, ...]:
    """Raises RemoteProtocolError when `data` is no response; LimitExceededError beyond a bound."""
    return _addresses_in(decode(DialBackResponse, data).addresses)


def _addresses_in(texts: list[str]) -> tuple[Address, ...]:
    if len(texts) > MAX_ADDRESSES:
        raise LimitExceededError(f"more than {MAX_ADDRESSES} addresses", limit="MAX_ADDRESSES")
    return tuple(map(_address_in, texts))


def _address_in(text: str) -> Address:
    if len(text) > MAX_ADDRESS_CHARS:
        raise LimitExceededError(f"an address of more than {MAX_ADDRESS_CHARS} chars", limit="MAX_ADDRESS_CHARS")
    try:
        return Address.parse(text)
    except AddressError:
        raise RemoteProtocolError("a dial-back with an address that is none") from None
