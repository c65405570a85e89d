"""Auth's two messages to and from bytes. Credentials are opaque here."""

import attrs

from agentmesh.errors import RemoteProtocolError
from agentmesh.types import ProtocolId
from agentmesh.wire.codec import decode
from agentmesh.wire.messages.mesh.v1 import AuthFrame, AuthResponse

AUTH_ID = ProtocolId("/mesh/auth/1.0.0")

MAX_FRAME_BYTES = 64 * 1024  # of either message
MAX_ERROR_CHARS = 256  # of the answerer's reason that are kept


@attrs.frozen
class Answer:
    """An AuthResponse: `token` on success, `error` else."""

    success: bool
    token: bytes = attrs.field(default=b"", repr=False)
    error: str = ""


def encode_frame_message(token: bytes) -> bytes:
    return bytes(AuthFrame(biscuit=token))


def decode_frame_message(data: bytes) -> bytes:
    """The opener's credential. Raises RemoteProtocolError when `data` is no AuthFrame, or one without a credential."""
    token = decode(AuthFrame, data).biscuit
    if not token:
        raise RemoteProtocolError("an AuthFrame without a credential")
    return token


def encode_answer(answer: Answer) -> bytes:
    return bytes(AuthResponse(success=answer.success, error=answer.error, biscuit=answer.token))


def decode_answer(data: bytes) -> Answer:
    """Raises RemoteProtocolError when `data` is no AuthResponse, or a success without a credential."""
    message = decode(AuthResponse, data)
    if message.success and not message.biscuit:
        raise RemoteProtocolError("an AuthResponse of success without a credential")
    error = "" if message.success else message.error[:MAX_ERROR_CHARS]
    return Answer(message.success, message.biscuit if message.success else b"", error)
