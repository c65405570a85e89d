"""An open and its result to and from bytes: JSON objects, each behind its length; raw bytes follow.

A client asks any router (DIAL_ID), which asks the router of the connection that it has chosen, if that is another one
(RELAY_ID), and that asks the agent (OPEN_ID). All three say it in the same way.
"""

from agentmesh.errors import RemoteProtocolError
from agentmesh.protocols.pool.fields import encode_object, parse_object
from agentmesh.protocols.pool.values import MAX_EPOCH, MAX_STREAM_ID, Code, ConnEpoch, Open, OpenResult, Stage
from agentmesh.types import ProtocolId

OPEN_ID = ProtocolId("/mesh/pool/open/1.0.0")
DIAL_ID = ProtocolId("/mesh/pool/dial/1.0.0")
RELAY_ID = ProtocolId("/mesh/pool/relay/1.0.0")

MAX_OPEN_BYTES = 32 * 1024
MAX_DIAL_BYTES = MAX_OPEN_BYTES - 1024  # of a client's, to which routers add numbers and names
MAX_RESULT_BYTES = 1024

MAX_HOST_CHARS = 253
MAX_NAME_CHARS = 128
MAX_VALUE_CHARS = 1024
MAX_METADATA = 32  # entries
MAX_MILLISECONDS = 30 * 86_400_000


def encode_open(request: Open) -> bytes:
    fields = {
        "agent_id": request.agent_id,
        "protocol": request.protocol,
        "target_host": request.target_host,
        "target_port": request.target_port,
        "stream_id": request.stream_id,
        "target_scheme": request.target_scheme,
        "host_header": request.host_header,
        "tls_server_name": request.tls_server_name,
        "trace_id": request.trace_id,
        "target_connection_id": request.target_connection_id,
        "target_connection_epoch": request.target_connection_epoch or None,
        "target_connection_epoch_decimal": str(request.target_connection_epoch or ""),
        "metadata": dict(request.metadata),
    }
    return encode_object(fields, MAX_OPEN_BYTES)


def decode_open(data: bytes, protocol: ProtocolId = OPEN_ID) -> Open:
    """The open that came by one of the three protocols.

    Raises:
        RemoteProtocolError, LimitExceededError: it is none, or lacks what that protocol needs: to an agent its number,
            to another router the connection.
    """
    fields = parse_object(data, MAX_DIAL_BYTES if protocol == DIAL_ID else MAX_OPEN_BYTES)
    host = fields.text("target_host", MAX_HOST_CHARS)
    if not host or not host.isprintable() or not host.isascii() or set(host) & set(" /"):
        raise RemoteProtocolError("target_host is no host")
    stream_id = fields.number("stream_id", MAX_STREAM_ID - 1)
    if protocol == OPEN_ID and not stream_id:
        raise RemoteProtocolError("stream_id is missing")
    connection_id = fields.identifier("target_connection_id")
    if protocol == RELAY_ID and not connection_id:
        raise RemoteProtocolError("target_connection_id is missing")
    return Open(
        agent_id=fields.required("agent_id"),
        protocol=fields.required("protocol"),
        target_host=host,
        target_port=fields.number("target_port", 65535),
        stream_id=stream_id,
        target_scheme=fields.identifier("target_scheme"),
        host_header=fields.text("host_header", MAX_VALUE_CHARS),
        tls_server_name=fields.text("tls_server_name", MAX_HOST_CHARS),
        trace_id=fields.identifier("trace_id"),
        target_connection_id=connection_id,
        target_connection_epoch=ConnEpoch(fields.exact("target_connection_epoch", MAX_EPOCH)),
        metadata=fields.mapping("metadata", MAX_METADATA, MAX_VALUE_CHARS),
    )


def encode_result(result: OpenResult) -> bytes:
    fields = {
        "accepted": result.accepted,
        "stage": result.stage,
        "code": result.code,
        "retryable": result.retryable,
        "retry_after_ms": result.retry_after_ms,
    }
    return encode_object(fields, MAX_RESULT_BYTES)


def decode_result(data: bytes) -> OpenResult:
    """A code or stage that is not known here is an internal error, of the protocol. Raises RemoteProtocolError."""
    fields = parse_object(data, MAX_RESULT_BYTES)
    stage, code = fields.text("stage", MAX_NAME_CHARS), fields.text("code", MAX_NAME_CHARS)
    if fields.flag("accepted", absent=False) != (code == Code.OK):
        raise RemoteProtocolError("an open is accepted when its code is ok, and only then")
    return OpenResult(
        stage=Stage(stage) if stage in list(Stage) else Stage.PROTOCOL,
        code=Code(code) if code in list(Code) else Code.INTERNAL_ERROR,
        retryable=fields.flag("retryable", absent=False),
        retry_after_ms=fields.number("retry_after_ms", MAX_MILLISECONDS),
    )
