"""Messages as plain values, such as JSON has: the other spelling of what `codec` reads from bytes.

Fields have the names of their definitions. Bytes are base64, instants RFC 3339, durations seconds with an "s", values
of an enum their names. Reading is strict: an unknown field, another type, a number out of range are faults, named by
where they are.
"""

import base64
import dataclasses
import enum
import functools
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar, cast, get_args, get_type_hints

import attrs
import betterproto2

from agentmesh.errors import RemoteProtocolError

M = TypeVar("M", bound=betterproto2.Message)

_RANGES = {
    betterproto2.TYPE_INT32: (-(2**31), 2**31 - 1),
    betterproto2.TYPE_INT64: (-(2**63), 2**63 - 1),
    betterproto2.TYPE_UINT32: (0, 2**32 - 1),
    betterproto2.TYPE_UINT64: (0, 2**64 - 1),
}
_NAME = re.compile(r"[\w.-]{1,32}", re.ASCII)
_MAX_DIGITS = 3  # in a name; what is random has more
_DURATION = re.compile(r"-?\d{1,12}(\.\d{1,9})?s")


class Kind(enum.Enum):
    """What a field holds, of what definitions here use."""

    TEXT = 1
    BYTES = 2
    FLAG = 3
    NUMBER = 4
    CHOICE = 5
    MESSAGE = 6
    INSTANT = 7
    DURATION = 8


PRESENT = frozenset({Kind.MESSAGE, Kind.INSTANT, Kind.DURATION})  # what a message has or has not


@attrs.frozen
class Field:
    """A field of a message.

    Attributes:
        repeated: whether it is a list; a map is one of texts by texts.
        of: the class of a MESSAGE or a CHOICE.
        range: the least and the greatest NUMBER.
    """

    name: str
    kind: Kind
    repeated: bool = False
    map: bool = False
    of: type[Any] | None = None
    range: tuple[int, int] = (0, 0)


@functools.cache
def fields_of(kind: type[betterproto2.Message]) -> Mapping[str, Field]:
    """A message's fields, by name."""
    hints = get_type_hints(kind)
    fields: tuple[dataclasses.Field[Any], ...] = dataclasses.fields(cast(Any, kind))
    return {field.name: _field(field.name, field.metadata["betterproto"], hints[field.name]) for field in fields}


def to_plain(message: betterproto2.Message) -> dict[str, Any]:
    """A message as plain values. What has its default is left out, but for the values of enums."""
    found: dict[str, Any] = {}
    for field in fields_of(type(message)).values():
        value = getattr(message, field.name)
        present = value is not None and not field.repeated and field.kind in PRESENT  # though it be nothing: a ttl of 0
        if value or present or field.kind is Kind.CHOICE:
            found[field.name] = _each_to_plain(field, value)
    return found


def from_plain(kind: type[M], value: object, where: str = "") -> M:
    """Read a message. A field that is null is absent.

    Args:
        where: of what `value` is a part, for the faults.
    Raises:
        RemoteProtocolError: `value` is no message of that kind. The text says where, and what is wrong there.
    """
    fields = fields_of(kind)
    if not isinstance(value, dict):
        raise _fault(where, "an object is needed")
    sent = cast(dict[str, object], value)
    for name in sorted(sent):
        if name not in fields:
            raise _fault(where, unknown_field(name, fields))
    message = kind()
    for name, inner in sent.items():
        if inner is not None:
            setattr(message, name, _each_from_plain(fields[name], inner, f"{where}.{name}" if where else name))
    return message


def unknown_field(name: str, known: Iterable[str]) -> str:
    """What is wrong with a field of that name.

    It is named if it looks like a name, short and with few digits. Else it may be anything that somebody put in the
    wrong place, a secret too, and is not said again.
    """
    is_name = _NAME.fullmatch(name) and sum(map(str.isdigit, name)) <= _MAX_DIGITS
    named = f"no field {name!r}" if is_name else "a field that has no name of ours"
    return f"there is {named}; the fields are {', '.join(known)}"


def _field(name: str, meta: betterproto2.FieldMetadata, hint: Any) -> Field:
    inner = next((arg for arg in get_args(hint) if arg is not type(None)), hint)
    repeated = bool(meta.repeated)
    match meta.proto_type:
        case betterproto2.TYPE_STRING:
            return Field(name, Kind.TEXT, repeated)
        case betterproto2.TYPE_BYTES:
            return Field(name, Kind.BYTES, repeated)
        case betterproto2.TYPE_BOOL:
            return Field(name, Kind.FLAG, repeated)
        case betterproto2.TYPE_ENUM:
            return Field(name, Kind.CHOICE, repeated, of=inner)
        case betterproto2.TYPE_MAP:
            return Field(name, Kind.TEXT, map=True)
        case betterproto2.TYPE_MESSAGE:
            kind = {datetime: Kind.INSTANT, timedelta: Kind.DURATION}.get(inner, Kind.MESSAGE)
            return Field(name, kind, repeated, of=inner)
        case number:
            return Field(name, Kind.NUMBER, repeated, range=_RANGES[number])


def _each_to_plain(field: Field, value: Any) -> Any:
    if field.map:
        return dict(value)
    write = _WRITERS[field.kind]
    return [write(element) for element in value] if field.repeated else write(value)


def _each_from_plain(field: Field, value: object, where: str) -> Any:
    if field.map:
        if not isinstance(value, dict):
            raise _fault(where, "an object is needed")
        texts = cast(dict[str, object], value)
        return {_text(field, key, where): _text(field, element, where) for key, element in texts.items()}
    read = _READERS[field.kind]
    if not field.repeated:
        return read(field, value, where)
    if not isinstance(value, list):
        raise _fault(where, "a list is needed")
    elements = cast(list[object], value)
    return [read(field, element, f"{where}[{index}]") for index, element in enumerate(elements)]


def _text(_: Field, value: object, where: str) -> str:
    if not isinstance(value, str):
        raise _fault(where, "a text is needed")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _fault(where, "this is no Unicode text") from None
    return value


def _bytes(field: Field, value: object, where: str) -> bytes:
    unpadded = _text(field, value, where).rstrip("=").translate(str.maketrans("-_", "+/"))
    try:
        return base64.b64decode(unpadded + "=" * (-len(unpadded) % 4), validate=True)
    except ValueError:
        raise _fault(where, "base64 is needed") from None


def _flag(_: Field, value: object, where: str) -> bool:
    if not isinstance(value, bool):
        raise _fault(where, "true or false is needed")
    return value


def _number(field: Field, value: object, where: str) -> int:
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,20}", value, re.ASCII):
        value = int(value)  # as JavaScript has to write those above 2**53
    if not isinstance(value, int) or isinstance(value, bool):
        raise _fault(where, "a whole number is needed")
    if not field.range[0] <= value <= field.range[1]:
        raise _fault(where, "the number is out of range")
    return value


def _choice(field: Field, value: object, where: str) -> Any:
    names = names_of(cast(type[betterproto2.Enum], field.of))
    if not isinstance(value, str) or value not in names:
        raise _fault(where, f"one of {', '.join(names)} is needed")
    return names[value]


def _instant(field: Field, value: object, where: str) -> datetime:
    try:
        instant = datetime.fromisoformat(_text(field, value, where))
        if instant.tzinfo is None:
            raise ValueError("no zone")
        return instant.astimezone(UTC)
    except (ValueError, OverflowError):
        raise _fault(where, "an instant as 2027-01-15T08:00:00Z is needed") from None


def _duration(field: Field, value: object, where: str) -> timedelta:
    text = _text(field, value, where)
    if not _DURATION.fullmatch(text):
        raise _fault(where, 'a duration as "30s" is needed')
    try:
        return timedelta(seconds=float(text[:-1]))
    except OverflowError:
        raise _fault(where, "the duration is out of range") from None


def names_of(kind: type[betterproto2.Enum]) -> Mapping[str, betterproto2.Enum]:
    """The values of an enum, by their names in the definition."""
    renamed = kind.betterproto_value_to_renamed_proto_names()
    return {renamed.get(int(value), str(value.name)): value for value in kind}


def _name(value: betterproto2.Enum) -> str:
    return type(value).betterproto_value_to_renamed_proto_names().get(int(value), str(value.name or int(value)))


def _written_instant(value: datetime) -> str:
    return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


_WRITERS: Mapping[Kind, Callable[[Any], Any]] = {
    Kind.TEXT: str,
    Kind.BYTES: lambda value: base64.b64encode(value).decode(),
    Kind.FLAG: bool,
    Kind.NUMBER: int,
    Kind.CHOICE: _name,
    Kind.MESSAGE: to_plain,
    Kind.INSTANT: _written_instant,
    Kind.DURATION: lambda value: f"{value.total_seconds():.6f}".rstrip("0").rstrip(".") + "s",
}
_READERS: Mapping[Kind, Callable[[Field, object, str], Any]] = {
    Kind.TEXT: _text,
    Kind.BYTES: _bytes,
    Kind.FLAG: _flag,
    Kind.NUMBER: _number,
    Kind.CHOICE: _choice,
    Kind.MESSAGE: lambda field, value, where: from_plain(cast(Any, field.of), value, where),
    Kind.INSTANT: _instant,
    Kind.DURATION: _duration,
}


def _fault(where: str, what: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"{where}: {what}" if where else what)
