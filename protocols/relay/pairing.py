"""After an offer was taken, sans-IO: on each of two streams, the relay and its peer agree on what carries the circuit.

Silence and a byte on the connection mean that the connection does, and the stream stays for how the circuit ends. Who
cannot come, and the relay when it has decided so, says that the streams carry it. It is said once each way; then, on
each side, the circuit's bytes follow.
"""

import enum
import math

import attrs

from agentmesh.errors import LocalProtocolError, RemoteProtocolError
from agentmesh.protocols.relay.events import TimedOut
from agentmesh.protocols.relay.wire import MAX_MESSAGE_BYTES, decode_carried_by_streams, encode_carried_by_streams
from agentmesh.wire.framing import FrameReader, encode_frame


@attrs.frozen
class StreamsChosen:
    """The other side says that the streams carry the circuit. Answer with `send_streams`, unless that was said."""

    missed: bool  # the relay's word: it was our connection that did not come


class State(enum.Enum):
    OPEN = "open"
    SAID = "said"  # by us
    HEARD = "heard"  # from the other side
    STREAMED = "streamed"
    SPLICED = "spliced"
    FINISHED = "finished"


class Input(enum.Enum):
    SAY = "send_streams"
    SPLICE = "splice"
    STREAMS = "the word for streams"
    GARBAGE = "what is no such word"
    EOF = "end of stream"
    TIMEOUT = "timeout"


COMMANDS = frozenset({Input.SAY, Input.SPLICE})

# None: of a command, our caller's mistake; of the others, the peer's. Behind the word come the circuit's bytes, unread.
_OPEN, _SAID, _HEAR, _STRE, _SPLI, _DONE = State
# fmt: off
ROWS: dict[State, tuple[State | None, ...]] = {
    #       SAY     SPLICE  STREAMS GARBAGE EOF    TIMEOUT
    _OPEN: (_SAID,  _SPLI,  _HEAR,  None,   None,  _DONE),
    _SAID: (None,   None,   _STRE,  None,   None,  _DONE),
    _HEAR: (_STRE,  None,   None,   None,   _HEAR, _HEAR),
    _STRE: (None,   None,   None,   None,   _STRE, _STRE),
    _SPLI: (None,   None,   None,   None,   _SPLI, _SPLI),
    _DONE: (None,   None,   None,   None,   None,  _DONE),
}
# fmt: on
TRANSITIONS = {(state, got): to for state, row in ROWS.items() for got, to in zip(Input, row, strict=True)}


class Pairing:
    """One side of one stream.

    Args:
        early: what had come behind the message before.
        deadline: until when the other side has to say it, if it will.
    Raises:
        RemoteProtocolError: as `receive_data`.
    """

    def __init__(self, early: bytes, deadline: float) -> None:
        self.state = State.OPEN
        self.deadline = deadline
        self._reader = FrameReader(MAX_MESSAGE_BYTES)
        self._out = b""
        self._event: StreamsChosen | TimedOut | None = None
        if early:
            self.receive_data(early, -math.inf)

    def receive_data(self, data: bytes, now: float) -> None:
        """Take bytes; b"" when the peer has ended its side.

        Raises:
            RemoteProtocolError: they say nothing that can be said here. The machine is finished.
        """
        if not data:
            self._step(Input.EOF)
            return
        if self.state in (State.SPLICED, State.FINISHED):
            self._step(Input.GARBAGE)
        self._reader.receive_data(data)
        if self.state in (State.OPEN, State.SAID):
            self._read()

    def handle_timeout(self, now: float) -> None:
        if now >= self.deadline:
            self._event = TimedOut()
            self._step(Input.TIMEOUT)

    def send_streams(self, *, missed: bool = False) -> None:
        """Say that the streams carry the circuit.

        Args:
            missed: of the relay: it was the peer's connection that did not come.
        """
        self._step(Input.SAY)
        self._out += encode_frame(encode_carried_by_streams(missed))

    def splice(self) -> None:
        """The connection carries it: nothing more is said here. Raises RemoteProtocolError when something was."""
        self._step(Input.SPLICE)
        if self.trailing():
            self._step(Input.GARBAGE)

    def data_to_send(self) -> bytes:
        out, self._out = self._out, b""
        return out

    def next_event(self) -> StreamsChosen | TimedOut | None:
        event, self._event = self._event, None
        return event

    def trailing(self) -> bytes:
        """What came behind the word; given once."""
        return self._reader.trailing()

    def _read(self) -> None:
        try:
            frame = self._reader.next_frame()
            missed = None if frame is None else decode_carried_by_streams(frame)
        except RemoteProtocolError as exc:
            self._step(Input.GARBAGE, exc)
        else:
            if missed is not None:
                self._step(Input.STREAMS)
                self._event = StreamsChosen(missed)

    def _step(self, got: Input, cause: RemoteProtocolError | None = None) -> None:
        was, after = self.state, TRANSITIONS[self.state, got]
        if after is None and got in COMMANDS:
            raise LocalProtocolError(f"{got.value} while {was.value}")
        self.state = after or State.FINISHED
        if self.state not in (State.OPEN, State.SAID):
            self.deadline = math.inf
        if after is None:
            raise cause or RemoteProtocolError(f"{got.value} while {was.value}")
