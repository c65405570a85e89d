"""The side that asks, of hop and of stop: what it makes of whatever a peer answers."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmesh.errors import LocalProtocolError, RemoteProtocolError
from agentmesh.protocols.relay import dialer
from agentmesh.protocols.relay.dialer import ANSWER_TIMEOUT, Dialer
from agentmesh.protocols.relay.events import (
    CircuitLimits,
    CircuitOpened,
    Refused,
    ReservationGranted,
    Status,
    TimedOut,
)
from agentmesh.protocols.relay.hop import HopDialer
from agentmesh.protocols.relay.stop import StopDialer
from agentmesh.protocols.relay.wire import (
    encode_hop_status,
    encode_reserve,
    encode_stop_connect,
    encode_stop_status,
)
from agentmesh.types import Address, PeerId
from agentmesh.wire.framing import encode_frame

ALICE = PeerId.from_ed25519(b"a" * 32)
LIMITS = CircuitLimits(60.0, 4096)
GRANTED = ReservationGranted(5000.0, (Address.parse("/memory/1"),), LIMITS, b"voucher")
DIALERS: list[type[HopDialer | StopDialer]] = [HopDialer, StopDialer]


def ask(machine: HopDialer | StopDialer) -> None:
    if isinstance(machine, HopDialer):
        machine.send_connect(ALICE, 100.0)
    else:
        machine.send_offer(ALICE, LIMITS, 100.0)


def asking(kind: type[HopDialer | StopDialer]) -> HopDialer | StopDialer:
    machine = kind()
    ask(machine)
    return machine


def status_for(machine: Dialer, status: Status) -> bytes:
    return encode_frame(
        encode_hop_status(status, CircuitLimits()) if isinstance(machine, HopDialer) else encode_stop_status(status)
    )


@pytest.mark.parametrize("kind", DIALERS)
@pytest.mark.parametrize("data", [b"\x00", b"\x02\x08\x09", b"\x80\x80\x01", b""])
def test_what_is_no_answer_ends_the_machine(kind: type[HopDialer | StopDialer], data: bytes) -> None:
    machine = asking(kind)
    with pytest.raises(RemoteProtocolError):
        machine.receive_data(data, 101.0)
    assert (machine.state, machine.deadline) == (dialer.State.FINISHED, math.inf)
    machine.receive_data(b"", 102.0)
    with pytest.raises(RemoteProtocolError):
        machine.receive_data(b"x", 102.0)


@pytest.mark.parametrize(
    ("kind", "request_"),
    [(HopDialer, encode_reserve()), (StopDialer, encode_stop_connect(ALICE, LIMITS))],
)
def test_a_request_is_no_answer(kind: type[HopDialer | StopDialer], request_: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        asking(kind).receive_data(encode_frame(request_), 101.0)


@pytest.mark.parametrize("kind", DIALERS)
def test_bytes_before_the_question_are_the_peers_fault(kind: type[HopDialer | StopDialer]) -> None:
    for data in (b"x", b""):
        with pytest.raises(RemoteProtocolError):
            kind().receive_data(data, 0.0)


@pytest.mark.parametrize("kind", DIALERS)
def test_a_machine_asks_once(kind: type[HopDialer | StopDialer]) -> None:
    machine = asking(kind)
    machine.data_to_send()
    with pytest.raises(LocalProtocolError):
        ask(machine)
    assert machine.data_to_send() == b""
    machine.receive_data(status_for(machine, Status.OK), 101.0)
    assert machine.next_event() == CircuitOpened(CircuitLimits())


def test_a_reservation_without_the_reservation_is_no_answer() -> None:
    machine = HopDialer()
    machine.send_reserve(0.0)
    with pytest.raises(RemoteProtocolError):
        machine.receive_data(status_for(machine, Status.OK), 1.0)


@pytest.mark.parametrize("kind", DIALERS)
def test_no_answer_in_time_is_said_once(kind: type[HopDialer | StopDialer]) -> None:
    machine = asking(kind)
    machine.handle_timeout(100.0 + ANSWER_TIMEOUT - 0.1)
    assert machine.next_event() is None
    machine.handle_timeout(100.0 + ANSWER_TIMEOUT)
    machine.handle_timeout(1000.0)
    assert (machine.next_event(), machine.next_event()) == (TimedOut(), None)


@pytest.mark.parametrize("kind", DIALERS)
def test_a_circuits_bytes_and_end_are_not_the_machines(kind: type[HopDialer | StopDialer]) -> None:
    machine = asking(kind)
    machine.receive_data(status_for(machine, Status.OK) + b"early", 101.0)
    machine.receive_data(b" bytes", 101.0)
    machine.receive_data(b"", 101.0)
    assert machine.next_event() == CircuitOpened(CircuitLimits())
    assert (machine.trailing(), machine.trailing()) == (b"early bytes", b"")


@pytest.mark.parametrize("kind", DIALERS)
def test_an_answer_nobody_knows_is_a_refusal(kind: type[HopDialer | StopDialer]) -> None:
    machine = asking(kind)
    unknown = b"\x08\x02\x28\xab\x02" if kind is HopDialer else b"\x08\x01\x20\xab\x02"
    machine.receive_data(encode_frame(unknown), 101.0)
    assert machine.next_event() == Refused(299)


@given(st.lists(st.binary(max_size=40), max_size=6))
def test_no_bytes_do_more_than_end_a_machine(pieces: list[bytes]) -> None:
    for kind in DIALERS:
        machine = asking(kind)
        try:
            for piece in pieces:
                machine.receive_data(piece, 101.0)
        except RemoteProtocolError:
            assert machine.state is dialer.State.FINISHED
