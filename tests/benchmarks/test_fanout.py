"""The benchmark of an event to very many members: what it computes, and one small run of real processes."""

import json
from pathlib import Path

from click.testing import CliRunner

from agentmesh.identity import Identity
from benchmarks.fanout import Found, main
from benchmarks.stacks.told import Ears

TINY = ("--members", "4", "--routers", "2", "--processes", "1", "--events", "2")


def test_figures_are_milliseconds_and_the_last_members() -> None:
    figures = Found([0.1, 0.3, 0.2], 40.0, 90.0).figures()
    assert (figures["median"], figures["worst"]) == (200.0, 300.0)
    assert (figures["routers_cpu"], figures["members_cpu"]) == (40.0, 90.0)


async def test_an_event_is_there_when_the_last_member_has_it() -> None:
    ears, peer = Ears(), Identity.generate().peer
    ears.members = 2
    ears.hear({peer})
    ears.hear({peer, Identity.generate().peer})
    assert (await ears.heard(str(peer)))["last"] > 0


def test_a_small_run(tmp_path: Path) -> None:
    file = tmp_path / "found.json"
    result = CliRunner().invoke(main, [*TINY, "--json", str(file)], catch_exceptions=False)
    assert result.exit_code == 0
    assert "an event to 4 members over 2 routers" in result.output
    found = json.loads(file.read_text())
    assert len(found["took"]) == 2
    assert found["figures"]["worst"] == 1000 * max(found["took"])
