"""The life of one stream, as a table.

A stream has two directions. Reading the rows: ours may be open or done, the peer's may be open or done, and an
application that closed the stream no longer reads (ABANDONED), so that the peer's bytes have nowhere to go. When some
come all the same the stream is SHEDDING: what we queued still goes out, then a reset tells the peer to stop. So a reset
may follow a proper end. The stream is CUT then: what came can be read, to its end, and only sending fails. Bytes that a
peer sends behind its own end (py-libp2p does) are thrown away, and change nothing.
"""

import enum


class State(enum.Enum):
    __hash__ = object.__hash__  # members are compared by identity; Enum's own hash is a Python function, in every frame

    OPEN = "open"
    LOCAL_DONE = "local done"
    REMOTE_DONE = "remote done"
    ABANDONED = "abandoned"
    SHEDDING = "shedding"
    DONE = "done"
    CUT = "cut"
    RESET = "reset"


class Input(enum.Enum):
    __hash__ = object.__hash__

    SEND_FIN = "send fin"
    CLOSE = "close"
    SEND_RST = "send rst"
    RECV_DATA = "recv data"
    RECV_FIN = "recv fin"
    RECV_RST = "recv rst"


# None: our own caller's mistake.
ROWS: dict[State, tuple[State | None, ...]] = {
    #                  SEND_FIN          CLOSE            SEND_RST     RECV_DATA         RECV_FIN          RECV_RST
    State.OPEN: (State.LOCAL_DONE, State.ABANDONED, State.RESET, State.OPEN, State.REMOTE_DONE, State.RESET),
    State.LOCAL_DONE: (None, State.ABANDONED, State.RESET, State.LOCAL_DONE, State.DONE, State.RESET),
    State.REMOTE_DONE: (State.DONE, State.DONE, State.RESET, State.REMOTE_DONE, State.REMOTE_DONE, State.CUT),
    State.ABANDONED: (None, State.ABANDONED, State.RESET, State.SHEDDING, State.DONE, State.RESET),
    State.SHEDDING: (None, State.SHEDDING, State.RESET, State.SHEDDING, State.DONE, State.RESET),
    State.DONE: (None, State.DONE, State.RESET, State.DONE, State.DONE, State.CUT),
    State.CUT: (None, State.CUT, State.CUT, State.CUT, State.CUT, State.CUT),
    State.RESET: (None, State.RESET, State.RESET, State.RESET, State.RESET, State.RESET),
}
TRANSITIONS = {(state, got): to for state, row in ROWS.items() for got, to in zip(Input, row, strict=True)}

READABLE = frozenset({State.OPEN, State.LOCAL_DONE})  # the peer may still send
SENDABLE = frozenset({State.OPEN, State.REMOTE_DONE})
BROKEN = frozenset({State.CUT, State.RESET})  # not by our own end
OVER = frozenset({State.DONE, State.CUT, State.RESET})
