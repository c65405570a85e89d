import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agentmesh.errors import RemoteProtocolError
from agentmesh.identity import Identity
from agentmesh.protocols.identify.events import PeerIdentified, PeerInfo, TimedOut
from agentmesh.protocols.identify.machine import IDENTIFY_TIMEOUT, TRANSITIONS, Identification, Input, State
from agentmesh.protocols.identify.wire import MAX_MESSAGE_BYTES, encode_info
from agentmesh.types import ProtocolId
from agentmesh.wire.framing import encode_frame, encode_varint

PEER, STRANGER = Identity.generate(), Identity.generate()


def info_of(identity: Identity, protocols: int = 1) -> PeerInfo:
    names = tuple(ProtocolId(f"/test/{n}") for n in range(protocols))
    return PeerInfo(identity.peer, identity.public_key_bytes, protocols=names, agent_version="test/1")


def test_every_cell_is_decided() -> None:
    assert set(TRANSITIONS) == set(itertools.product(State, Input))


class Identifications(RuleBasedStateMachine):
    """An honest peer, in the pieces that the wire makes of its message: it is identified once, and wholly."""

    def __init__(self) -> None:
        super().__init__()
        self.machine = Identification(PEER.peer, 0.0)
        self.info: PeerInfo | None = None
        self.wire = b""
        self.events: list[object] = []
        self.ended = False

    @precondition(lambda self: self.info is None)
    @rule(protocols=st.integers(0, 200), more=st.binary(max_size=10))
    def say(self, protocols: int, more: bytes) -> None:
        """Behind its message a newer peer may say more."""
        self.info = info_of(PEER, protocols)
        self.wire = encode_frame(encode_info(self.info)) + more

    @rule(size=st.integers(1, 2000))
    def deliver(self, size: int) -> None:
        data, self.wire = self.wire[:size], self.wire[size:]
        if data:
            self.machine.receive_data(data, 1.0)
            self.events += [event] if (event := self.machine.next_event()) else []

    @precondition(lambda self: self.info is not None and not self.wire)
    @rule()
    def end(self) -> None:
        self.machine.receive_data(b"", 2.0)
        self.machine.handle_timeout(1e9)

    @invariant()
    def identified_once_and_wholly(self) -> None:
        assert self.machine.data_to_send() == b""
        assert self.events in ([], [PeerIdentified(self.info)] if self.info else [])
        assert bool(self.events) == (self.machine.state is State.FINISHED)


TestIdentifications = Identifications.TestCase
TestIdentifications.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00",
        b"\x02\xff\xff",
        b"\x80\x00",
        encode_varint(MAX_MESSAGE_BYTES + 1),
        encode_frame(encode_info(info_of(STRANGER))),
    ],
    ids=["nothing", "empty", "short", "endless", "long", "stranger"],
)
def test_nothing_else_will_do(data: bytes) -> None:
    machine = Identification(PEER.peer, 0.0)
    with pytest.raises(RemoteProtocolError):
        machine.receive_data(data, 1.0)
    assert (machine.state, machine.deadline, machine.next_event()) == (State.FINISHED, math.inf, None)
    machine.receive_data(b"late", 2.0)


def test_a_message_is_due_in_time() -> None:
    machine = Identification(PEER.peer, 5.0)
    machine.handle_timeout(5.0 + IDENTIFY_TIMEOUT - 0.1)
    assert machine.next_event() is None
    machine.handle_timeout(5.0 + IDENTIFY_TIMEOUT)
    machine.handle_timeout(1e9)
    assert (machine.next_event(), machine.next_event()) == (TimedOut(), None)


@given(st.lists(st.binary(max_size=40), max_size=6))
def test_no_bytes_do_more_than_end_the_machine(pieces: list[bytes]) -> None:
    machine = Identification(PEER.peer, 0.0)
    try:
        for piece in pieces:
            machine.receive_data(piece, 1.0)
    except RemoteProtocolError:
        assert machine.state is State.FINISHED
