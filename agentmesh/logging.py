"""Structured logs, set up in one place: `event key=value` lines, or JSON lines with LOG_FORMAT=json.

Modules log an event and its particulars apart: `logger.info("enrolled", extra={"peer": peer, "role": role})`. Secrets
are never among them; the values that hold one hide it from `repr`.
"""

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TextIO

LEVELS = ("debug", "info", "warning", "error")
MAX_VALUE_CHARACTERS = 1000  # of one value: a peer chooses some of them

# What every record carries; the rest of its attributes came in as `extra`.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class KeyValueFormatter(logging.Formatter):
    """2026-01-02T03:04:05.678Z INFO agentmesh.router admitted peer=12D3… role=node"""

    def format(self, record: logging.LogRecord) -> str:
        pairs = [f"{key}={_quoted(str(value))}" for key, value in _particulars(record).items()]
        head = f"{_instant(record)} {record.levelname} {record.name} {record.getMessage()}"
        return "\n".join([" ".join([head, *pairs]), *_traceback(self, record)])


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, event, the particulars, and the traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": _instant(record),
            "level": record.levelname,
            "logger": record.name,
            "event": record.getMessage(),
            **{key: _plain(value) for key, value in _particulars(record).items()},
        }
        if lines := _traceback(self, record):
            entry["traceback"] = "\n".join(lines)
        return json.dumps(entry, ensure_ascii=False)


FORMATTERS: Mapping[str, type[logging.Formatter]] = {"text": KeyValueFormatter, "json": JsonFormatter}


def configure_logging(level: str = "info", format: str = "text", stream: TextIO | None = None) -> None:
    """Send every log record of the process to one stream. Replaces what was configured before.

    Args:
        level: one of LEVELS; less is dropped. Other libraries than ours speak from "warning" up, unless it is "debug".
        format: a key of FORMATTERS: "text" or "json" (programs take it from the environment's LOG_FORMAT).
        stream: where to; standard error when it is None.
    Raises:
        ValueError: no such level or format.
    """
    if level not in LEVELS or format not in FORMATTERS:
        raise ValueError(f"log level is one of {LEVELS}, format one of {tuple(FORMATTERS)}")
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(FORMATTERS[format]())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG if level == "debug" else logging.WARNING)
    logging.getLogger("agentmesh").setLevel(level.upper())


def _particulars(record: logging.LogRecord) -> dict[str, object]:
    return {key: value for key, value in vars(record).items() if key not in _STANDARD}


def _instant(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> list[str]:
    return [formatter.formatException(record.exc_info)] if record.exc_info else []


def _plain(value: object) -> object:
    return value if isinstance(value, bool | int | float) or value is None else str(value)[:MAX_VALUE_CHARACTERS]


def _quoted(text: str) -> str:
    # One record stays one line, whatever a peer put in: control characters only ever appear escaped.
    text = text[:MAX_VALUE_CHARACTERS]
    plain = text and text.isprintable() and not set(text) & set(' "=')
    return text if plain else json.dumps(text)
