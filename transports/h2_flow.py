"""One stream of an HTTP/2 connection: how far it has come, and what of it nobody has read yet."""

import enum

import attrs

OK = 200  # the status of a response that opens a stream


class Way(enum.Enum):
    """How one direction of a stream is."""

    OPEN = enum.auto()
    ENDED = enum.auto()  # with END_STREAM
    BROKEN = enum.auto()  # by a reset, or with the connection


@attrs.define(eq=False)
class Flow:
    """One stream of the connection."""

    id: int
    sending: Way = Way.OPEN
    receiving: Way = Way.OPEN
    read: bool = True  # False when our side has closed it, and drops what still comes
    status: int | None = None  # of the response, at the client
    greeting: int = 0  # bytes of it that have not come, at the client
    unread: bytearray = attrs.field(factory=bytearray)  # one buffer: a byte a frame must not cost an object a byte

    @property
    def over(self) -> bool:
        return self.sending is not Way.OPEN and self.receiving is not Way.OPEN

    @property
    def opened(self) -> bool:
        """Whether the server has taken the client's request."""
        return self.status == OK and not self.greeting

    @property
    def refused(self) -> bool:
        """Whether it never will."""
        return not self.opened and (self.status not in (None, OK) or self.receiving is not Way.OPEN)

    def cut(self) -> None:
        """Break what has not ended; what has ended stays so."""
        self.sending = Way.BROKEN if self.sending is Way.OPEN else self.sending
        self.receiving = Way.BROKEN if self.receiving is Way.OPEN else self.receiving
