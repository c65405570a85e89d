"""What a policy names services, targets, labels and members with. Each says by itself what it matches.

`compile` turns the same patterns into Datalog, and a property holds the two to each other.
"""

import enum
import re
from collections.abc import Mapping
from typing import Self

import attrs

from agentmesh.control_plane.labels import label_fault
from agentmesh.control_plane.policy.errors import PolicyError
from agentmesh.errors import AddressError
from agentmesh.types import PeerId

SERVICE_TYPES = ("mcp", "inference", "a2a", "egress", "http", "system")
TARGET_KINDS = ("email", "group", "idp_role", "node", "user")
EVERYBODY = "mesh:system:authenticated"  # the member that every member of the mesh is
MAX_VALUE_CHARACTERS = 255

_SERVICE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~-]{0,127}")


class Form(enum.Enum):
    """How a text is meant."""

    EXACT = "exact"
    PREFIX = "prefix"
    SUFFIX = "suffix"
    ALL = "all"


@attrs.frozen
class Glob:
    """A text with at most one `*`, which is its first or last character."""

    form: Form
    text: str  # without the star

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises PolicyError: a star elsewhere, or a character that would mean something else in Datalog."""
        if problem := value_fault(text):
            raise PolicyError(problem)
        if text == "*":
            return cls(Form.ALL, "")
        bare = text.strip("*")
        if "*" in bare or len(text) - len(bare) > 1:
            raise PolicyError("there is one '*' at most, at the beginning or at the end")
        if text.endswith("*"):
            return cls(Form.PREFIX, bare)
        return cls(Form.SUFFIX if text.startswith("*") else Form.EXACT, bare)

    def matches(self, value: str) -> bool:
        match self.form:
            case Form.EXACT:
                return value == self.text
            case Form.PREFIX:
                return value.startswith(self.text)
            case Form.SUFFIX:
                return value.endswith(self.text)
            case Form.ALL:
                return True

    def __str__(self) -> str:
        return {Form.EXACT: self.text, Form.PREFIX: f"{self.text}*", Form.SUFFIX: f"*{self.text}"}.get(self.form, "*")


ANYTHING = Glob(Form.ALL, "")


@attrs.frozen
class ServicePattern:
    """Services: `mcp://weather`, `mcp://build.*`, `mcp://*.internal`, `mcp://*` or `*`.

    Attributes:
        type: None is every type, and then `name` is ANYTHING.
    """

    type: str | None
    name: Glob

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises PolicyError."""
        if text == "*":
            return cls(None, ANYTHING)
        type, separator, rest = text.partition("://")
        if not separator or type not in SERVICE_TYPES:
            raise PolicyError(f"a service is '*' or <type>://<name> with type {', '.join(SERVICE_TYPES)}")
        name = Glob.parse(rest)
        if name.form is not Form.ALL and not _SERVICE_NAME.fullmatch(_without_dot(name)):
            raise PolicyError("a name is letters, digits and . _ ~ -, and a '*' is set off by a dot")
        return cls(type, name)

    def matches(self, type: str, name: str) -> bool:
        return self.type in (None, type) and self.name.matches(name)

    def __str__(self) -> str:
        return "*" if self.type is None else f"{self.type}://{self.name}"


@attrs.frozen
class TargetPattern:
    """Members that may be called: `group:compute`, `email:*@example.com`, `node:*` or `*`; a bare word is a node.

    Attributes:
        kind: None is every kind, and then `value` is ANYTHING.
    """

    kind: str | None
    value: Glob

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises PolicyError."""
        if text in ("*", "*:*"):
            return cls(None, ANYTHING)
        kind, separator, rest = text.partition(":")
        if not separator:
            kind, rest = "node", text
        if kind not in TARGET_KINDS:
            raise PolicyError(f"a target is '*' or <kind>:<value> with kind {', '.join(TARGET_KINDS)}")
        return cls(kind, _node_glob(rest) if kind == "node" else Glob.parse(rest))

    def matches(self, kind: str, value: str) -> bool:
        return self.kind in (None, kind) and self.value.matches(value)

    def __str__(self) -> str:
        return "*" if self.kind is None else f"{self.kind}:{self.value}"


@attrs.frozen
class LabelPattern:
    """Labels that may be attested: `key=value`, `key=*` or `*`. None is any."""

    key: str | None
    value: str | None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises PolicyError."""
        if text == "*":
            return cls(None, None)
        key, separator, value = text.partition("=")
        if not separator or label_fault({key: "" if value == "*" else value}):
            raise PolicyError("a label is key=value, key=* or *")
        return cls(key, None if value == "*" else value)

    def matches(self, key: str, value: str) -> bool:
        return self.key in (None, key) and self.value in (None, value)

    def __str__(self) -> str:
        return "*" if self.key is None else f"{self.key}={'*' if self.value is None else self.value}"


@attrs.frozen
class MemberPattern:
    """Whom a binding gives a role: `group:engineering`, `email:*@example.com`, or EVERYBODY.

    Attributes:
        kind: None is everybody, and then `value` is ANYTHING.
    """

    kind: str | None
    value: Glob

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises PolicyError."""
        if text == EVERYBODY:
            return cls(None, ANYTHING)
        kind, separator, rest = text.partition(":")
        if not separator or kind not in TARGET_KINDS:
            kinds = ", ".join(TARGET_KINDS)
            raise PolicyError(f"a member is {EVERYBODY} or <kind>:<value> with kind {kinds}")
        value = _node_glob(rest) if kind == "node" else Glob.parse(rest)
        if value.form is Form.ALL:
            raise PolicyError(f"for everybody write {EVERYBODY}")
        if kind == "node" and value.form is not Form.EXACT:
            raise PolicyError("a node is named by its whole peer ID")
        return cls(kind, value)

    def matches(self, claims: Mapping[str, frozenset[str]]) -> bool:
        """Whether somebody of whom this is known, values by kind, is meant."""
        return self.kind is None or any(map(self.value.matches, claims.get(self.kind, frozenset())))

    def __str__(self) -> str:
        return EVERYBODY if self.kind is None else f"{self.kind}:{self.value}"


def value_fault(text: str) -> str | None:
    """Why a text is no value in a policy, or None. Quotes and backslashes would end a string of Datalog."""
    if not text or text != text.strip():
        return "a value is not empty, and does not begin or end with a space"
    if len(text) > MAX_VALUE_CHARACTERS:
        return f"a value is at most {MAX_VALUE_CHARACTERS} characters long"
    if any(c in '"\\' or not c.isprintable() for c in text):
        return "a value holds no quote, no backslash and no control character"
    return None


def _without_dot(name: Glob) -> str:
    """The name's text without the dot that belongs to its star; "" when that is missing, which is no name."""
    match name.form:
        case Form.PREFIX:
            return name.text.removesuffix(".") if name.text.endswith(".") else ""
        case Form.SUFFIX:
            return name.text.removeprefix(".") if name.text.startswith(".") else ""
        case _:
            return name.text


def _node_glob(text: str) -> Glob:
    glob = Glob.parse(text)
    if glob.form is not Form.EXACT:
        return glob
    try:
        return Glob(Form.EXACT, str(PeerId.parse(text)))  # however it was spelt: credentials have one spelling
    except AddressError as exc:
        raise PolicyError("this is no peer ID") from exc
