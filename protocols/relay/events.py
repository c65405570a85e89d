"""What comes out of the relay's four machines, and the values that they carry."""

import enum

import attrs

from agentmesh.types import Address, PeerId


class Status(enum.IntEnum):
    """The answers of the specification."""

    OK = 100
    RESERVATION_REFUSED = 200
    RESOURCE_LIMIT_EXCEEDED = 201
    PERMISSION_DENIED = 202
    CONNECTION_FAILED = 203
    NO_RESERVATION = 204
    MALFORMED_MESSAGE = 400
    UNEXPECTED_MESSAGE = 401


@attrs.frozen
class CircuitLimits:
    """What one circuit may use. 0: no limit."""

    max_duration: float = 0.0  # seconds; whole ones on the wire
    max_bytes: int = 0  # in each direction


@attrs.frozen
class Offer:
    """A place for one connection at the relay, to carry a circuit's bytes."""

    ticket: bytes = attrs.field(repr=False)
    addresses: tuple[Address, ...] = ()  # of the relay, beside the one that was dialled


# ── the side that answers ──


@attrs.frozen
class ReservationRequested:
    """hop: the peer wants to be reachable here. Answer with `send_reservation` or `send_refusal`."""


@attrs.frozen
class CircuitRequested:
    """hop: a circuit to `peer` is wanted; stop: one from `peer` is offered. Answer with `send_circuit` or
    `send_refusal`.
    """

    peer: PeerId
    limits: CircuitLimits = CircuitLimits()
    data_path: bool = False  # hop: an offer would be taken
    offer: Offer | None = None  # stop


@attrs.frozen
class RequestBroken:
    """What came was no request; a status that says so waits in `data_to_send`. The machine is finished."""

    status: Status


@attrs.frozen
class PeerLeft:
    """The peer ended its side before it had asked for anything. The machine is finished."""


# ── the side that asks ──


@attrs.frozen
class ReservationGranted:
    """We are reachable through the relay."""

    expires_at: float  # wall-clock seconds
    addresses: tuple[Address, ...]  # of the relay; `client.reserve` makes them ours: /…/p2p/<relay>/p2p-circuit
    limits: CircuitLimits  # of each circuit
    voucher: bytes = b""  # the relay's signature over it, where it gave one


@attrs.frozen
class CircuitOpened:
    """The bytes of the circuit begin, and the first of them may be in `trailing()` already; or an offer was made and
    taken, and `pairing` is what follows.
    """

    limits: CircuitLimits
    data_path: bool = False  # stop: the offer is taken
    offer: Offer | None = None  # hop: one to us


@attrs.frozen
class Refused:
    """The peer said no, with this number. The machine is finished."""

    status: int


# ── both ──


@attrs.frozen
class TimedOut:
    """The peer's message did not come in time. The machine is finished."""


ListenerEvent = ReservationRequested | CircuitRequested | RequestBroken | PeerLeft | TimedOut
DialerEvent = ReservationGranted | CircuitOpened | Refused | TimedOut
