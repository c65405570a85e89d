"""How many tokens a model says that it used: in an answer of JSON, or in server-sent events. Pure."""

import json
from typing import Any, cast

import attrs

MAX_BYTES = 1024 * 1024  # of an answer, or of one event, that are looked at
EVENT = b"data:"
USAGE = b'"usage"'


@attrs.frozen
class Usage:
    """Tokens, as OpenAI's API counts them."""

    prompt: int = 0
    completion: int = 0


class UsageReader:
    """Reads an answer as it passes; what it cannot read it lets pass.

    Args:
        content_type: of the answer.
    """

    def __init__(self, content_type: str) -> None:
        kind = content_type.partition(";")[0].strip().lower()
        self._events, self._json = kind == "text/event-stream", kind == "application/json"
        self._pending = bytearray()
        self._is_lost = not (self._events or self._json)
        self.usage = Usage()

    def receive_data(self, data: bytes) -> None:
        """More of the answer; b"" is its end."""
        if self._is_lost:
            return
        self._pending += data
        if self._events:
            *lines, rest = bytes(self._pending if data else self._pending + b"\n").split(b"\n")
            self._pending = bytearray(rest)
            for line in lines:
                self._take(line.strip().removeprefix(EVENT) if line.startswith(EVENT) else b"")
        elif not data:
            self._take(bytes(self._pending))
        self._is_lost = len(self._pending) > MAX_BYTES

    def _take(self, text: bytes) -> None:
        """The last usage counts: events tell it as it grows, or at the end."""
        if USAGE not in text:
            return
        try:
            content: Any = json.loads(text)
        except ValueError:
            return
        usage = cast("dict[str, Any]", content).get("usage") if isinstance(content, dict) else None
        if isinstance(usage, dict):
            found = cast("dict[str, Any]", usage)
            self.usage = Usage(_count(found.get("prompt_tokens")), _count(found.get("completion_tokens")))


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else 0
