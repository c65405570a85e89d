"""The table of one stream's life has no hole and says what it should."""

import itertools

from agentmesh.runtime.yamux.states import BROKEN, OVER, READABLE, SENDABLE, TRANSITIONS, Input, State


def test_every_cell_is_decided() -> None:
    assert set(TRANSITIONS) == set(itertools.product(State, Input))


def test_reset_is_final() -> None:
    assert {TRANSITIONS[State.RESET, got] for got in Input if got is not Input.SEND_FIN} == {State.RESET}
    for got in (Input.SEND_RST, Input.RECV_RST):
        assert {TRANSITIONS[state, got] for state in State} == BROKEN


def test_a_cut_is_a_reset_behind_the_peers_own_end() -> None:
    cut = {state for state in State if TRANSITIONS[state, Input.RECV_RST] is State.CUT}
    assert cut == {State.REMOTE_DONE, State.DONE, State.CUT}
    assert {TRANSITIONS[State.CUT, got] for got in Input if got is not Input.SEND_FIN} == {State.CUT}


def test_our_end_is_sent_once() -> None:
    assert {state for state in State if TRANSITIONS[state, Input.SEND_FIN] is not None} == SENDABLE


def test_nothing_that_a_peer_sends_is_our_callers_mistake() -> None:
    received = (Input.RECV_DATA, Input.RECV_FIN, Input.RECV_RST)
    assert all(TRANSITIONS[state, got] is not None for state in State for got in received)


def test_a_stream_that_is_over_is_neither_sendable_nor_readable() -> None:
    assert not OVER & (SENDABLE | READABLE)
