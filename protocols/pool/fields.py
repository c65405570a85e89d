"""JSON objects that a peer sent, read field by field: wrong types and sizes are its fault, unknown fields are not.

A null counts as an absent field: older peers write it for an empty list.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, cast

from agentmesh.errors import LimitExceededError, LocalProtocolError, RemoteProtocolError

_IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~:@+-]{0,127}")
_DECIMAL = re.compile(r"0|[1-9][0-9]{0,18}")


def encode_object(fields: Mapping[str, object], max_bytes: int) -> bytes:
    """An object without its empty fields: None, "" and empty lists are left out.

    Raises:
        LocalProtocolError: it takes more than `max_bytes`.
    """
    filled = {name: value for name, value in fields.items() if value is not None and value not in ("", [], {})}
    # What is not ASCII stays as it came: what a peer has sent in so many bytes can be passed on in as many.
    data = json.dumps(filled, separators=(",", ":"), allow_nan=False, ensure_ascii=False).encode()
    if len(data) > max_bytes:
        raise LocalProtocolError(f"a message of {len(data)} bytes; at most {max_bytes} are allowed")
    return data


def parse_object(data: bytes, max_bytes: int) -> "Fields":
    """Raises RemoteProtocolError when `data` is no JSON object, LimitExceededError when it is too long."""
    if len(data) > max_bytes:
        raise LimitExceededError(f"a message of {len(data)} bytes; at most {max_bytes} are allowed")
    try:
        value: object = json.loads(data.decode(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as exc:
        raise RemoteProtocolError(f"no JSON: {type(exc).__name__}") from None
    return Fields(_object(value, "the message"))


class Fields:
    """The fields of one object. Every method raises RemoteProtocolError for a value that it cannot take."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def has(self, name: str) -> bool:
        return self._values.get(name) is not None

    def text(self, name: str, max_chars: int) -> str:
        """A string; "" when it is absent."""
        value = self._values.get(name)
        return "" if value is None else _text(value, name, max_chars)

    def identifier(self, name: str) -> str:
        """A name that is safe in keys, labels and logs; "" when it is absent."""
        value = self.text(name, 128)
        if value and not _IDENTIFIER.fullmatch(value):
            raise RemoteProtocolError(f"{name} is no identifier")
        return value

    def required(self, name: str) -> str:
        """An identifier that has to be there."""
        if not (value := self.identifier(name)):
            raise RemoteProtocolError(f"{name} is missing")
        return value

    def number(self, name: str, maximum: int) -> int:
        """An integer from 0 to `maximum`; 0 when it is absent."""
        value = self._values.get(name)
        return 0 if value is None else _number(value, name, maximum)

    def exact(self, name: str, maximum: int) -> int:
        """A number that may be above what a double holds. Its decimal spelling, in a field beside it, goes first; it
        may also be a string itself.
        """
        spelt = f"{name}_decimal"
        return self.number(spelt if self.has(spelt) else name, maximum)

    def flag(self, name: str, absent: bool) -> bool:
        value = self._values.get(name)
        if value is None:
            return absent
        if not isinstance(value, bool):
            raise RemoteProtocolError(f"{name} is no boolean")
        return value

    def texts(self, name: str, max_items: int, max_chars: int) -> tuple[str, ...]:
        return tuple(_text(value, name, max_chars) for value in self._list(name, max_items))

    def objects(self, name: str, max_items: int) -> "tuple[Fields, ...]":
        return tuple(Fields(_object(value, name)) for value in self._list(name, max_items))

    def object(self, name: str) -> "Fields | None":
        value = self._values.get(name)
        return None if value is None else Fields(_object(value, name))

    def mapping(self, name: str, max_items: int, max_chars: int) -> dict[str, str]:
        """An object of strings; empty when it is absent."""
        value = self._values.get(name)
        found: Mapping[str, Any] = {} if value is None else _object(value, name)
        if len(found) > max_items:
            raise LimitExceededError(f"more than {max_items} in {name}")
        return {_text(key, name, max_chars): _text(text, name, max_chars) for key, text in found.items()}

    def _list(self, name: str, max_items: int) -> Sequence[Any]:
        value = self._values.get(name)
        if value is None:
            return ()
        if not isinstance(value, list):
            raise RemoteProtocolError(f"{name} is no list")
        found = cast("Sequence[Any]", value)
        if len(found) > max_items:
            raise LimitExceededError(f"more than {max_items} in {name}")
        return found


def is_identifier(text: str) -> bool:
    """Whether `text` may name an agent, an instance, a connection or a node."""
    return _IDENTIFIER.fullmatch(text) is not None


def _object(value: object, name: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise RemoteProtocolError(f"{name} is no object")
    return cast("dict[str, Any]", value)


def _text(value: object, name: str, max_chars: int) -> str:
    if not isinstance(value, str):
        raise RemoteProtocolError(f"{name} is no string")
    if len(value) > max_chars:
        raise LimitExceededError(f"{name} has more than {max_chars} characters")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise RemoteProtocolError(f"{name} is no Unicode")
    return value


def _number(value: object, name: str, maximum: int) -> int:
    if isinstance(value, str) and _DECIMAL.fullmatch(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise RemoteProtocolError(f"{name} is no integer")
    if not 0 <= value <= maximum:
        raise RemoteProtocolError(f"{name} is not from 0 to {maximum}")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)
