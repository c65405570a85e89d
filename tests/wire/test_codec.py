"""A peer's bytes become a message that is what its definition says, or the peer's fault."""

import contextlib
import dataclasses
import datetime

import betterproto2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmesh.errors import LimitExceededError, RemoteProtocolError
from agentmesh.wire.codec import MAX_FIELDS, MAX_UNKNOWN_FIELDS, decode
from agentmesh.wire.messages.libp2p.crypto import KeyType, PrivateKey, PublicKey
from agentmesh.wire.messages.libp2p.identify import Identify
from agentmesh.wire.messages.libp2p.pubsub import Message, Rpc, RpcSubOpts
from agentmesh.wire.messages.libp2p.record import AddressInfo, Envelope, PeerRecord, ReservationVoucher
from agentmesh.wire.messages.libp2p.relay import (
    HopMessage,
    HopMessageType,
    Limit,
    Peer,
    Reservation,
    Status,
    StopMessage,
    StopMessageType,
)
from agentmesh.wire.messages.mesh.v1 import (
    AuthFrame,
    AuthResponse,
    BootstrapEnrollRequest,
    BootstrapEnrollResponse,
    ControlPlaneInfoResponse,
    DirectoryProvider,
    DirectoryRecord,
    DirectoryRequest,
    DirectoryResponse,
    DirectoryStatus,
    EnrollmentStatus,
    FindPeer,
    FindProviders,
    KeysResponse,
    MeshEvent,
    MeshEventType,
    RouterInfo,
    RouterLeaseRequest,
    RouterLeaseResponse,
    TokenRefreshRequest,
    TokenRefreshResponse,
)

NOON = datetime.datetime(2026, 3, 20, 12, tzinfo=datetime.UTC)
ROUTER = RouterInfo(
    peer_id="R", addresses=["/memory/1", "/memory/2"], labels={"zone": "a"}, connections=7, connection_limit=4000
)

# Field numbers and types, pinned: a changed hexadecimal string is a changed wire.
GOLDEN: list[tuple[betterproto2.Message, str]] = [
    (PublicKey(type=KeyType.RSA, data=b"k"), "080012016b"),
    (PublicKey(type=KeyType.ED25519, data=bytes(32)), "08011220" + 32 * "00"),
    (PrivateKey(type=KeyType.ED25519, data=bytes(64)), "08011240" + 64 * "00"),
    (PublicKey(type=KeyType.SECP256K1, data=b""), "08021200"),
    (PublicKey(type=KeyType.ECDSA, data=b""), "08031200"),
    (
        Identify(
            public_key=b"k",
            listen_addrs=[b"a", b"b"],
            protocols=["/p"],
            observed_addr=b"o",
            protocol_version="v",
            agent_version="g",
            signed_peer_record=b"s",
        ),
        "0a016b1201611201621a022f7022016f2a0176320167420173",
    ),
    (Envelope(public_key=b"k", payload_type=b"t", payload=b"p", signature=b"s"), "0a016b1201741a01702a0173"),
    (PeerRecord(peer_id=b"i", seq=300, addresses=[AddressInfo(multiaddr=b"a")]), "0a016910ac021a030a0161"),
    (ReservationVoucher(relay=b"r", peer=b"p", expiration=300), "0a017212017018ac02"),
    (HopMessage(type=HopMessageType.RESERVE), "0800"),
    (HopMessage(type=HopMessageType.CONNECT, peer=Peer(id=b"i", addrs=[b"a"])), "080112060a0169120161"),
    (
        HopMessage(
            type=HopMessageType.STATUS,
            reservation=Reservation(expire=300, addrs=[b"a"], voucher=b"v"),
            limit=Limit(duration=60, data=300),
            status=Status.OK,
        ),
        "08021a0908ac021201611a01762205083c10ac022864",
    ),
    (
        StopMessage(type=StopMessageType.CONNECT, peer=Peer(id=b"i"), limit=Limit(data=0)),
        "080012030a01691a021000",
    ),
    (StopMessage(type=StopMessageType.STATUS, status=Status.UNEXPECTED_MESSAGE), "0801209103"),
    (
        Rpc(
            subscriptions=[RpcSubOpts(subscribe=False, topicid="t")],
            publish=[Message(from_=b"f", data=b"", seqno=b"n", topics=["a", "b"], signature=b"s", key=b"k")],
        ),
        "0a050800120174" + "1214" + "0a0166" + "1200" + "1a016e" + "220161" + "220162" + "2a0173" + "32016b",
    ),
    (
        DirectoryRequest(
            provide=DirectoryRecord(key=b"k", addresses=["a"], sequence=300, ttl=datetime.timedelta(seconds=900)),
            provider="p",
        ),
        "0a0e" + "0a016b" + "120161" + "18ac02" + "2203088407" + "220170",
    ),
    (DirectoryRequest(find_providers=FindProviders(key=b"k", limit=20)), "12050a016b1014"),
    (DirectoryRequest(find_peer=FindPeer(peer_id="p")), "1a030a0170"),
    (
        DirectoryResponse(
            status=DirectoryStatus.LIMITED,
            providers=[DirectoryProvider(peer_id="p", addresses=["a"], sequence=7, ttl=datetime.timedelta(seconds=1))],
            sequence=300,
            retry_after=datetime.timedelta(seconds=2),
            placed=3,
        ),
        "0803" + "120c0a017012016118072202080118ac022202080228" + "03",
    ),
    (
        MeshEvent(type=MeshEventType.KEY_ROTATION, peer_id="p", event_time=NOON, new_public_key=b"k", signature=b"s"),
        "08011201701a0608c0edf4cd0622016b2a0173",
    ),
    (AuthFrame(biscuit=b"b", target_service="t"), "0a0162120174"),
    (AuthResponse(success=True, error="e", biscuit=b"b"), "08011201651a0162"),
    (
        BootstrapEnrollRequest(
            bootstrap_token="t",
            peer_id="p",
            public_key=b"k",
            requested_role="r",
            labels={"a": "b"},
            challenge_unix_ms=300,
            challenge_signature=b"s",
        ),
        "0a01741201701a016b2201722a060a016112016230ac023a0173",
    ),
    (
        BootstrapEnrollResponse(
            status=EnrollmentStatus.APPROVED,
            biscuit_token=b"b",
            poll_interval_seconds=30,
            error_message="e",
            control_plane_public_key=b"k",
            router_addresses=["r"],
            expire_time=NOON,
        ),
        "0802120162181e2201652a016b3201723a0608c0edf4cd06",
    ),
    (
        ControlPlaneInfoResponse(
            oidc_issuer="i",
            client_id="c",
            audience="a",
            router_addresses=["r"],
            banned_peer_ids=["b"],
            routers=[ROUTER],
        ),
        "0a0169120163" + "1a0161" + "220172" + "2a0162" + "3229"
        "0a0152" + "12092f6d656d6f72792f31" + "12092f6d656d6f72792f32" + "1a090a047a6f6e65120161" + "2007" + "28a01f",
    ),
    (KeysResponse(public_keys=[b"k", b""], sign_time=NOON, signatures=[b"s"]), "0a016b0a00120608c0edf4cd061a0173"),
    (
        TokenRefreshRequest(challenge_signature=b"s", challenge_unix_ms=300, peer_id="p", jwt="j"),
        "0a017310ac021a017022016a",
    ),
    (TokenRefreshResponse(biscuit_token=b"b", expire_time=NOON, error_message="e"), "0a0162120608c0edf4cd061a0165"),
    (
        RouterLeaseRequest(
            peer_id="p",
            addresses=["a"],
            biscuit=b"b",
            connected_peers=1,
            dht_size=2,
            challenge_unix_ms=300,
            challenge_signature=b"s",
            ttl=datetime.timedelta(seconds=30),
            connections=3,
            connection_limit=4000,
        ),
        "0a01701201611a016220012802" + "30ac02" + "3a0173" + "4202081e" + "4803" + "50a01f",
    ),
    (RouterLeaseRequest(ttl=datetime.timedelta(0)), "4200"),
    (RouterLeaseResponse(success=True, error="e", expire_time=NOON), "08011201651a0608c0edf4cd06"),
]
KINDS = sorted({type(message) for message, _ in GOLDEN}, key=lambda kind: kind.__name__)


@pytest.mark.parametrize(("message", "spelling"), GOLDEN, ids=lambda value: type(value).__name__)
def test_golden_messages(message: betterproto2.Message, spelling: str) -> None:
    assert bytes(message).hex() == spelling
    assert decode(type(message), bytes.fromhex(spelling)) == message


def test_relay_status_numbers() -> None:
    assert {status.name: int(status) for status in Status} == {
        "UNUSED": 0,
        "OK": 100,
        "RESERVATION_REFUSED": 200,
        "RESOURCE_LIMIT_EXCEEDED": 201,
        "PERMISSION_DENIED": 202,
        "CONNECTION_FAILED": 203,
        "NO_RESERVATION": 204,
        "MALFORMED_MESSAGE": 400,
        "UNEXPECTED_MESSAGE": 401,
    }


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.binary(max_size=60))
def test_any_bytes_are_a_message_or_the_peers_fault(kind: type[betterproto2.Message], data: bytes) -> None:
    try:
        message = decode(kind, data)
    except RemoteProtocolError:
        return
    assert decode(kind, bytes(message)) == message


@given(st.sampled_from(GOLDEN), st.integers(0, 200), st.binary(max_size=3))
def test_a_perturbed_message_is_a_message_or_the_peers_fault(
    golden: tuple[betterproto2.Message, str], at: int, patch: bytes
) -> None:
    message, spelling = golden
    data = bytearray.fromhex(spelling)
    at %= len(data) + 1
    data[at : at + len(patch)] = patch
    with contextlib.suppress(RemoteProtocolError):
        decode(type(message), bytes(data))


@given(st.sampled_from(GOLDEN), st.integers(0, 200))
def test_a_message_cut_inside_a_field_is_the_peers_fault(golden: tuple[betterproto2.Message, str], cut: int) -> None:
    message, spelling = golden
    data = bytes.fromhex(spelling)[: cut % (len(spelling) // 2)]
    try:
        shorter = decode(type(message), data)
    except RemoteProtocolError:
        return
    assert data.startswith(bytes(shorter))  # it was cut between two fields: nothing is made up


@pytest.mark.parametrize(
    ("kind", "spelling", "says"),
    [
        (AuthFrame, "0a05aa", "beyond"),  # a length claim that does not hold
        (AuthFrame, "0805", "wire type 0"),  # a number where bytes belong
        (AuthFrame, "0d01020304", "wire type 5"),
        (AuthFrame, "0b", "no such wire type: 3"),  # groups are long gone
        (AuthFrame, "0200", "without number"),
        (AuthFrame, "ff", "does not end"),
        (AuthFrame, "08" + "ff" * 10 + "00", "does not end"),
        (AuthFrame, "39aabb", "beyond"),  # an unknown field of 8 bytes, cut short
        (AuthFrame, "1202ff41", "malformed AuthFrame: UnicodeDecodeError"),
        (HopMessage, "12030a05aa", "beyond"),  # within a message within
        (BootstrapEnrollRequest, "2a020805", "wire type 0"),  # within a map
        (BootstrapEnrollResponse, "3a0a08ffffffffffffffff7f", "OverflowError"),  # the year is not in the calendar
    ],
)
def test_what_is_wrong_is_said(kind: type[betterproto2.Message], spelling: str, says: str) -> None:
    with pytest.raises(RemoteProtocolError, match=says):
        decode(kind, bytes.fromhex(spelling))


def test_an_error_holds_nothing_of_the_message() -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        decode(AuthFrame, bytes(AuthFrame(biscuit=b"secret")) + bytes.fromhex("1202ff41"))
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_fields_of_a_newer_peer_are_passed_over() -> None:
    data = bytes.fromhex("0a0162") + bytes.fromhex("7a026869") * MAX_UNKNOWN_FIELDS
    assert decode(AuthFrame, data).biscuit == b"b"
    with pytest.raises(LimitExceededError, match="too many fields in a AuthFrame"):
        decode(AuthFrame, data + bytes.fromhex("7801"))


def test_a_message_has_a_bound_of_fields() -> None:
    data = bytes(KeysResponse(public_keys=[b""] * MAX_FIELDS))
    assert len(decode(KeysResponse, data).public_keys) == MAX_FIELDS
    with pytest.raises(LimitExceededError):
        decode(KeysResponse, data + bytes.fromhex("0a00"))


def test_an_unknown_value_of_an_enumeration_is_kept() -> None:
    assert decode(HopMessage, bytes.fromhex("082a")).type == 42


@dataclasses.dataclass(eq=False, repr=False)
class Numbers(betterproto2.Message):
    """No message of ours repeats a number yet; the codec reads both spellings."""

    varints: "list[int]" = betterproto2.field(1, betterproto2.TYPE_UINT64, repeated=True)
    fixed: "list[int]" = betterproto2.field(2, betterproto2.TYPE_FIXED32, repeated=True)
    doubles: "list[float]" = betterproto2.field(3, betterproto2.TYPE_DOUBLE, repeated=True)


def test_repeated_numbers_packed_or_not() -> None:
    numbers = Numbers(varints=[1, 300], fixed=[5], doubles=[0.5])
    assert decode(Numbers, bytes(numbers)) == numbers
    assert decode(Numbers, bytes.fromhex("080108ac02")).varints == [1, 300]
    for cut_short in ("0a0180", "1203000000"):
        with pytest.raises(RemoteProtocolError, match="does not end|beyond"):
            decode(Numbers, bytes.fromhex(cut_short))
