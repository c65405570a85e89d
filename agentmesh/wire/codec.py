"""Messages from bytes that a peer sent (Protocol Buffers, "Encoding").

betterproto2's own parser is made for bytes of a friend: a field cut short, or of another wire type than its
definition's, comes out as a value of the wrong length or Python type. So the bytes are held to the definition first.
"""

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar, cast, get_args, get_type_hints

import attrs
import betterproto2

from agentmesh.errors import LimitExceededError, RemoteProtocolError

MAX_FIELDS = 16_384  # in one message and all within it
MAX_UNKNOWN_FIELDS = 64  # what a newer peer may add; betterproto2 copies all of them for each

VARINT, LENGTH = 0, 2  # wire types
_VARINT, _FIXED64, _LENGTH, _FIXED32 = VARINT, 1, LENGTH, 5
_SIZES = {_FIXED64: 8, _FIXED32: 4}
_WIRE_TYPES = {
    **dict.fromkeys(betterproto2.WIRE_VARINT_TYPES, _VARINT),
    **dict.fromkeys(betterproto2.WIRE_FIXED_64_TYPES, _FIXED64),
    **dict.fromkeys(betterproto2.WIRE_FIXED_32_TYPES, _FIXED32),
    **dict.fromkeys(betterproto2.WIRE_LEN_DELIM_TYPES, _LENGTH),
}
_MAX_VARINT_BYTES = 10  # 64 bits; any spelling will do, unlike in framing

M = TypeVar("M", bound=betterproto2.Message)


@attrs.frozen
class _Field:
    """What a definition says of the bytes of one field."""

    wire_type: int
    fields: "Mapping[int, _Field] | None"  # of the message that it holds, when it does
    packed_as: int | None  # the wire type of what a length-delimited spelling holds, when there may be one


def decode(kind: type[M], data: bytes, max_fields: int = MAX_FIELDS) -> M:
    """Read a message. Fields that `kind` does not define are kept aside, as a newer peer may send some.

    Args:
        max_fields: how many there may be, in it and all within it.
    Raises:
        RemoteProtocolError: `data` is no message of that kind. The text holds nothing of `data`.
        LimitExceededError: it has more than `max_fields` fields, or MAX_UNKNOWN_FIELDS unknown ones.
    """
    unknown = 0
    for count, known in enumerate(_walk(_fields_of(kind), data), 1):
        unknown += not known
        if count > max_fields or unknown > MAX_UNKNOWN_FIELDS:
            raise LimitExceededError(f"too many fields in a {kind.__name__}")
    try:
        return kind.parse(data)
    except (ValueError, OverflowError) as exc:  # no UTF-8, or an instant that datetime cannot hold
        raise RemoteProtocolError(f"malformed {kind.__name__}: {type(exc).__name__}") from None


def _walk(fields: Mapping[int, _Field], data: bytes) -> Iterator[bool]:
    """Check every field of a message and of those within; for each, whether it is known."""
    for number, wire_type, value in split(data):
        field = fields.get(number)
        yield field is not None
        if field is None:
            continue
        if wire_type == field.wire_type:
            if field.fields is not None:
                yield from _walk(field.fields, value)
        elif wire_type == _LENGTH and field.packed_as is not None:
            yield from _unpack(field.packed_as, value)
        else:
            raise RemoteProtocolError(f"field {number} came with wire type {wire_type}")


def split(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """The fields of any message: number, wire type, and the bytes of the value.

    Raises:
        RemoteProtocolError: `data` is no message.
    """
    for number, wire_type, _, start, end in spans(data):
        yield number, wire_type, data[start:end]


def spans(data: bytes) -> Iterator[tuple[int, int, int, int, int]]:
    """Where the fields of any message are: number, wire type, where each begins, where its value does, and its end.

    Raises:
        RemoteProtocolError: `data` is no message.
    """
    at, whole = 0, len(data)
    while at < whole:
        begin = at
        key, start = _varint(data, begin) if data[begin] >= 0x80 else (data[begin], begin + 1)
        number, wire_type = key >> 3, key & 7
        if wire_type == _LENGTH:
            is_short = start < whole and data[start] < 0x80
            size, start = (data[start], start + 1) if is_short else _varint(data, start)
            at = start + size
        else:
            at = _end(wire_type, data, start)
        if number == 0 or at > whole:
            raise RemoteProtocolError(f"field {number} goes beyond its message" if number else "a field without number")
        yield number, wire_type, begin, start, at


def _unpack(wire_type: int, data: bytes) -> Iterator[bool]:
    at = 0
    while at < len(data):
        at = _end(wire_type, data, at)
        yield True
    if at > len(data):
        raise RemoteProtocolError("a packed number goes beyond its field")


def _end(wire_type: int, data: bytes, start: int) -> int:
    """Where a number that begins at `start` ends; perhaps beyond `data`."""
    if wire_type == _VARINT:
        return _varint(data, start)[1]
    if wire_type in _SIZES:
        return start + _SIZES[wire_type]
    raise RemoteProtocolError(f"no such wire type: {wire_type}")


def _varint(data: bytes, start: int) -> tuple[int, int]:
    value = 0
    for index, byte in enumerate(data[start : start + _MAX_VARINT_BYTES]):
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value, start + index + 1
    raise RemoteProtocolError("a number that does not end")


@functools.cache
def _fields_of(kind: type[betterproto2.Message]) -> Mapping[int, _Field]:
    hints = get_type_hints(kind)
    fields: tuple[dataclasses.Field[Any], ...] = dataclasses.fields(cast(Any, kind))
    metas = {field.name: cast(betterproto2.FieldMetadata, field.metadata["betterproto"]) for field in fields}
    return {meta.number: _field_of(meta, hints[name]) for name, meta in metas.items()}


def _field_of(meta: betterproto2.FieldMetadata, hint: Any) -> _Field:
    fields: Mapping[int, _Field] | None = None
    wire_type = _WIRE_TYPES[meta.proto_type]
    if meta.map_meta is not None:
        key, value = meta.map_meta
        fields = {key.number: _field_of(key, None), value.number: _field_of(value, get_args(hint)[1])}
    elif meta.proto_type == betterproto2.TYPE_MESSAGE:
        fields = _fields_of(meta.unwrap() if meta.unwrap is not None else (*get_args(hint), hint)[0])
    packed = bool(meta.repeated) and wire_type != _LENGTH
    return _Field(wire_type, fields, wire_type if packed else None)
