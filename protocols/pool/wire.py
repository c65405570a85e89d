"""The messages to and from bytes: JSON objects, each behind its length. A `type` says which one it is.

The hello of an agent and the ack of a router that know no `type` are taken without. What a newer peer adds is ignored,
also whole messages of a type that is not known here.
"""

import enum
from collections.abc import Callable, Mapping

from agentmesh.errors import RemoteProtocolError
from agentmesh.protocols.pool.fields import Fields, encode_object, parse_object
from agentmesh.protocols.pool.values import (
    MAX_EPOCH,
    MAX_STREAM_ID,
    Ack,
    ConnEpoch,
    Drain,
    DrainReason,
    Heartbeat,
    HeartbeatAck,
    Hello,
    Item,
    Message,
    Metadata,
    Phase,
    Problem,
    Scaling,
    Stats,
)
from agentmesh.types import ProtocolId

POOL_ID = ProtocolId("/mesh/pool/1.0.0")

MAX_MESSAGE_BYTES = 32 * 1024

MAX_ITEMS = 64
MAX_PROBLEMS = 64
MAX_CAPABILITIES = 64
MAX_NAME_CHARS = 128
MAX_VALUE_CHARS = 1024
MAX_COUNT = 2**31 - 1
MAX_BYTES = 2**53
MAX_MILLISECONDS = 30 * 86_400_000


class Kind(enum.StrEnum):
    """The value of `type`."""

    HELLO = "hello"
    ACK = "ack"
    METADATA = "metadata"
    STATS = "stats"
    HEARTBEAT = "heartbeat"
    HEARTBEAT_ACK = "heartbeat_ack"
    GOAWAY = "goaway"


def encode_message(message: Message) -> bytes:
    """Raises LocalProtocolError when it takes more than MAX_MESSAGE_BYTES."""
    match message:
        case Hello():
            fields = {"type": Kind.HELLO, **_hello_fields(message)}
        case Metadata(hello):
            fields = {"type": Kind.METADATA, **_hello_fields(hello)}
        case Ack():
            fields = {"type": Kind.ACK, **_ack_fields(message)}
        case Stats():
            fields = {"type": Kind.STATS, **_stats_fields(message)}
        case Heartbeat(seq):
            fields = {"type": Kind.HEARTBEAT, "seq": seq}
        case HeartbeatAck(seq):
            fields = {"type": Kind.HEARTBEAT_ACK, "seq": seq}
        case _:
            fields = {"type": Kind.GOAWAY, **_drain_fields(message)}
    return encode_object(fields, MAX_MESSAGE_BYTES)


def decode_message(data: bytes, untyped: Kind) -> Message | None:
    """Read a message.

    Args:
        untyped: what it is when it has no `type`.
    Returns:
        The message; None when it is of a type that is not known here.
    Raises:
        RemoteProtocolError: it is none, or lacks `agent_id` where that is needed.
        LimitExceededError: something in it is too long.
    """
    fields = parse_object(data, MAX_MESSAGE_BYTES)
    kind = fields.text("type", MAX_NAME_CHARS) or untyped
    decode = _DECODERS.get(kind)
    return None if decode is None else decode(fields)


def _hello_fields(hello: Hello) -> Mapping[str, object]:
    return {
        "agent_id": hello.agent_id,
        "instance_id": hello.instance_id,
        "connection_id": hello.connection_id,
        "node_id": hello.node_id,
        **_epoch_fields(hello.epoch),
        "revision": hello.revision,
        "reported_at": hello.reported_at,
        "boot": hello.boot,
        "items": [{"name": item.name, "source": item.source, "value": item.value} for item in hello.items],
        "errors": _problem_fields(hello.errors),
        "capabilities": list(hello.capabilities),
    }


def _hello(fields: Fields) -> Hello:
    return Hello(
        agent_id=fields.required("agent_id"),
        instance_id=fields.identifier("instance_id"),
        connection_id=fields.identifier("connection_id"),
        node_id=fields.identifier("node_id"),
        epoch=ConnEpoch(fields.exact("epoch", MAX_EPOCH)),
        revision=fields.exact("revision", MAX_EPOCH),
        reported_at=fields.text("reported_at", MAX_NAME_CHARS),
        boot=fields.identifier("boot"),
        items=tuple(_item(one) for one in fields.objects("items", MAX_ITEMS)),
        errors=_problems(fields),
        capabilities=fields.texts("capabilities", MAX_CAPABILITIES, MAX_NAME_CHARS),
    )


def _item(fields: Fields) -> Item:
    name, source = fields.text("name", MAX_NAME_CHARS), fields.text("source", MAX_NAME_CHARS)
    return Item(name, source, fields.text("value", MAX_VALUE_CHARS))


def _ack_fields(ack: Ack) -> Mapping[str, object]:
    return {
        "agent_id": ack.agent_id,
        **_epoch_fields(ack.epoch),
        "revision": ack.revision,
        "registered": ack.registered,
        "accepted": ack.accepted,
        "idempotent": ack.idempotent,
        "connection_pool_supported": ack.connection_pool_supported,
        "max_connections_per_agent": ack.max_connections_per_agent,
        "server_node_id": ack.server_node_id,
        "retry_after_ms": ack.retry_after_ms,
        "errors": _problem_fields(ack.errors),
        "capabilities": list(ack.capabilities),
    }


def _ack(fields: Fields) -> Ack:
    return Ack(
        agent_id=fields.required("agent_id"),
        epoch=ConnEpoch(fields.exact("epoch", MAX_EPOCH)),
        revision=fields.exact("revision", MAX_EPOCH),
        registered=fields.flag("registered", absent=True),
        accepted=fields.flag("accepted", absent=True),
        idempotent=fields.flag("idempotent", absent=False),
        connection_pool_supported=fields.flag("connection_pool_supported", absent=False),
        max_connections_per_agent=fields.number("max_connections_per_agent", MAX_COUNT),
        server_node_id=fields.identifier("server_node_id"),
        retry_after_ms=fields.number("retry_after_ms", MAX_MILLISECONDS),
        errors=_problems(fields),
        capabilities=fields.texts("capabilities", MAX_CAPABILITIES, MAX_NAME_CHARS),
    )


def _stats_fields(stats: Stats) -> Mapping[str, object]:
    scaling = stats.scaling
    return {
        "active_streams": stats.active_streams,
        "queued_bytes": stats.queued_bytes,
        "queue_limit_bytes": stats.queue_limit_bytes,
        "queue_wait_ms": stats.queue_wait_ms,
        "open_failures": stats.open_failures,
        "scaling": scaling
        and {
            "decision": scaling.decision,
            "reason": scaling.reason,
            "connections": scaling.connections,
            "capacity": scaling.capacity,
            "scale_ups": scaling.scale_ups,
            "scale_downs": scaling.scale_downs,
            "rejections": scaling.rejections,
        },
    }


def _stats(fields: Fields) -> Stats:
    said = fields.object("scaling")
    scaling = (
        said
        if said is None
        else Scaling(
            said.identifier("decision"),
            said.identifier("reason"),
            said.number("connections", MAX_COUNT),
            said.number("capacity", MAX_COUNT),
            said.number("scale_ups", MAX_COUNT),
            said.number("scale_downs", MAX_COUNT),
            said.number("rejections", MAX_COUNT),
        )
    )
    return Stats(
        active_streams=fields.number("active_streams", MAX_COUNT),
        queued_bytes=fields.number("queued_bytes", MAX_BYTES),
        queue_limit_bytes=fields.number("queue_limit_bytes", MAX_BYTES),
        queue_wait_ms=fields.number("queue_wait_ms", MAX_MILLISECONDS),
        open_failures=fields.number("open_failures", MAX_COUNT),
        scaling=scaling,
    )


def _drain_fields(drain: Drain) -> Mapping[str, object]:
    return {
        "phase": int(drain.phase),
        "reason": drain.reason,
        "deadline_ms": drain.deadline_ms,
        "retry_after_ms": drain.retry_after_ms,
        "last_stream_id": drain.last_stream_id,
    }


def _drain(fields: Fields) -> Drain:
    phase = fields.number("phase", MAX_COUNT) or Phase.ANNOUNCED
    if phase not in (Phase.ANNOUNCED, Phase.SETTLED):
        raise RemoteProtocolError("a drain has two phases")
    last = fields.number("last_stream_id", MAX_STREAM_ID) if fields.has("last_stream_id") else MAX_STREAM_ID
    reason = fields.text("reason", MAX_NAME_CHARS)
    return Drain(
        phase=Phase(phase),
        reason=DrainReason(reason) if reason in list(DrainReason) else DrainReason.UNSPECIFIED,
        deadline_ms=fields.number("deadline_ms", MAX_MILLISECONDS),
        retry_after_ms=fields.number("retry_after_ms", MAX_MILLISECONDS),
        last_stream_id=last,
    )


_DECODERS: Mapping[str, Callable[[Fields], Message]] = {
    Kind.HELLO: _hello,
    Kind.ACK: _ack,
    Kind.METADATA: lambda fields: Metadata(_hello(fields)),
    Kind.STATS: _stats,
    Kind.HEARTBEAT: lambda fields: Heartbeat(fields.number("seq", MAX_EPOCH)),
    Kind.HEARTBEAT_ACK: lambda fields: HeartbeatAck(fields.number("seq", MAX_EPOCH)),
    Kind.GOAWAY: _drain,
}


def _epoch_fields(epoch: ConnEpoch) -> Mapping[str, object]:
    """Twice: as the number that it is, and spelt out for whoever reads numbers as doubles."""
    return {"epoch": epoch, "epoch_decimal": str(epoch)}


def _problem_fields(problems: tuple[Problem, ...]) -> list[Mapping[str, str]]:
    return [{"name": one.name, "code": one.code, "message": one.message} for one in problems]


def _problems(fields: Fields) -> tuple[Problem, ...]:
    texts = (
        (one.text("name", MAX_NAME_CHARS), one.text("code", MAX_NAME_CHARS), one.text("message", MAX_VALUE_CHARS))
        for one in fields.objects("errors", MAX_PROBLEMS)
    )
    return tuple(Problem(name, code, message) for name, code, message in texts)
