"""What is asked and answered comes back; what is none is the peer's fault; every bound of the messages."""

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmesh.errors import LimitExceededError, RemoteProtocolError
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
from agentmesh.protocols.directory.keys import peer_key
from agentmesh.protocols.directory.wire import (
    MAX_ADDRESS_CHARS,
    MAX_ADDRESSES,
    MAX_ANSWER_BYTES,
    MAX_PROVIDERS,
    MAX_REQUEST_BYTES,
    MAX_RETRY_AFTER,
    decode_answer,
    decode_request,
    encode_answer,
    encode_request,
)
from agentmesh.testing.strategies import (
    addresses,
    damaged,
    directory_keys,
    directory_requests,
    directory_responses,
    peer_ids,
)
from agentmesh.types import Address, PeerId
from agentmesh.wire.messages.mesh import v1 as pb

ALICE, BOB = PeerId.from_ed25519(b"a" * 32), PeerId.from_ed25519(b"b" * 32)
KEY = peer_key(ALICE)
sequences = st.integers(0, 2**64 - 1)
seconds = st.integers(0, int(RECORD_TTL)).map(float)


def announcements_of(provider: PeerId) -> st.SearchStrategy[Announcement]:
    own = addresses().map(lambda address: address.with_peer(provider))
    return st.builds(Announcement, directory_keys(), st.lists(own, max_size=2).map(tuple), sequences, seconds)


@st.composite
def found(draw: st.DrawFn) -> Found:
    said = draw(announcements_of(peer := draw(peer_ids())))
    return Found(peer, said.addresses, said.sequence, said.ttl)


requests: st.SearchStrategy[Request] = st.one_of(
    announcements_of(ALICE).map(Provide),
    announcements_of(BOB).map(lambda announcement: Provide(announcement, BOB)),
    st.builds(FindProviders, directory_keys(), st.integers(1, MAX_PROVIDERS)),
    peer_ids().map(FindPeer),
)
answers = st.builds(
    Answer,
    st.sampled_from(Status),
    st.lists(found(), max_size=2).map(tuple),
    sequences,
    st.integers(0, int(MAX_RETRY_AFTER)).map(float),
    st.integers(0, 2**32 - 1),
)


@given(requests)
def test_what_is_asked_comes_back(request: Request) -> None:
    assert decode_request(encode_request(request), ALICE) == request


@given(answers)
def test_what_is_answered_comes_back(answer: Answer) -> None:
    assert decode_answer(encode_answer(answer)) == answer


def provide(**fields: object) -> bytes:
    record = pb.DirectoryRecord(key=KEY)
    for name, value in fields.items():
        setattr(record, name, value)
    return bytes(pb.DirectoryRequest(provide=record))


def announced(data: bytes) -> Announcement:
    request = decode_request(data, ALICE)
    assert isinstance(request, Provide)
    return request.announcement


def test_what_a_request_leaves_out_is_the_default() -> None:
    assert announced(provide()) == Announcement(KEY, ttl=RECORD_TTL)
    asked = pb.DirectoryRequest(find_providers=pb.FindProviders(key=KEY))
    assert decode_request(bytes(asked), ALICE) == FindProviders(KEY, DEFAULT_LIMIT)


@pytest.mark.parametrize(("asked", "granted"), [(-1.0, 0.0), (0.0, 0.0), (0.5, 0.5), (RECORD_TTL + 1, RECORD_TTL)])
def test_no_record_is_good_for_longer_than_fifteen_minutes(asked: float, granted: float) -> None:
    assert announced(provide(ttl=datetime.timedelta(seconds=asked))).ttl == granted


def test_no_more_providers_are_asked_for_than_an_answer_holds() -> None:
    asked = pb.DirectoryRequest(find_providers=pb.FindProviders(key=KEY, limit=10**9))
    assert decode_request(bytes(asked), ALICE) == FindProviders(KEY, MAX_PROVIDERS)


OWN, OTHERS = f"/memory/1/p2p/{ALICE}", f"/memory/1/p2p/{BOB}"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        provide(key=b""),
        provide(key=KEY[:-1]),
        provide(key=b"\x13" + KEY[1:]),
        provide(addresses=["nowhere"]),
        provide(addresses=[OTHERS]),
        provide(addresses=["/memory/1"]),
        provide(addresses=[OWN, OTHERS]),
        provide(addresses=[f"/memory/1/p2p/{BOB}/p2p-circuit"]),
        bytes(pb.DirectoryRequest(provider=str(BOB))),
        bytes(pb.DirectoryRequest(provide=pb.DirectoryRecord(key=KEY), provider="nobody")),
        bytes(pb.DirectoryRequest(provide=pb.DirectoryRecord(key=KEY, addresses=[OWN]), provider=str(BOB))),
        bytes(pb.DirectoryRequest(find_providers=pb.FindProviders())),
        bytes(pb.DirectoryRequest(find_peer=pb.FindPeer())),
        bytes(pb.DirectoryRequest(find_peer=pb.FindPeer(peer_id="nobody"))),
        bytes(pb.DirectoryRequest(find_peer=pb.FindPeer(peer_id=str(BOB)), find_providers=pb.FindProviders(key=KEY))),
        provide() + bytes(pb.DirectoryRequest(find_peer=pb.FindPeer(peer_id=str(BOB)))),
    ],
)
def test_what_is_no_request_is_the_askers_fault(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_request(data, ALICE)


@pytest.mark.parametrize(
    ("data", "limit"),
    [
        (provide(addresses=[OWN] * (MAX_ADDRESSES + 1)), "MAX_ADDRESSES"),
        (provide(addresses=[OWN.rjust(MAX_ADDRESS_CHARS + 1, "/")]), "MAX_ADDRESS_CHARS"),
    ],
)
def test_a_record_has_its_bounds(data: bytes, limit: str) -> None:
    with pytest.raises(LimitExceededError) as refused:
        decode_request(data, ALICE)
    assert refused.value.limit == limit


def longest(peer: PeerId, number: int) -> Address:
    """The longest address that is taken."""
    end = f"/tcp/{10_000 + number}/tls/ws/p2p/{BOB}/p2p-circuit/p2p/{peer}"
    room = MAX_ADDRESS_CHARS - len(f"/dns4/{end}")
    labels = ("a" * 60 + ".") * 10
    return Address.parse(f"/dns4/{labels[: room - 1]}a{end}")


def test_the_fullest_record_fits_a_request() -> None:
    addresses = tuple(longest(ALICE, n) for n in range(MAX_ADDRESSES))
    assert {len(str(address)) for address in addresses} == {MAX_ADDRESS_CHARS}
    request = Provide(Announcement(KEY, addresses, 2**64 - 1, 0.123456), ALICE)
    data = encode_request(request)
    assert len(data) <= MAX_REQUEST_BYTES
    assert decode_request(data, ALICE) == request


def test_an_answer_keeps_to_its_bound_by_leaving_providers_out() -> None:
    peers = [PeerId.from_ed25519(n.to_bytes(32, "big")) for n in range(12)]
    full = tuple(Found(peer, tuple(longest(peer, n) for n in range(MAX_ADDRESSES))) for peer in peers)
    data = encode_answer(Answer(found=full))
    assert MAX_ANSWER_BYTES * 0.9 < len(data) <= MAX_ANSWER_BYTES
    kept = decode_answer(data).found
    assert kept == full[: len(kept)]


def test_no_more_providers_are_taken_than_an_answer_may_hold() -> None:
    data = encode_answer(Answer(found=(Found(ALICE),) * (MAX_PROVIDERS + 1)))
    assert len(decode_answer(data).found) == MAX_PROVIDERS


def test_of_an_answer_what_is_not_the_providers_is_left_out() -> None:
    providers = [
        pb.DirectoryProvider(peer_id="nobody"),
        pb.DirectoryProvider(peer_id=str(ALICE), addresses=["nowhere", OTHERS, "/memory/1", OWN], sequence=7),
    ]
    message = pb.DirectoryResponse(status=pb.DirectoryStatus.OK, providers=providers)
    assert decode_answer(bytes(message)).found == (Found(ALICE, (Address.parse(OWN),), 7, 0.0),)


def test_an_answer_that_promises_too_much_is_cut() -> None:
    eternity = datetime.timedelta(days=30)
    message = pb.DirectoryResponse(
        status=pb.DirectoryStatus.LIMITED,
        providers=[pb.DirectoryProvider(peer_id=str(ALICE), ttl=eternity)],
        retry_after=eternity,
    )
    answer = decode_answer(bytes(message))
    assert (answer.found[0].ttl, answer.retry_after) == (RECORD_TTL, MAX_RETRY_AFTER)


@pytest.mark.parametrize("data", [b"", b"\xff", b"\x08\x00", b"\x08\x09"])
def test_an_answer_of_no_known_status_is_none(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_answer(data)


@given(directory_requests().map(bytes) | damaged(directory_requests().map(bytes)))
def test_any_request_decodes_or_is_the_peers_fault(data: bytes) -> None:
    try:
        request = decode_request(data, ALICE)
    except RemoteProtocolError:
        return
    if isinstance(request, Provide):
        assert all(address.peer == (request.provider or ALICE) for address in request.announcement.addresses)
        assert 0 <= request.announcement.ttl <= RECORD_TTL
    assert decode_request(encode_request(request), ALICE) == request


@given(directory_responses().map(bytes) | damaged(directory_responses().map(bytes)))
def test_any_answer_decodes_or_is_the_peers_fault(data: bytes) -> None:
    try:
        answer = decode_answer(data)
    except RemoteProtocolError:
        return
    assert all(address.peer == one.peer for one in answer.found for address in one.addresses)
