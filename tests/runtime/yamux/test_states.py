"""The table of one stream's life has no hole and says what it should."""

import itertools

from agentmesh.runtime.yamux.states import OVER, READABLE, SENDABLE, TRANSITIONS, Input, State


def test_every_cell_is_decided() -> None:
    assert set(TRANSITIONS) == set(itertools.product(State, Input))


def test_reset_is_final() -> None:
    assert {TRANSITIONS[State.RESET, got] for got in Input if got is not Input.SEND_FIN} == {State.RESET}
    assert all(TRANSITIONS[state, Input.SEND_RST] is State.RESET for state in State)
    assert all(TRANSITIONS[state, Input.RECV_RST] is State.RESET for state in State)


def test_our_end_is_sent_once_and_the_peer_sends_nothing_after_its_own() -> None:
    assert {state for state in State if TRANSITIONS[state, Input.SEND_FIN] is not None} == SENDABLE
    assert {state for state in State if TRANSITIONS[state, Input.RECV_DATA] is None} == {State.REMOTE_DONE, State.DONE}


def test_a_stream_that_is_over_is_neither_sendable_nor_readable() -> None:
    assert not OVER & (SENDABLE | READABLE)
