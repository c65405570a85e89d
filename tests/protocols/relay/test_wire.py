import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentmesh.errors import RemoteProtocolError
from agentmesh.protocols.relay.events import CircuitLimits, Offer, ReservationGranted, Status
from agentmesh.protocols.relay.wire import (
    MAX_ADDRESSES,
    MAX_DATA,
    MAX_DURATION,
    MAX_EXPIRY,
    MAX_MESSAGE_BYTES,
    MAX_OFFER_ADDRESSES,
    ConnectMessage,
    ReserveMessage,
    StatusMessage,
    decode_carried_by_streams,
    decode_hop,
    decode_stop,
    encode_carried_by_streams,
    encode_hop_connect,
    encode_hop_status,
    encode_reserve,
    encode_stop_connect,
    encode_stop_status,
    rejection,
)
from agentmesh.types import Address, PeerId
from agentmesh.wire.messages.libp2p import relay as pb

ALICE = PeerId.from_ed25519(b"a" * 32)
peers = st.binary(min_size=32, max_size=32).map(PeerId.from_ed25519)
limits = st.builds(CircuitLimits, st.integers(0, MAX_DURATION).map(float), st.integers(min_value=0, max_value=MAX_DATA))
addresses = st.integers(1, 65535).map(lambda port: Address.parse(f"/ip4/192.0.2.1/tcp/{port}/p2p/{ALICE}"))
reservations = st.builds(
    ReservationGranted,
    st.integers(0, MAX_EXPIRY).map(float),
    st.lists(addresses, max_size=4).map(tuple),
    st.just(CircuitLimits()),
    st.binary(max_size=100),
)
VALID = [
    encode_reserve(),
    encode_hop_connect(ALICE),
    encode_hop_status(Status.OK, CircuitLimits(60.0, 1000)),
    encode_hop_status(
        Status.OK, CircuitLimits(), ReservationGranted(9.0, (Address.parse("/memory/1"),), CircuitLimits(), b"v")
    ),
    encode_stop_connect(ALICE, CircuitLimits(60.0, 1000)),
    encode_stop_status(Status.CONNECTION_FAILED),
]
# As they were before there were data paths: for peers without one they are what they always were.
GOLDEN = [
    "0800",
    f"080112280a26{ALICE.multihash.hex()}",
    "08022205083c10e8072864",
    "08021a110809120a890600000000000000011a01762864",
    f"080012280a26{ALICE.multihash.hex()}1a05083c10e807",
    "080120cb01",
]
OFFER = Offer(b"t" * 32, (Address.parse("/ip4/192.0.2.1/tcp/4001"),))
WITH_A_DATA_PATH = [
    encode_hop_connect(ALICE, True),
    encode_hop_status(Status.OK, CircuitLimits(60.0, 1000), offer=OFFER),
    encode_stop_connect(ALICE, CircuitLimits(), OFFER),
    encode_stop_status(Status.OK, True),
    encode_carried_by_streams(False),
]
offers = st.builds(
    Offer, st.binary(min_size=32, max_size=32), st.lists(addresses, max_size=MAX_OFFER_ADDRESSES).map(tuple)
)


@given(peers)
def test_requests_come_back(peer: PeerId) -> None:
    assert decode_hop(encode_reserve()) == ReserveMessage()
    assert decode_hop(encode_hop_connect(peer)) == ConnectMessage(peer)


@given(peers, limits)
def test_offers_come_back(peer: PeerId, limits: CircuitLimits) -> None:
    assert decode_stop(encode_stop_connect(peer, limits)) == ConnectMessage(peer, limits)


@given(st.sampled_from(Status), limits)
def test_statuses_come_back(status: Status, limits: CircuitLimits) -> None:
    assert decode_hop(encode_hop_status(status, limits)) == StatusMessage(status, limits)
    assert decode_stop(encode_stop_status(status)) == StatusMessage(status)


@given(reservations, limits)
def test_reservations_come_back(granted: ReservationGranted, limits: CircuitLimits) -> None:
    message = decode_hop(encode_hop_status(Status.OK, limits, granted))
    assert isinstance(message, StatusMessage)
    assert message.reservation == ReservationGranted(granted.expires_at, granted.addresses, limits, granted.voucher)


def test_messages_without_a_data_path_are_what_they_always_were() -> None:
    assert [message.hex() for message in VALID] == GOLDEN


def test_a_data_path_is_asked_for_and_taken() -> None:
    assert decode_hop(encode_hop_connect(ALICE, True)) == ConnectMessage(ALICE, data_path=True)
    assert decode_stop(encode_stop_status(Status.OK, True)) == StatusMessage(Status.OK, data_path=True)
    assert encode_hop_connect(ALICE, True).endswith(bytes.fromhex("88fa0101"))  # field 4001


@given(offers, limits)
def test_offers_of_a_data_path_come_back(offer: Offer, limits: CircuitLimits) -> None:
    hop = decode_hop(encode_hop_status(Status.OK, limits, offer=offer))
    assert hop == StatusMessage(Status.OK, limits, offer=offer)
    stop = decode_stop(encode_stop_connect(ALICE, limits, offer))
    assert stop == ConnectMessage(ALICE, limits, offer=offer)


@pytest.mark.parametrize("ticket", [None, b"", b"t" * 31, b"t" * 33])
def test_an_offer_without_a_whole_ticket_is_refused(ticket: bytes | None) -> None:
    offer = pb.Offer(ticket=ticket)
    with pytest.raises(RemoteProtocolError):
        decode_hop(bytes(pb.HopMessage(type=pb.HopMessageType.STATUS, status=pb.Status.OK, offer=offer)))
    peer = pb.Peer(id=ALICE.multihash)
    with pytest.raises(RemoteProtocolError):
        decode_stop(bytes(pb.StopMessage(type=pb.StopMessageType.CONNECT, peer=peer, offer=offer)))


def test_an_offer_is_short_however_many_addresses_there_are() -> None:
    many = tuple(Address.parse(f"/ip4/192.0.2.1/tcp/{port}") for port in range(1, 20))
    message = decode_stop(encode_stop_connect(ALICE, CircuitLimits(), Offer(OFFER.ticket, many)))
    assert isinstance(message, ConnectMessage)
    assert message.offer == Offer(OFFER.ticket, many[:MAX_OFFER_ADDRESSES])
    crowd = pb.Offer(ticket=OFFER.ticket, addrs=[address.to_bytes() for address in many])
    found = decode_hop(bytes(pb.HopMessage(type=pb.HopMessageType.STATUS, status=pb.Status.OK, offer=crowd)))
    assert isinstance(found, StatusMessage)
    assert found.offer == message.offer


def test_a_ticket_is_not_in_a_repr() -> None:
    assert "ttt" not in repr(OFFER)


@pytest.mark.parametrize("missed", [True, False])
def test_the_word_for_streams_comes_back(missed: bool) -> None:
    assert decode_carried_by_streams(encode_carried_by_streams(missed)) is missed


def test_an_empty_message_is_no_word_for_streams() -> None:
    with pytest.raises(RemoteProtocolError):
        decode_carried_by_streams(b"")


def test_the_type_is_written_though_it_is_zero() -> None:
    """Peers whose code was made from the proto2 definition refuse a message without its required type."""
    assert encode_reserve() == bytes.fromhex("0800")
    assert encode_stop_connect(ALICE, CircuitLimits()).startswith(bytes.fromhex("0800"))


def decode_both_ways(data: bytes) -> None:
    for decode in (decode_hop, decode_stop, decode_carried_by_streams):
        try:
            decode(data)
        except RemoteProtocolError:
            continue


@given(st.binary(max_size=300))
@example(b"")
def test_any_bytes_are_a_message_or_the_peers_fault(data: bytes) -> None:
    decode_both_ways(data)


@given(st.sampled_from(VALID + WITH_A_DATA_PATH), st.integers(0, 200), st.binary(max_size=3))
def test_perturbed_messages_are_messages_or_the_peers_fault(valid: bytes, at: int, put: bytes) -> None:
    cut = at % (len(valid) + 1)
    decode_both_ways(valid[:cut] + put + valid[cut + len(put) :])


@pytest.mark.parametrize(
    "message",
    [
        pb.HopMessage(),
        pb.HopMessage(type=pb.HopMessageType(7)),
        pb.HopMessage(type=pb.HopMessageType.CONNECT),
        pb.HopMessage(type=pb.HopMessageType.CONNECT, peer=pb.Peer()),
        pb.HopMessage(type=pb.HopMessageType.CONNECT, peer=pb.Peer(id=b"nobody")),
        pb.HopMessage(type=pb.HopMessageType.STATUS),
        pb.HopMessage(type=pb.HopMessageType.STATUS, status=pb.Status.OK, reservation=pb.Reservation()),
        pb.HopMessage(
            type=pb.HopMessageType.STATUS, status=pb.Status.OK, reservation=pb.Reservation(expire=MAX_EXPIRY + 1)
        ),
    ],
)
def test_a_hop_message_without_what_it_needs_is_refused(message: pb.HopMessage) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_hop(bytes(message))


@pytest.mark.parametrize(
    "message",
    [
        pb.StopMessage(),
        pb.StopMessage(type=pb.StopMessageType(7)),
        pb.StopMessage(type=pb.StopMessageType.CONNECT),
        pb.StopMessage(type=pb.StopMessageType.STATUS),
    ],
)
def test_a_stop_message_without_what_it_needs_is_refused(message: pb.StopMessage) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_stop(bytes(message))


def reservation_with(addrs: list[bytes]) -> ReservationGranted:
    message = decode_hop(
        bytes(
            pb.HopMessage(
                type=pb.HopMessageType.STATUS,
                status=pb.Status.OK,
                reservation=pb.Reservation(expire=9, addrs=addrs),
            )
        )
    )
    assert isinstance(message, StatusMessage)
    assert message.reservation is not None
    return message.reservation


def test_addresses_that_cannot_be_read_are_left_out() -> None:
    known = Address.parse("/ip4/192.0.2.1/tcp/1")
    assert reservation_with([b"\xff\xff", known.to_bytes(), b""]).addresses == (known,)


def test_no_more_than_max_addresses_are_taken() -> None:
    sent = [Address.parse(f"/ip4/192.0.2.1/tcp/{port}").to_bytes() for port in range(1, MAX_ADDRESSES + 9)]
    assert len(reservation_with(sent).addresses) == MAX_ADDRESSES


def test_a_reservation_stays_in_the_message_bound_whatever_its_addresses() -> None:
    long = tuple(Address.parse(f"/dns4/{'a' * 60}.{'b' * 60}.{'c' * 60}.example/tcp/{port}") for port in range(1, 40))
    data = encode_hop_status(Status.OK, CircuitLimits(), ReservationGranted(1.0, long, CircuitLimits(), bytes(300)))
    assert len(data) <= MAX_MESSAGE_BYTES
    message = decode_hop(data)
    assert isinstance(message, StatusMessage)
    assert message.reservation is not None
    assert 0 < len(message.reservation.addresses) < len(long)
    assert message.reservation.addresses == long[: len(message.reservation.addresses)]


def test_limits_beyond_the_fields_are_cut_to_them() -> None:
    huge = CircuitLimits(float(MAX_DURATION) * 2, MAX_DATA * 2)
    assert decode_stop(encode_stop_connect(ALICE, huge)) == ConnectMessage(
        ALICE, CircuitLimits(float(MAX_DURATION), MAX_DATA)
    )


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.OK])
def test_a_refusal_is_an_error_that_names_its_status(status: Status) -> None:
    error = rejection(int(status))
    assert error.code is status
    assert status.name in str(error)


def test_a_refusal_nobody_knows_keeps_its_number() -> None:
    assert rejection(299).code == 299
    assert "299" in str(rejection(299))
