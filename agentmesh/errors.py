"""Every error of the mesh says whose fault it is and whether to retry.

    MeshError
    ├── ProtocolError(code)                 somebody broke a protocol; `code` is what goes on the wire
    │   ├── LocalProtocolError              our own caller misused a machine: a bug, nothing was sent
    │   └── RemoteProtocolError             the peer did; that machine is finished
    │       ├── LimitExceededError          a bound was crossed
    │       ├── CertificateError            no key extension, or one that does not verify
    │       └── PeerMismatchError           the peer proved another identity than the one dialled
    ├── StreamResetError(code)              the stream was cut (also a trio.BrokenResourceError)
    │   └── RejectedError(code, retry_after)  the peer said no, politely; elsewhere or later may work
    ├── SessionClosedError                  the session under the stream ended (also a trio.BrokenResourceError)
    ├── IdentityError                       not a private key of ours, or a key file that others can read
    ├── CredentialError(reason)             a credential that does not admit its bearer
    ├── AddressError                        not an address that any transport here speaks (also a ValueError)
    ├── ServiceError                        an application that this process serves did not start or stop as it should
    ├── MissingExtraError                   a part of agentmesh that is not installed (also a ValueError)
    └── DialError                           no connection could be made; the attempts are its cause
        ├── NotConnectedError               nor could any: this node is attached to no router
        └── ProxyError(status, retryable)   the outbound proxy does not lead to the target

Trio's own errors (ClosedResourceError, BrokenResourceError, BusyResourceError, TooSlowError) keep their meaning.
"""

import enum

import trio


class ErrorCode(enum.IntEnum):
    """Why a stream was reset, as libp2p's error code registry numbers it (specification "error-codes")."""

    NO_ERROR = 0x0
    PROTOCOL_NEGOTIATION_FAILED = 0x1001
    RESOURCE_LIMIT_EXCEEDED = 0x1002
    RATE_LIMITED = 0x1003
    PROTOCOL_VIOLATION = 0x1004
    SUPPLANTED = 0x1005
    GARBAGE_COLLECTED = 0x1006
    SHUTDOWN = 0x1007
    GATED = 0x1008
    CODE_OUT_OF_RANGE = 0x1009


REFUSALS = frozenset(
    {
        ErrorCode.PROTOCOL_NEGOTIATION_FAILED,
        ErrorCode.RESOURCE_LIMIT_EXCEEDED,
        ErrorCode.RATE_LIMITED,
        ErrorCode.SHUTDOWN,
        ErrorCode.GATED,
    }
)


class MeshError(Exception):
    """The root of every error that the mesh raises itself."""


class ProtocolError(MeshError):
    """Somebody broke a protocol.

    Attributes:
        code: the number sent to the peer when its stream is reset for this.
    """

    code: int = ErrorCode.PROTOCOL_VIOLATION


class LocalProtocolError(ProtocolError):
    """Our own caller asked a machine for what its state forbids. Nothing was sent; retrying is no use."""


class RemoteProtocolError(ProtocolError):
    """The peer broke the protocol. The machine that raised this is finished; retry elsewhere, if at all."""


class LimitExceededError(RemoteProtocolError):
    """The peer crossed a named bound.

    Attributes:
        limit: the bound's name, as the setting or constant is called; "" where the text alone says it.
    """

    code = ErrorCode.RESOURCE_LIMIT_EXCEEDED

    def __init__(self, message: str, *, limit: str = "") -> None:
        super().__init__(message)
        self.limit = limit


class CertificateError(RemoteProtocolError):
    """The peer's TLS certificate does not prove a libp2p key."""


class PeerMismatchError(RemoteProtocolError):
    """The peer proved an identity other than the one that was dialled. Nothing of any protocol was sent to it."""


class StreamResetError(MeshError, trio.BrokenResourceError):
    """The stream was cut by the peer.

    Attributes:
        code: libp2p's error code as it came on the wire; any 32-bit number.
        finished: the peer had ended its own direction before, so that all it sent can still be read.
    """

    def __init__(self, message: str, code: int = ErrorCode.NO_ERROR, *, finished: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.finished = finished


class RejectedError(StreamResetError):
    """The peer refused, politely. The same request may succeed later or elsewhere.

    Attributes:
        code: an ErrorCode in REFUSALS, or a protocol's own status number.
        retry_after: seconds the peer asks us to wait, or None when it did not say.
    """

    def __init__(
        self, message: str, code: int = ErrorCode.RESOURCE_LIMIT_EXCEEDED, retry_after: float | None = None
    ) -> None:
        super().__init__(message, code)
        self.retry_after = retry_after


class SessionClosedError(MeshError, trio.BrokenResourceError):
    """The session ended: its link broke, the peer stopped answering pings, or one side closed it. Dial again."""


class IdentityError(MeshError):
    """Not a private key that we can use, or a key file that others than its owner can read. The text names the file."""


class CredentialError(MeshError):
    """A credential does not admit its bearer.

    Attributes:
        reason: "malformed", "untrusted" (no trusted key signed it), "expired", "wrong_peer", "wrong_role" or "blocks";
            of a good one, "banned", "denied" (no role of its bearer grants this) or "undecided" (no policy known).
    """

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class AddressError(MeshError, ValueError):
    """Not an address, or not one that any transport here can dial or listen on."""


class DialError(MeshError):
    """No connection could be made. The cause is the one attempt's error, or an ExceptionGroup of them."""


class NotConnectedError(DialError):
    """This node is not connected to the mesh: it has no credential, or no router. It is worth trying again later."""


class ProxyError(DialError):
    """The outbound proxy does not lead to the target: it refused, failed, or is not there.

    Attributes:
        status: the HTTP status of its refusal; None when there was no answer.
        retryable: whether the same dial may work later. Not when the proxy wants other credentials (407), forbids the
            target (403), or is no proxy.
    """

    def __init__(self, message: str, *, status: int | None = None, retryable: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.retryable = retryable


class ServiceError(MeshError):
    """An application that this process serves did not start, or did not stop, as ASGI's lifespan asks."""


class MissingExtraError(MeshError, ValueError):
    """What was asked for needs a part of agentmesh that is not installed. The text says how it is installed."""
