"""A router's wish, to another, that it close a connection: to and from bytes."""

import attrs

from agentmesh.errors import RemoteProtocolError
from agentmesh.protocols.pool.fields import encode_object, parse_object
from agentmesh.protocols.pool.values import MAX_EPOCH, Closing, ConnEpoch
from agentmesh.types import ProtocolId

CLOSE_ID = ProtocolId("/mesh/pool/close/1.0.0")

MAX_CLOSE_BYTES = 1024


@attrs.frozen
class CloseRequest:
    """Which life of which connection an operator wants closed."""

    agent_id: str
    connection_id: str
    connection_epoch: ConnEpoch


def encode_close(request: CloseRequest) -> bytes:
    fields = {
        "agent_id": request.agent_id,
        "connection_id": request.connection_id,
        "connection_epoch": request.connection_epoch,
        "connection_epoch_decimal": str(request.connection_epoch),
    }
    return encode_object(fields, MAX_CLOSE_BYTES)


def decode_close(data: bytes) -> CloseRequest:
    """Raises RemoteProtocolError, or LimitExceededError."""
    fields = parse_object(data, MAX_CLOSE_BYTES)
    if not (epoch := fields.exact("connection_epoch", MAX_EPOCH)):
        raise RemoteProtocolError("connection_epoch is missing")
    return CloseRequest(fields.required("agent_id"), fields.required("connection_id"), ConnEpoch(epoch))


def encode_closing(closing: Closing) -> bytes:
    return encode_object({"status": closing}, MAX_CLOSE_BYTES)


def decode_closing(data: bytes) -> Closing:
    """Raises RemoteProtocolError, or LimitExceededError."""
    status = parse_object(data, MAX_CLOSE_BYTES).text("status", 32)
    if status not in list(Closing):
        raise RemoteProtocolError("status is none that is known")
    return Closing(status)
