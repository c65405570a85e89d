"""The benchmark of a router that stops: what it counts, and one small run of real processes."""

import json
from itertools import chain
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.commands import Answer
from benchmarks.failover import Round, figures_of, main, partners_of, round_of, shares
from benchmarks.holding import Holding

ONE, OTHER, THIRD = "one", "other", "third"
TINY = ("--members", "12", "--processes", "1", "--interval", "0.2", "--settle", "1", "--repeat", "1")


def held(*changes: tuple[float, str]) -> Holding:
    holding = Holding(2)
    for at, routers in changes:
        holding.changed(frozenset(routers.split()), at)
    return holding


def test_a_member_is_whole_again_when_it_holds_as_many_without_the_one_that_went() -> None:
    holding = held((1, "one"), (2, "one other"), (10, "other"), (10.5, "other third"), (11, "one other third"))
    assert holding.held(ONE, 9)
    assert holding.held(ONE, 1)
    assert not holding.held(ONE, 0.5)
    assert not holding.held(THIRD, 9)
    assert holding.whole_again(ONE, 9) == 10.5
    assert holding.is_whole


def test_a_member_that_lacks_one_is_not_whole_again() -> None:
    holding = held((1, "one other"), (10, "other"))
    assert holding.whole_again(ONE, 9) is None
    assert not holding.is_whole
    assert Holding(1).whole_again(ONE, 0) is None
    assert not Holding(1).is_whole


def test_the_same_routers_once_more_are_no_change() -> None:
    holding = held((1, "one other"), (10, "other third"), (20, "third other"))
    assert holding.whole_again(ONE, 15) is None
    assert holding.whole_again(ONE, 9) == 10


@pytest.mark.parametrize(
    ("members", "processes", "expected"), [(200, 2, [100, 100]), (7, 3, [3, 2, 2]), (1, 2, [1, 0])]
)
def test_members_are_spread_over_processes(members: int, processes: int, expected: list[int]) -> None:
    assert shares(members, processes) == expected


def test_everybody_calls_somebody_else_and_is_called() -> None:
    peers = [["a", "b", "c"], ["d", "e"]]
    partners = partners_of(peers)
    assert [len(some) for some in partners] == [3, 2]
    pairs = list(zip(chain(*peers), chain(*partners), strict=True))
    assert all(caller != called for caller, called in pairs)
    assert {called for _, called in pairs} == set("abcde")


def report(took: list[float], left: int = 0, failed: int = 0, why: str = "") -> Answer:
    return {"took": took, "left": left, "calls": {"made": 10, "failed": failed, "slowest": 0.01, "why": why}}


def test_reports_are_added_up() -> None:
    found = round_of([report([0.3, 0.1]), report([0.2], left=1, failed=2, why="DialError: gone")])
    assert found == Round((0.1, 0.2, 0.3), 1, 20, 2, 0.01, "DialError: gone")
    assert not found.is_good
    good = round_of([report([0.1])])
    assert good.is_good
    figures = figures_of([found, good])
    assert (figures["median"], figures["p99"], figures["last"]) == pytest.approx((100, 300, 300))
    assert (figures["members"], figures["left"], figures["calls"], figures["failed"]) == (4, 1, 30, 2)


def test_a_round_in_which_nobody_moved_has_no_times() -> None:
    assert "median" not in figures_of([round_of([report([])])])
    assert not round_of([report([])]).is_good


def test_where_no_router_would_be_left_nothing_is_run() -> None:
    result = CliRunner().invoke(main, ["--routers", "2"])
    assert result.exit_code == 2
    assert "fewer than a member wants" in result.output


def test_members_are_whole_again_and_no_call_fails(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    result = CliRunner().invoke(main, [*TINY, "--json", str(file)], catch_exceptions=False)
    found = json.loads(file.read_text())
    assert result.exit_code == 0, (result.output, found["rounds"])
    assert "calls that failed" in result.output
    figures = found["figures"]
    assert 0 < figures["median"] <= figures["p99"] <= figures["last"]
    assert figures["left"] == figures["failed"] == 0
    assert figures["calls"] > 12
    assert found["settings"]["members"] == 12
