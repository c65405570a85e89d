"""What docs/forward.md says of codes, limits and options is so."""

import importlib
import re
from pathlib import Path

import attrs
import pytest
from click import Option

from agentmesh.cli.forward import command
from agentmesh.forward.http_connect import STATUSES
from agentmesh.forward.socks import REPLIES
from agentmesh.protocols.pool import Code

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "forward.md").read_text()
CODES = re.findall(r"^\| `(\w+)` \| (\d) \| (\d{3}) \|", PAGE, re.MULTILINE)
LIMITS = re.findall(r"^\| `(\w+)` \| `(agentmesh[\w.]+)` \| ([\d,]+) \|", PAGE, re.MULTILINE)
FOREIGN = {"--proxy", "--proxytunnel", "--connect-to", "--proxy-server"}  # of curl and Chromium


def test_every_code_has_its_answers() -> None:
    found = {code: (int(reply), int(status)) for code, reply, status in CODES}
    assert found == {code: (REPLIES[code], STATUSES[code]) for code in Code if code is not Code.OK}


@pytest.mark.parametrize(("name", "where", "default"), LIMITS)
def test_a_limit_is_as_the_page_says(name: str, where: str, default: str) -> None:
    module, _, last = where.rpartition(".")
    if last[0].isupper():
        kind: type[attrs.AttrsInstance] = getattr(importlib.import_module(module), last)
        value: object = attrs.fields_dict(kind)[name].default
    else:
        value = getattr(importlib.import_module(where), name)
    assert value == int(default.replace(",", ""))


def test_every_limit_was_read() -> None:
    assert len(LIMITS) == 6


def test_every_option_is_one() -> None:
    known = {flag for option in command.params if isinstance(option, Option) for flag in option.opts}
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", PAGE)) - FOREIGN
    assert named <= known
    assert {"--listen", "--forward", "--socks", "--http-proxy", "--stdio", "--allow-remote"} <= named
