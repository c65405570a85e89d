"""The limits in docs/security.md are those of the code, by name and number."""

import importlib
import re
from pathlib import Path

import attrs
import pytest

from agentmesh.runtime.yamux import Allowance, MuxLimits

TEXT = (Path(__file__).resolve().parent.parent / "docs" / "security.md").read_text()
ROWS: list[tuple[str, str, str]] = re.findall(r"^\| `(\w+)` \| `([\w.]+)` \| ([^|]+) \|", TEXT, re.MULTILINE)


def written(value: object) -> str:
    """A number as the document writes it."""
    match value:
        case Allowance(burst=burst, per_second=per_second):
            return f"{burst:,} + {per_second:,g}/s"
        case float():
            return f"{value:g}"
        case int():
            return f"{value:,}"
        case _:
            raise TypeError(f"no limit: {value!r}")


def default_of(name: str, where: str) -> object:
    """Of a constant of a module, or a setting of a class."""
    module, _, last = where.rpartition(".")
    if not last[0].isupper():
        return getattr(importlib.import_module(where), name)
    kind: type[attrs.AttrsInstance] = getattr(importlib.import_module(module), last)
    default = attrs.fields_dict(kind)[name].default
    return getattr(kind(), name) if isinstance(default, attrs.Factory) else default  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "where", "default"), ROWS)
def test_a_limit_is_as_the_document_says(name: str, where: str, default: str) -> None:
    assert written(default_of(name, where)) == default


def test_every_allowance_is_in_the_document() -> None:
    assert {waste.value for waste in MuxLimits().allowances} <= {name for name, _, _ in ROWS}


def test_every_row_was_read() -> None:
    assert len(ROWS) == sum(line.startswith("| `") for line in TEXT.splitlines())
