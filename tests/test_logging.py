"""One record is one line, whatever is in it."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from agentmesh.logging import MAX_VALUE_CHARACTERS, configure_logging

logger = logging.getLogger("agentmesh.test")


@pytest.fixture(autouse=True)
def restore_logging() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("agentmesh")
    before = (list(root.handlers), root.level, ours.level)
    yield
    root.handlers[:], root.level, ours.level = before


def test_text_lines() -> None:
    out = io.StringIO()
    configure_logging("info", stream=out)
    logger.info("admitted", extra={"peer": "12D3", "reason": 'said "a=b"', "empty": "", "text": "two\nlines"})
    line = out.getvalue()
    assert line.count("\n") == 1
    instant, rest = line.split(" ", 1)
    assert instant.endswith("Z")
    assert rest == 'INFO agentmesh.test admitted peer=12D3 reason="said \\"a=b\\"" empty="" text="two\\nlines"\n'


def test_json_lines() -> None:
    out = io.StringIO()
    configure_logging("info", "json", out)
    logger.info("renewed", extra={"seconds": 1.5, "count": 3, "peer": logging})
    entry = json.loads(out.getvalue())
    assert entry["event"] == "renewed"
    assert (entry["seconds"], entry["count"], entry["logger"], entry["level"]) == (1.5, 3, "agentmesh.test", "INFO")
    assert entry["peer"].startswith("<module 'logging'")


@pytest.mark.parametrize("format", ["text", "json"])
def test_tracebacks_are_kept(format: str) -> None:
    out = io.StringIO()
    configure_logging("info", format, out)
    try:
        raise LookupError("lost")
    except LookupError:
        logger.exception("failed")
    assert "LookupError: lost" in out.getvalue()


def test_a_long_value_is_cut() -> None:
    out = io.StringIO()
    configure_logging("info", stream=out)
    logger.info("x", extra={"peer": "y" * (2 * MAX_VALUE_CHARACTERS)})
    assert len(out.getvalue()) < MAX_VALUE_CHARACTERS + 200


def test_levels() -> None:
    out = io.StringIO()
    configure_logging("warning", stream=out)
    logger.info("quiet")
    logger.warning("heard")
    logging.getLogger("somelibrary").info("quiet too")
    assert [line.split(" ")[3] for line in out.getvalue().splitlines()] == ["heard"]


def test_other_libraries_are_heard_from_warning_up_unless_debugging() -> None:
    out = io.StringIO()
    configure_logging("info", stream=out)
    logging.getLogger("somelibrary").info("quiet")
    configure_logging("debug", stream=out)
    logging.getLogger("somelibrary").info("heard")
    assert [line.split(" ")[3] for line in out.getvalue().splitlines()] == ["heard"]


@pytest.mark.parametrize(("level", "format"), [("loud", "text"), ("info", "xml")])
def test_unknown_settings_are_refused(level: str, format: str) -> None:
    with pytest.raises(ValueError, match="log level is one of"):
        configure_logging(level, format)
