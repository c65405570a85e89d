"""What docs/proxies.md says of NO_PROXY is so."""

import re
from pathlib import Path

import pytest

from agentmesh.transports.proxy_bypass import Bypass

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "proxies.md").read_text()
SECTION = PAGE.partition("## Through an outbound proxy")[2]
TABLE = SECTION.partition("| entry | holds for | and not for |\n|---|---|---|\n")[2].partition("\n\n")[0]
ROWS = [[re.findall(r"`([^`]+)`", cell) for cell in line.split("|")[1:4]] for line in TABLE.splitlines()]


def holds(entry: str, target: str) -> bool:
    host, port = target, "443"
    if not re.fullmatch(r"[\da-f:]+", target) and ":" in target:
        host, _, port = target.rpartition(":")
    return Bypass.parse(entry).holds(host.strip("[]"), int(port))


@pytest.mark.parametrize(("entry", "targets", "others"), ROWS)
def test_an_entry_is_as_the_page_says(entry: list[str], targets: list[str], others: list[str]) -> None:
    assert [holds(entry[0], target) for target in targets] == [True] * len(targets)
    assert [holds(entry[0], target) for target in others] == [False] * len(others)


def test_every_row_was_read() -> None:
    assert len(ROWS) == 8
    assert all(entry and targets for entry, targets, _ in ROWS)
