"""The side that answers, of hop and of stop: what it makes of whatever a peer sends."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmesh.errors import LocalProtocolError
from agentmesh.protocols.relay import listener
from agentmesh.protocols.relay.events import (
    CircuitLimits,
    CircuitRequested,
    PeerLeft,
    RequestBroken,
    ReservationGranted,
    Status,
    TimedOut,
)
from agentmesh.protocols.relay.hop import HopListener
from agentmesh.protocols.relay.listener import REQUEST_TIMEOUT, Listener
from agentmesh.protocols.relay.stop import StopListener
from agentmesh.protocols.relay.wire import (
    MAX_MESSAGE_BYTES,
    encode_hop_connect,
    encode_hop_status,
    encode_reserve,
    encode_stop_status,
)
from agentmesh.types import Address, PeerId
from agentmesh.wire.framing import encode_frame

ALICE = PeerId.from_ed25519(b"a" * 32)
LIMITS = CircuitLimits(60.0, 4096)
GRANTED = ReservationGranted(5000.0, (Address.parse("/memory/1"),), LIMITS, b"voucher")
LISTENERS: list[type[HopListener | StopListener]] = [HopListener, StopListener]


def status_for(machine: Listener, status: Status) -> bytes:
    return encode_frame(
        encode_hop_status(status, CircuitLimits()) if isinstance(machine, HopListener) else encode_stop_status(status)
    )


@pytest.mark.parametrize("kind", LISTENERS)
@pytest.mark.parametrize("data", [b"\x00", b"\x02\x08\x09", b"\x03\xff\xff\xff", b"\x80\x80\x01", b"\x80\x00"])
def test_garbage_is_answered_malformed(kind: type[Listener], data: bytes) -> None:
    machine = kind(0.0)
    machine.receive_data(data, 1.0)
    assert machine.next_event() == RequestBroken(Status.MALFORMED_MESSAGE)
    assert machine.data_to_send() == status_for(machine, Status.MALFORMED_MESSAGE)
    assert machine.deadline == math.inf
    machine.receive_data(b"more", 1.0)
    machine.receive_data(b"", 1.0)
    assert (machine.next_event(), machine.data_to_send()) == (None, b"")


@pytest.mark.parametrize("kind", LISTENERS)
def test_a_status_nobody_asked_for_is_answered_unexpected(kind: type[Listener]) -> None:
    machine = kind(0.0)
    machine.receive_data(status_for(machine, Status.OK), 1.0)
    assert machine.next_event() == RequestBroken(Status.UNEXPECTED_MESSAGE)
    assert machine.data_to_send() == status_for(machine, Status.UNEXPECTED_MESSAGE)


@pytest.mark.parametrize("kind", LISTENERS)
def test_a_long_message_is_refused_when_its_length_has_come(kind: type[Listener]) -> None:
    machine = kind(0.0)
    machine.receive_data(encode_frame(bytes(MAX_MESSAGE_BYTES + 1))[:2], 1.0)
    assert machine.next_event() == RequestBroken(Status.MALFORMED_MESSAGE)


@pytest.mark.parametrize("kind", LISTENERS)
@pytest.mark.parametrize("before", [b"", b"\x05"])
def test_a_peer_may_leave_without_a_request(kind: type[Listener], before: bytes) -> None:
    machine = kind(0.0)
    if before:
        machine.receive_data(before, 0.0)
    machine.receive_data(b"", 1.0)
    assert (machine.next_event(), machine.state) == (PeerLeft(), listener.State.FINISHED)


@pytest.mark.parametrize("kind", LISTENERS)
def test_a_request_is_due_in_time(kind: type[Listener]) -> None:
    machine = kind(0.0)
    machine.handle_timeout(REQUEST_TIMEOUT - 0.1)
    assert machine.next_event() is None
    machine.handle_timeout(REQUEST_TIMEOUT)
    machine.handle_timeout(REQUEST_TIMEOUT + 9)
    assert (machine.next_event(), machine.next_event()) == (TimedOut(), None)


def test_a_half_closed_request_is_still_answered() -> None:
    machine = HopListener(0.0)
    machine.receive_data(encode_frame(encode_hop_connect(ALICE)), 0.0)
    machine.receive_data(b"", 0.0)
    assert machine.next_event() == CircuitRequested(ALICE)
    machine.send_circuit(LIMITS)
    machine.receive_data(b"", 0.0)
    assert (machine.next_event(), machine.state) == (None, listener.State.CIRCUIT)


@pytest.mark.parametrize("kind", LISTENERS)
def test_there_is_nothing_to_answer_before_a_request(kind: type[Listener]) -> None:
    machine = kind(0.0)
    with pytest.raises(LocalProtocolError):
        machine.send_refusal(Status.NO_RESERVATION)
    assert machine.data_to_send() == b""


def test_the_answer_must_fit_the_request() -> None:
    reserving, connecting = HopListener(0.0), HopListener(0.0)
    reserving.receive_data(encode_frame(encode_reserve()), 0.0)
    connecting.receive_data(encode_frame(encode_hop_connect(ALICE)), 0.0)
    with pytest.raises(LocalProtocolError):
        reserving.send_circuit(LIMITS)
    with pytest.raises(LocalProtocolError):
        connecting.send_reservation(GRANTED)
    assert reserving.data_to_send() == connecting.data_to_send() == b""


@given(st.lists(st.binary(max_size=40), max_size=6))
def test_no_bytes_make_it_raise(pieces: list[bytes]) -> None:
    for kind in LISTENERS:
        machine = kind(0.0)
        for piece in pieces:
            machine.receive_data(piece, 1.0)
