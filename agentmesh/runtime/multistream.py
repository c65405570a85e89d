"""multistream-select 1.0, sans-IO: which protocol a stream speaks (libp2p specification "connections", negotiation).

The proposer sends its header and first proposal at once and may send the protocol's own bytes right behind them; the
responder answers `na` until it knows one. Both sides keep what follows the negotiation: `trailing`.
"""

import abc
import enum
from collections.abc import Callable, Sequence
from functools import lru_cache

from agentmesh.errors import ErrorCode, LimitExceededError, RejectedError, RemoteProtocolError
from agentmesh.types import ProtocolId
from agentmesh.wire.framing import ByteString, FrameReader, encode_frame

HEADER = "/multistream/1.0.0"
NOT_AVAILABLE = "na"
MAX_MESSAGE_BYTES = 1024
MAX_PROPOSALS = 64  # a proposer that names more is not negotiating


class State(enum.Enum):
    HEADER = "header"
    PROPOSAL = "proposal"
    AGREED = "agreed"
    FAILED = "failed"


@lru_cache(maxsize=1024)  # of each protocol's name, over and over
def encode_message(text: str) -> bytes:
    return encode_frame(text.encode() + b"\n")


GREETING = encode_message(HEADER)


@lru_cache(maxsize=1024)
def opening_of(protocol: str) -> bytes:
    """What a stream of one protocol is opened with; a responder that speaks it answers with the same bytes."""
    return GREETING + encode_message(protocol)


class _Negotiation(abc.ABC):
    """What the two sides share: lines in, lines out, and the bytes that follow."""

    def __init__(self) -> None:
        self.state = State.HEADER
        self.agreed: ProtocolId | None = None
        self._reader = FrameReader(MAX_MESSAGE_BYTES)
        self._greeting = bytearray()
        self._out = bytearray()

    def receive_data(self, data: ByteString) -> ProtocolId | None:
        """Feed bytes from the peer.

        Returns:
            The protocol agreed on, once it is. Bytes behind the negotiation are then in `trailing`.
        Raises:
            RemoteProtocolError: not multistream, or one of its bounds crossed.
            RejectedError: the peer speaks none of our protocols.
        """
        if self.state is State.HEADER:
            self._check_greeting(data)
        self._reader.receive_data(data)
        while self.state is not State.AGREED and (frame := self._reader.next_frame()) is not None:
            try:
                self._take(_line_of(frame))
            except (RemoteProtocolError, RejectedError):
                self.state = State.FAILED
                raise
        return self.agreed

    def data_to_send(self) -> bytes:
        out, self._out = bytes(self._out), bytearray()
        return out

    def trailing(self) -> bytes:
        """The bytes received behind the negotiation; gives them once."""
        return self._reader.trailing()

    def _check_greeting(self, data: ByteString) -> None:
        """Tell a peer of another protocol by its first wrong byte: it may be waiting for us."""
        self._greeting += data[: len(GREETING) - len(self._greeting)]
        if not GREETING.startswith(self._greeting):
            self.state = State.FAILED
            raise RemoteProtocolError(f"expected {HEADER}, the peer sent {bytes(self._greeting)!r}")

    def _take(self, line: str) -> None:
        if self.state is State.HEADER:
            self.state = State.PROPOSAL
        else:
            self._take_line(line)

    @abc.abstractmethod
    def _take_line(self, line: str) -> None:
        """Act on a line behind the header; raises as `receive_data`."""

    def _agree(self, protocol: str) -> None:
        self.agreed = ProtocolId(protocol)
        self.state = State.AGREED


class Proposer(_Negotiation):
    """The side that opened the stream. Proposes in order until the peer echoes one.

    Args:
        protocols: at least one, the preferred first.
    """

    def __init__(self, protocols: Sequence[str]) -> None:
        super().__init__()
        self._left = list(protocols)
        self._out += encode_message(HEADER) + encode_message(self._left[0])

    def _take_line(self, line: str) -> None:
        if line == self._left[0]:
            self._agree(line)
        elif line == NOT_AVAILABLE:
            refused = self._left.pop(0)
            if not self._left:
                raise RejectedError(f"the peer does not speak {refused}", ErrorCode.PROTOCOL_NEGOTIATION_FAILED)
            self._out += encode_message(self._left[0])
        else:
            raise RemoteProtocolError(f"proposed {self._left[0]}, the peer answered {line[:80]!r}")


class Responder(_Negotiation):
    """The side that accepted the stream.

    Args:
        speaks: whether a protocol is known here.
    """

    def __init__(self, speaks: Callable[[str], bool]) -> None:
        super().__init__()
        self._speaks = speaks
        self._proposals = 0
        self._out += encode_message(HEADER)

    @property
    def unanswered(self) -> bool:
        """Whether the peer has named no protocol at all."""
        return self._proposals == 0

    def _take_line(self, line: str) -> None:
        self._proposals += 1
        if self._proposals > MAX_PROPOSALS:
            raise LimitExceededError(f"more than {MAX_PROPOSALS} protocols proposed on one stream")
        if self._speaks(line):
            self._agree(line)
        self._out += encode_message(line if self.state is State.AGREED else NOT_AVAILABLE)


def _line_of(frame: bytes) -> str:
    if not frame.endswith(b"\n"):
        raise RemoteProtocolError("a multistream message that does not end its line")
    try:
        return frame[:-1].decode()
    except UnicodeDecodeError as exc:
        raise RemoteProtocolError("a multistream message that is not UTF-8") from exc
