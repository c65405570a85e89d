"""SOCKS 5 (RFC 1928) with or without a user and a password (RFC 1929), the server's side, sans-IO. CONNECT only."""

import enum
import ipaddress
from collections.abc import Callable

from agentmesh.errors import AddressError, LocalProtocolError
from agentmesh.forward.credentials import Credentials
from agentmesh.forward.front import Front, RequestRefused, TargetRequested
from agentmesh.node import TunnelTarget
from agentmesh.protocols.pool import Code, OpenResult

VERSION = 5
PASSWORD_VERSION = 1  # of the exchange of RFC 1929
CONNECT = 1


class Method(enum.IntEnum):
    NO_AUTHENTICATION = 0
    PASSWORD = 2
    NONE = 0xFF


UNWILLING = {Method.PASSWORD: "offers no password", Method.NO_AUTHENTICATION: "insists on authentication"}


class AddressType(enum.IntEnum):
    IPV4 = 1
    DOMAIN = 3
    IPV6 = 4


ADDRESS_BYTES: dict[int, int] = {AddressType.IPV4: 4, AddressType.IPV6: 16}


class Reply(enum.IntEnum):
    SUCCEEDED = 0
    GENERAL_FAILURE = 1
    NOT_ALLOWED = 2
    NETWORK_UNREACHABLE = 3
    HOST_UNREACHABLE = 4
    CONNECTION_REFUSED = 5
    TTL_EXPIRED = 6
    COMMAND_NOT_SUPPORTED = 7
    ADDRESS_TYPE_NOT_SUPPORTED = 8


REPLIES: dict[Code, Reply] = {
    Code.OK: Reply.SUCCEEDED,
    Code.FORBIDDEN: Reply.NOT_ALLOWED,
    Code.AGENT_OFFLINE: Reply.GENERAL_FAILURE,
    Code.QUEUE_FULL: Reply.GENERAL_FAILURE,
    Code.TIMEOUT: Reply.TTL_EXPIRED,  # what there is for it
    Code.NETWORK_UNREACHABLE: Reply.NETWORK_UNREACHABLE,
    Code.HOST_UNREACHABLE: Reply.HOST_UNREACHABLE,
    Code.CONNECTION_REFUSED: Reply.CONNECTION_REFUSED,
    Code.UNSUPPORTED_CAPABILITY: Reply.GENERAL_FAILURE,
    Code.INTERNAL_ERROR: Reply.GENERAL_FAILURE,
}


class State(enum.Enum):
    GREETING = "awaiting the methods"
    PASSWORD = "awaiting user and password"
    REQUEST = "awaiting the request"
    OPENING = "request received, not answered"
    OPEN = "accepted"
    CLOSED = "refused"


class Input(enum.Enum):
    METHOD = "a method that is taken"
    ASKED = "a method that asks for a password"
    NO_METHOD = "no method that is taken"
    RIGHT = "the password"
    WRONG = "another password"
    CONNECT = "a request that is served"
    OTHER = "a request that is not"
    GARBAGE = "not SOCKS 5"
    EOF = "the client's end"
    ACCEPT = "send_accepted"
    REFUSE = "send_refused"


# None: what cannot be, since a message is read as the state says; or our own caller's fault.
# fmt: off
ROWS: dict[State, tuple[State | None, ...]] = {
    #                METHOD         ASKED           NO_METHOD     RIGHT          WRONG
    #                CONNECT        OTHER           GARBAGE       EOF            ACCEPT      REFUSE
    State.GREETING: (State.REQUEST, State.PASSWORD, State.CLOSED, None,          None,
                     None,          None,           State.CLOSED, State.CLOSED,  None,       None),
    State.PASSWORD: (None,          None,           None,         State.REQUEST, State.CLOSED,
                     None,          None,           State.CLOSED, State.CLOSED,  None,       None),
    State.REQUEST:  (None,          None,           None,         None,          None,
                     State.OPENING, State.CLOSED,   State.CLOSED, State.CLOSED,  None,       None),
    State.OPENING:  (None,          None,           None,         None,          None,
                     None,          None,           None,         State.OPENING, State.OPEN, State.CLOSED),
    State.OPEN:     (None,          None,           None,         None,          None,
                     None,          None,           None,         State.OPEN,    None,       None),
    State.CLOSED:   (None,          None,           None,         None,          None,
                     None,          None,           None,         State.CLOSED,  None,       None),
}
# fmt: on
TRANSITIONS = {(state, got): to for state, row in ROWS.items() for got, to in zip(Input, row, strict=True)}


class SocksServer(Front):
    """One connection of a SOCKS client.

    Args:
        credentials: that it has to show; None to take whoever comes.
    Attributes:
        state: where it stands.
    """

    def __init__(self, credentials: Credentials | None = None) -> None:
        super().__init__()
        self.state = State.GREETING
        self._credentials = credentials
        self._in = bytearray()
        self._readers: dict[State, Callable[[], bool]] = {
            State.GREETING: self._read_greeting,
            State.PASSWORD: self._read_password,
            State.REQUEST: self._read_request,
        }

    def receive_data(self, data: bytes) -> None:
        if not data:
            if self.state in self._readers:
                self._refuse(Input.EOF, "the client hung up")
            return
        if self.state is State.CLOSED:
            return
        self._in += data
        while (read := self._readers.get(self.state)) is not None and read():
            pass

    @property
    def received(self) -> bytes:
        return bytes(self._in) if self.state is State.OPEN else b""

    def send_accepted(self) -> None:
        self._step(Input.ACCEPT)
        self._reply(Reply.SUCCEEDED)

    def send_refused(self, result: OpenResult) -> None:
        self._step(Input.REFUSE)
        self._reply(REPLIES[result.code])

    # ── messages: each reader says whether a whole one was there ──

    def _read_greeting(self) -> bool:
        if self._in[:1] and self._in[0] != VERSION:
            return self._refuse(Input.GARBAGE, "not SOCKS 5")
        if len(self._in) < 2 or len(self._in) < 2 + self._in[1]:
            return False
        methods = self._take(2 + self._in[1])[2:]
        wanted = Method.NO_AUTHENTICATION if self._credentials is None else Method.PASSWORD
        if wanted not in methods:
            self._out += bytes((VERSION, Method.NONE))
            return self._refuse(Input.NO_METHOD, f"the client {UNWILLING[wanted]}")
        self._out += bytes((VERSION, wanted))
        return self._step(Input.METHOD if self._credentials is None else Input.ASKED)

    def _read_password(self) -> bool:
        if self._in[:1] and self._in[0] != PASSWORD_VERSION:
            return self._refuse(Input.GARBAGE, "not the exchange of RFC 1929")
        user_end = 2 + self._in[1] if len(self._in) > 1 else 2
        if len(self._in) <= user_end or len(self._in) <= user_end + self._in[user_end]:
            return False
        message = self._take(user_end + 1 + self._in[user_end])
        if self._credentials is None or not self._credentials.accepts(message[2:user_end], message[user_end + 1 :]):
            self._out += bytes((PASSWORD_VERSION, 1))
            return self._refuse(Input.WRONG, "the wrong password")
        self._out += bytes((PASSWORD_VERSION, 0))
        return self._step(Input.RIGHT)

    def _read_request(self) -> bool:
        if self._in[:1] and self._in[0] != VERSION:
            return self._refuse(Input.GARBAGE, "not SOCKS 5")
        if len(self._in) < 5:
            return False
        _, command, _, kind, first = self._in[:5]
        if command != CONNECT:
            return self._deny(Reply.COMMAND_NOT_SUPPORTED, f"command {command} is not served")
        size = {**ADDRESS_BYTES, AddressType.DOMAIN.value: 1 + first}.get(kind)
        if size is None:
            return self._deny(Reply.ADDRESS_TYPE_NOT_SUPPORTED, f"there is no address type {kind}")
        if len(self._in) < 4 + size + 2:
            return False
        message = self._take(4 + size + 2)
        try:
            target = _target(kind, message[4 : 4 + size], int.from_bytes(message[-2:]))
        except AddressError as exc:
            return self._deny(Reply.HOST_UNREACHABLE, str(exc))
        self._events.append(TargetRequested(target))
        return self._step(Input.CONNECT)

    def _take(self, size: int) -> bytes:
        taken = bytes(self._in[:size])
        del self._in[:size]
        return taken

    # ── steps ──

    def _step(self, got: Input) -> bool:
        after = TRANSITIONS[self.state, got]
        if after is None:
            raise LocalProtocolError(f"{got.value} while {self.state.value}")
        self.state = after
        return True

    def _refuse(self, got: Input, reason: str) -> bool:
        self._in.clear()
        self._events.append(RequestRefused(reason))
        return self._step(got)

    def _deny(self, reply: Reply, reason: str) -> bool:
        self._reply(reply)
        return self._refuse(Input.OTHER, reason)

    def _reply(self, reply: Reply) -> None:
        """Where the connection of the agent comes from is not said: 0.0.0.0:0."""
        self._out += bytes((VERSION, reply, 0, AddressType.IPV4)) + bytes(6)


def _target(kind: int, address: bytes, port: int) -> TunnelTarget:
    if kind == AddressType.DOMAIN:
        try:
            return TunnelTarget.of(address[1:].decode(), port)
        except UnicodeDecodeError as exc:
            raise AddressError("the name is no text") from exc
    return TunnelTarget.of(str(ipaddress.ip_address(address)), port)
