"""Rules that outlive the process: kept whole, of one mesh, and no harm done where the disk does not play along."""

import stat
from pathlib import Path
from random import Random

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from agentmesh.identity import Identity
from agentmesh.membership import StateDir
from agentmesh.membership.kept_rules import RULES_FILE, KeptRules
from agentmesh.membership.rulebook import Rulebook
from agentmesh.runtime.nursery import open_background
from tests.membership.plane import NODE_TOKEN, OPEN_RULES, Plane, membership_of
from tests.membership.test_rulebook import Source, verdict

MESH = "http://cp"


def test_rules_come_back_as_they_were_kept(tmp_path: Path) -> None:
    kept = KeptRules(tmp_path, MESH)
    assert kept.load() is None
    kept.save(OPEN_RULES)
    assert kept.load() == OPEN_RULES
    kept.save(())
    assert kept.load() == ()
    assert stat.S_IMODE((tmp_path / RULES_FILE).stat().st_mode) == 0o600
    assert [file.name for file in tmp_path.iterdir()] == [RULES_FILE]
    assert KeptRules(tmp_path, "http://another").load() is None


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"control_plane": "http://cp"}', '{"rules": 1}', "\xff", "[" * 100_000]
)
def test_what_is_no_file_of_rules_is_none(tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / RULES_FILE).write_text(text, encoding="latin-1")
    assert KeptRules(tmp_path, MESH).load() is None
    assert "is not read" in caplog.text


def test_a_disk_that_takes_nothing_is_said_and_no_more(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    KeptRules(tmp_path / "missing", MESH).save(OPEN_RULES)
    assert "policy not kept" in caplog.text


async def test_who_starts_again_while_the_control_plane_is_away_goes_by_the_last(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    kept, source = KeptRules(tmp_path, MESH), Source()
    for is_away in (False, True):
        source.is_away = is_away
        rulebook = Rulebook(source.fetch, Random(1), kept)
        async with open_background() as nursery:
            nursery.start_soon(rulebook.run)
            await wait_all_tasks_blocked()
            assert (rulebook.is_known, verdict(rulebook)) == (True, "allowed")
    assert source.calls == 2


async def test_rules_that_were_kept_and_are_none_are_as_good_as_no_rules(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    kept = KeptRules(tmp_path, MESH)
    kept.save(["no rule"])
    assert not Rulebook(Source().fetch, Random(1), kept).is_known


async def test_a_member_keeps_them_where_it_keeps_its_credential(autojump_clock: MockClock, tmp_path: Path) -> None:
    plane, state = Plane(), StateDir(tmp_path)
    membership = membership_of(plane, Identity.generate(), state, token=NODE_TOKEN)
    assert membership.kept_rules == KeptRules(tmp_path, MESH)
    assert membership_of(plane, Identity.generate()).kept_rules is None
    await trio.lowlevel.checkpoint()
