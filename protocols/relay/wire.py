"""Relay messages to and from bytes (libp2p specification "relay/circuit-v2").

What a peer sent either decodes to one of the values here or raises RemoteProtocolError. `type` is always written: it is
a required field to peers whose code was made from the older definition, and its first value is 0.
"""

from collections.abc import Iterable

import attrs

from agentmesh.errors import AddressError, RejectedError, RemoteProtocolError
from agentmesh.protocols.relay.events import CircuitLimits, Offer, ReservationGranted, Status
from agentmesh.types import Address, PeerId, ProtocolId
from agentmesh.wire.codec import decode
from agentmesh.wire.messages.libp2p import relay as pb

HOP_ID = ProtocolId("/libp2p/circuit/relay/0.2.0/hop")
STOP_ID = ProtocolId("/libp2p/circuit/relay/0.2.0/stop")

MAX_MESSAGE_BYTES = 4096  # as go-libp2p and js-libp2p allow
MAX_ADDRESSES = 32  # of a reservation: further ones are not taken
MAX_ADDRESS_BYTES = 3072  # of a reservation, together: further ones are not sent, as the message has a bound
MAX_DURATION = 2**32 - 1  # seconds
MAX_DATA = 2**63 - 1  # bytes
MAX_EXPIRY = 2**53  # seconds since 1970; beyond, no float is exact

TICKET_BYTES = 32
MAX_OFFER_ADDRESSES = 4  # further ones are neither sent nor taken
MAX_OFFER_ADDRESS_BYTES = 1024  # of an offer, together
DOOR_BYTE = 0xDA  # begins the connection of a data path, a ticket follows; no multistream, TLS or HTTP begins with it
PREAMBLE_BYTES = 1 + TICKET_BYTES
WELCOME = b"\xda"  # the relay's whole answer: what follows is the circuit's

REFUSALS: tuple[Status, ...] = tuple(status for status in Status if status is not Status.OK)


@attrs.frozen
class ReserveMessage:
    """hop: RESERVE."""


@attrs.frozen
class ConnectMessage:
    """hop: CONNECT to `peer`; stop: CONNECT from `peer`, within `limits`."""

    peer: PeerId
    limits: CircuitLimits = CircuitLimits()
    data_path: bool = False
    offer: Offer | None = None


@attrs.frozen
class StatusMessage:
    """The answer to any of the others."""

    status: int
    limits: CircuitLimits = CircuitLimits()
    reservation: ReservationGranted | None = None
    data_path: bool = False
    offer: Offer | None = None


HopMessage = ReserveMessage | ConnectMessage | StatusMessage
StopMessage = ConnectMessage | StatusMessage


def rejection(status: int) -> RejectedError:
    """The error that a refusal is to our caller. Its `code` is the Status, or the bare number of one nobody knows."""
    known = next((one for one in REFUSALS if one == status), None)
    return RejectedError(f"the relay refused: {known.name if known else f'status {status}'}", known or status)


def encode_reserve() -> bytes:
    return bytes(pb.HopMessage(type=pb.HopMessageType.RESERVE))


def encode_hop_connect(destination: PeerId, data_path: bool = False) -> bytes:
    peer = pb.Peer(id=destination.multihash)
    return bytes(pb.HopMessage(type=pb.HopMessageType.CONNECT, peer=peer, data_path=data_path or None))


def encode_hop_status(
    status: Status,
    limits: CircuitLimits,
    reservation: ReservationGranted | None = None,
    offer: Offer | None = None,
) -> bytes:
    return bytes(
        pb.HopMessage(
            type=pb.HopMessageType.STATUS,
            status=pb.Status(status),
            limit=_limit_of(limits),
            reservation=None if reservation is None else _reservation_of(reservation),
            offer=None if offer is None else _offer_of(offer),
        )
    )


def encode_stop_connect(source: PeerId, limits: CircuitLimits, offer: Offer | None = None) -> bytes:
    return bytes(
        pb.StopMessage(
            type=pb.StopMessageType.CONNECT,
            peer=pb.Peer(id=source.multihash),
            limit=_limit_of(limits),
            offer=None if offer is None else _offer_of(offer),
        )
    )


def encode_stop_status(status: Status, data_path: bool = False) -> bytes:
    kind = pb.StopMessageType.STATUS
    return bytes(pb.StopMessage(type=kind, status=pb.Status(status), data_path=data_path or None))


def encode_carried_by_streams(missed: bool) -> bytes:
    return bytes(pb.CarriedByStreams(missed=missed))


def decode_hop(data: bytes) -> HopMessage:
    """Raises RemoteProtocolError when `data` is no hop message, or one without what its type needs."""
    message = decode(pb.HopMessage, data)
    match message.type:
        case pb.HopMessageType.RESERVE:
            return ReserveMessage()
        case pb.HopMessageType.CONNECT:
            return ConnectMessage(_peer_in(message.peer), data_path=bool(message.data_path))
        case pb.HopMessageType.STATUS:
            limits = _limits_in(message.limit)
            reservation = None if message.reservation is None else _reservation_in(message.reservation, limits)
            return StatusMessage(_status_in(message.status), limits, reservation, offer=_offer_in(message.offer))
        case _:
            raise RemoteProtocolError("a hop message of no known type")


def decode_stop(data: bytes) -> StopMessage:
    """Raises RemoteProtocolError when `data` is no stop message, or one without what its type needs."""
    message = decode(pb.StopMessage, data)
    match message.type:
        case pb.StopMessageType.CONNECT:
            return ConnectMessage(_peer_in(message.peer), _limits_in(message.limit), offer=_offer_in(message.offer))
        case pb.StopMessageType.STATUS:
            return StatusMessage(_status_in(message.status), data_path=bool(message.data_path))
        case _:
            raise RemoteProtocolError("a stop message of no known type")


def decode_carried_by_streams(data: bytes) -> bool:
    """Whether it is for want of our connection. Raises RemoteProtocolError when `data` does not say it."""
    missed = decode(pb.CarriedByStreams, data).missed
    if missed is None:
        raise RemoteProtocolError("not the message that a circuit is carried by streams")
    return missed


def _status_in(status: int | None) -> int:
    if status is None:
        raise RemoteProtocolError("a status message without a status")
    return int(status)


def _peer_in(peer: pb.Peer | None) -> PeerId:
    try:
        return PeerId.from_bytes(b"" if peer is None else peer.id or b"")
    except AddressError:
        raise RemoteProtocolError("a message that needs a peer and names none") from None


def _limit_of(limits: CircuitLimits) -> pb.Limit | None:
    if limits == CircuitLimits():
        return None
    return pb.Limit(duration=min(int(limits.max_duration), MAX_DURATION), data=min(limits.max_bytes, MAX_DATA))


def _limits_in(limit: pb.Limit | None) -> CircuitLimits:
    return CircuitLimits(float(limit.duration or 0), limit.data or 0) if limit else CircuitLimits()


def _reservation_of(granted: ReservationGranted) -> pb.Reservation:
    return pb.Reservation(
        expire=int(granted.expires_at),
        addrs=list(_fitting(granted.addresses[:MAX_ADDRESSES], MAX_ADDRESS_BYTES)),
        voucher=granted.voucher or None,
    )


def _reservation_in(reservation: pb.Reservation, limits: CircuitLimits) -> ReservationGranted:
    if reservation.expire is None or reservation.expire > MAX_EXPIRY:
        raise RemoteProtocolError("a reservation without an end")
    addresses = tuple(_addresses_in(reservation.addrs[:MAX_ADDRESSES]))
    return ReservationGranted(float(reservation.expire), addresses, limits, reservation.voucher or b"")


def _offer_of(offer: Offer) -> pb.Offer:
    addresses = _fitting(offer.addresses[:MAX_OFFER_ADDRESSES], MAX_OFFER_ADDRESS_BYTES)
    return pb.Offer(ticket=offer.ticket, addrs=list(addresses))


def _offer_in(offer: pb.Offer | None) -> Offer | None:
    if offer is None:
        return None
    if offer.ticket is None or len(offer.ticket) != TICKET_BYTES:
        raise RemoteProtocolError("an offer without a ticket")
    return Offer(offer.ticket, tuple(_addresses_in(offer.addrs[:MAX_OFFER_ADDRESSES])))


def _fitting(addresses: Iterable[Address], max_bytes: int) -> Iterable[bytes]:
    left = max_bytes
    for address in addresses:
        data = address.to_bytes()
        left -= len(data)
        if left < 0:
            return
        yield data


def _addresses_in(addresses: Iterable[bytes]) -> Iterable[Address]:
    """Those that we can read: a relay may well speak transports whose addresses are news to us."""
    for data in addresses:
        try:
            yield Address.from_bytes(data)
        except AddressError:
            continue
