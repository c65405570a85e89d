"""The directory's two messages to and from bytes.

What a peer sent either decodes to one of the values of `events` or raises RemoteProtocolError. An announcement has to
be right in all its parts. Of an answer, what cannot be read or is not the provider's is left out: it is only reported.
"""

import functools
from collections.abc import Iterable, Iterator

from agentmesh.errors import AddressError, LimitExceededError, RemoteProtocolError
from agentmesh.protocols.directory.events import (
    DEFAULT_LIMIT,
    RECORD_TTL,
    Announcement,
    Answer,
    FindPeer,
    FindProviders,
    Found,
    Provide,
    Request,
    Status,
)
from agentmesh.protocols.directory.keys import is_key
from agentmesh.types import Address, PeerId, ProtocolId
from agentmesh.wire.codec import decode
from agentmesh.wire.durations import encode_duration, seconds_in, to_duration
from agentmesh.wire.framing import encode_frame
from agentmesh.wire.messages.mesh import v1 as pb

DIRECTORY_ID = ProtocolId("/mesh/directory/1.0.0")

MAX_REQUEST_BYTES = 16 * 1024
MAX_ANSWER_BYTES = 128 * 1024  # providers that would go beyond are not sent
MAX_ADDRESSES = 32  # of one record
MAX_ADDRESS_CHARS = 400  # of one of them; MAX_ADDRESSES such fit a request
MAX_PROVIDERS = 64  # in an answer, whatever the asker wants
KNOWN_PROVIDERS = 4096  # that need not be encoded again for each who asks
MAX_SEQUENCE = 2**64 - 1
MAX_RETRY_AFTER = 3600.0  # seconds

_PROVIDERS = bytes([2 << 3 | 2])  # the field of DirectoryResponse, and that a length follows
_TTL = bytes([4 << 3 | 2])  # the same of DirectoryProvider


def encode_request(request: Request) -> bytes:
    """The message of a request. It decodes at the other end if the addresses end in /p2p/<provider>, are no more than
    MAX_ADDRESSES and no longer than MAX_ADDRESS_CHARS.
    """
    if isinstance(request, FindPeer):
        return bytes(pb.DirectoryRequest(find_peer=pb.FindPeer(peer_id=str(request.peer))))
    if isinstance(request, FindProviders):
        return bytes(pb.DirectoryRequest(find_providers=pb.FindProviders(key=request.key, limit=request.limit)))
    said = request.announcement
    record = pb.DirectoryRecord(
        key=said.key,
        addresses=list(map(str, said.addresses)),
        sequence=said.sequence,
        ttl=to_duration(said.ttl),
    )
    return bytes(pb.DirectoryRequest(provide=record, provider=str(request.provider or "")))


def decode_request(data: bytes, asker: PeerId) -> Request:
    """Read a request of `asker`.

    Raises:
        RemoteProtocolError: `data` is none; or it announces addresses that are not the provider's.
        LimitExceededError: too many addresses, or one that is too long; `limit` names the bound.
    """
    message = decode(pb.DirectoryRequest, data)
    match message:
        case pb.DirectoryRequest(provide=pb.DirectoryRecord() as record, find_providers=None, find_peer=None):
            provider = _peer_in(message.provider) if message.provider else None
            return Provide(_announcement_in(record, provider or asker), provider)
        case pb.DirectoryRequest(find_providers=pb.FindProviders(key, limit), provide=None, find_peer=None):
            return FindProviders(_key_in(key), min(limit or DEFAULT_LIMIT, MAX_PROVIDERS))
        case pb.DirectoryRequest(find_peer=pb.FindPeer(peer_id), provide=None, find_providers=None):
            return FindPeer(_peer_in(peer_id))
        case _:
            raise RemoteProtocolError("a directory request that asks for nothing, or for several things at once")


def encode_answer(answer: Answer) -> bytes:
    """Providers that do not fit the message are not sent."""
    head = pb.DirectoryResponse(
        status=pb.DirectoryStatus(answer.status),
        sequence=answer.sequence,
        retry_after=to_duration(answer.retry_after) if answer.retry_after else None,
        placed=answer.placed,
    )
    message = bytes(head)
    return message + b"".join(_fitting(answer.found, MAX_ANSWER_BYTES - len(message)))


def decode_answer(data: bytes) -> Answer:
    """Raises RemoteProtocolError when `data` is no answer, or one of no known status."""
    message = decode(pb.DirectoryResponse, data)
    return Answer(
        status=_status_in(int(message.status)),
        found=tuple(_found_in(message.providers[:MAX_PROVIDERS])),
        sequence=message.sequence,
        retry_after=seconds_in(message.retry_after, absent=0.0, at_most=MAX_RETRY_AFTER),
        placed=message.placed,
    )


def _status_in(number: int) -> Status:
    try:
        return Status(number)
    except ValueError:
        raise RemoteProtocolError("a directory answer of no known status") from None


def _announcement_in(record: pb.DirectoryRecord, provider: PeerId) -> Announcement:
    if len(record.addresses) > MAX_ADDRESSES:
        raise LimitExceededError(f"a record of more than {MAX_ADDRESSES} addresses", limit="MAX_ADDRESSES")
    addresses = tuple(_address_in(text, provider) for text in record.addresses)
    ttl = seconds_in(record.ttl, absent=RECORD_TTL, at_most=RECORD_TTL)
    return Announcement(_key_in(record.key), addresses, record.sequence, ttl)


def _address_in(text: str, provider: PeerId) -> Address:
    if len(text) > MAX_ADDRESS_CHARS:
        raise LimitExceededError(f"an address of more than {MAX_ADDRESS_CHARS} chars", limit="MAX_ADDRESS_CHARS")
    try:
        address = Address.parse(text)
    except AddressError:
        raise RemoteProtocolError("a record with an address that is none") from None
    if address.peer != provider:
        raise RemoteProtocolError("a record with an address that is not its provider's")
    return address


def _key_in(key: bytes) -> bytes:
    if not is_key(key):
        raise RemoteProtocolError("a directory key that is no sha2-256 multihash")
    return key


def _peer_in(text: str) -> PeerId:
    try:
        return PeerId.parse(text)
    except AddressError:
        raise RemoteProtocolError("a directory request that names no peer where it should") from None


def _fitting(found: Iterable[Found], left: int) -> Iterator[bytes]:
    """Each as a field of its own, as long as they fit: none is encoded twice to learn how long it is."""
    for one in found:
        ttl = _TTL + encode_frame(encode_duration(one.ttl))
        field = _PROVIDERS + encode_frame(_provider(one.peer, one.addresses, one.sequence) + ttl)
        left -= len(field)
        if left < 0:
            return
        yield field


@functools.lru_cache(maxsize=KNOWN_PROVIDERS)
def _provider(peer: PeerId, addresses: tuple[Address, ...], sequence: int) -> bytes:
    """All that an announcement says and that time does not change."""
    return bytes(pb.DirectoryProvider(peer_id=str(peer), addresses=list(map(str, addresses)), sequence=sequence))


def _found_in(providers: Iterable[pb.DirectoryProvider]) -> Iterator[Found]:
    for provider in providers:
        try:
            peer = PeerId.parse(provider.peer_id)
        except AddressError:
            continue
        addresses = tuple(_own_addresses(provider.addresses[:MAX_ADDRESSES], peer))
        ttl = seconds_in(provider.ttl, absent=0.0, at_most=RECORD_TTL)
        yield Found(peer, addresses, provider.sequence, ttl)


def _own_addresses(texts: Iterable[str], peer: PeerId) -> Iterator[Address]:
    """Those that we can read and that are the peer's."""
    for text in texts:
        try:
            address = Address.parse(text)
        except AddressError:
            continue
        if address.peer == peer:
            yield address
