"""What members say, added up: every stage with everything said, holds, and reports that survive JSON."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmesh.bench.limits import KernelLimitError, Limits, Needs, check_limits, read_limits
from agentmesh.bench.report import Hold, JoinReport, Member, Outages, merge, percentile
from agentmesh.bench.tally import AFTER, MAX_REASONS, OTHER, News, Said, Stage, Tally, reason_of
from agentmesh.bench.worker import line_of, said_in

AMPLE = Limits(files=1000, all_files=10_000, ports=28_000, neighbours=1024)


def test_every_stage_is_decided_for_everything_that_is_said() -> None:
    assert set(AFTER) == {(stage, news) for stage in Stage for news in News}


def test_members_that_come_call_and_fail() -> None:
    tally = Tally(4, calls=True, began=100.0)
    tally.hear(Said(0, News.READY, 101.0, took=1.0))
    tally.hear(Said(1, News.READY, 101.5, took=1.5))
    tally.hear(Said(0, News.CALL_FAILED, 102.0, why="503"))
    tally.hear(Said(0, News.CALLED, 103.0, took=2.0))
    assert (tally.ready, tally.gone, tally.completed, tally.is_settled) == (2, 0, 1, False)
    tally.hear(Said(2, News.ENDED, 103.0, why="not ready in 3 s"))
    tally.hear(Said(1, News.ENDED, 104.0, why="no answer in 3 s"))
    tally.process_ended(range(4), 105.0, "the process ended")
    assert tally.is_settled
    report = tally.report(106.0)
    assert report == JoinReport(
        members=(Member(1000.0, 2000.0), Member(1500.0, None)),
        count=4,
        completed=1,
        failed=3,
        call_attempts=2,
        elapsed_seconds=6.0,
        errors={"the process ended": 2, "not ready in 3 s": 1, "no answer in 3 s": 1},
        call_errors={"503": 1},
        hold=None,
    )
    assert not report.is_good


def test_a_hold_sees_who_loses_its_routers_and_for_how_long() -> None:
    tally = Tally(3, calls=False, began=0.0)
    for number in range(3):
        tally.hear(Said(number, News.READY, 1.0, took=1.0))
    tally.hear(Said(2, News.LOST, 5.0))
    tally.begin_hold(10.0)
    tally.hear(Said(0, News.LOST, 12.0))
    tally.hear(Said(2, News.BACK, 12.5))
    tally.hear(Said(0, News.BACK, 13.0))
    tally.hear(Said(0, News.LOST, 15.0))
    tally.hear(Said(1, News.ENDED, 16.0, why="killed"))
    report = tally.report(20.0)
    assert report.hold == Hold(
        seconds=10.0,
        resident=2,
        min_ready=1,
        flaps=2,
        members_flapped=1,
        outage_ms=Outages(2500.0, 5000.0),
        members_not_ready_at_end=1,
        members_exited=1,
    )
    assert (report.completed, report.failed, report.elapsed_seconds) == (3, 0, 10.0)
    assert not report.is_good


def test_a_member_that_speaks_out_of_turn_is_a_fault_of_ours() -> None:
    tally = Tally(1, calls=False, began=0.0)
    with pytest.raises(ValueError, match="member 0 says lost while JOINING"):
        tally.hear(Said(0, News.LOST, 1.0))


def test_reasons_are_told_apart_only_so_far() -> None:
    peer = "12D3KooWLqAYTvAKCEK4AZBExTYouqp3hFWMx5Kd8i2upRLM95K1"
    assert reason_of(f"DialError: {peer}\n does not answer") == "DialError: <peer> does not answer"
    assert reason_of("") == OTHER
    tally = Tally(200, calls=False, began=0.0)
    for number in range(200):
        tally.hear(Said(number, News.ENDED, 1.0, why=f"reason {number}"))
    errors = tally.report(1.0).errors
    assert (len(errors), errors[OTHER]) == (MAX_REASONS + 1, 200 - MAX_REASONS)


@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from(News), st.floats(0, 1)), max_size=60), st.booleans())
def test_however_it_goes_the_numbers_agree(steps: list[tuple[int, News, float]], calls: bool) -> None:
    tally, now, held = Tally(5, calls, 0.0), 0.0, False
    for member, news, wait in steps:
        now += wait
        if not held and tally.is_settled:
            tally.begin_hold(now)
            held = True
        try:
            tally.hear(Said(member, news, now, took=wait, why=news))
        except ValueError:
            continue
    report = tally.report(now)
    assert JoinReport.of_json(report.to_json()) == report
    assert report.completed + report.failed <= report.count == 5
    assert len(report.members) >= report.completed
    if held:
        hold = report.hold
        assert hold is not None
        assert 0 <= hold.min_ready <= hold.resident + hold.members_flapped
        assert hold.members_flapped <= min(hold.flaps, 5)
        assert report.completed + report.failed == 5


@given(st.text(), st.floats(0, 1e6))
def test_what_is_said_arrives(why: str, took: float) -> None:
    said = Said(7, News.ENDED, 3.5, took, why[:1000])
    assert said_in(line_of(said)) == said
    assert line_of(said).count(b"\n") == 1


def test_one_report_merged_with_none_is_itself_and_labels_in_common_stay() -> None:
    one = JoinReport((Member(5.0),), 1, 1, 0, 0, 2.0, {}, {}, None, {"step": "1", "host": "a"})
    assert merge([one]) == one
    other = JoinReport((Member(3.0),), 2, 1, 1, 0, 3.0, {"late": 1}, {}, None, {"step": "1", "host": "b"})
    both = merge([one, other])
    assert (both.labels, both.count, both.elapsed_seconds) == ({"step": "1"}, 3, 3.0)
    assert [member.ready_ms for member in both.members] == [3.0, 5.0]


def test_the_fields_of_a_report_are_those_that_others_read() -> None:
    hold = Hold(1.0, 1, 1, 0, 0, Outages(), 0, 0)
    content = json.loads(JoinReport((Member(5.0, 1.0),), 1, 1, 0, 1, 2.0, {}, {}, hold, {"step": "1"}).to_json())
    assert set(content) == {"labels", "join"}
    join = {"members", "count", "completed", "failed", "call_attempts", "elapsed_seconds", "errors", "call_errors"}
    assert set(content["join"]) == {*join, "hold"}
    assert set(content["join"]["members"][0]) == {"ready_ms", "first_call_ms"}
    assert set(content["join"]["hold"]) == {
        *("seconds", "resident", "min_ready", "flaps", "members_flapped", "outage_ms"),
        *("members_not_ready_at_end", "members_exited"),
    }
    assert set(content["join"]["hold"]["outage_ms"]) == {"p50", "max"}


@pytest.mark.parametrize(("share", "value"), [(0, 1), (50, 2), (75, 3), (76, 4), (100, 4)])
def test_a_percentile_is_one_of_the_values(share: float, value: float) -> None:
    assert percentile([3.0, 1.0, 4.0, 2.0], share) == value
    assert percentile([], share) == 0.0


@pytest.mark.parametrize(
    ("needs", "setting"),
    [
        (Needs(files=1001, all_files=1, ports=1), "ulimit -Hn"),
        (Needs(files=1, all_files=10_001, ports=1), "sysctl fs.file-max"),
        (Needs(files=1, all_files=1, ports=28_001), "sysctl net.ipv4.ip_local_port_range"),
        (Needs(files=1, all_files=1, ports=1, neighbours=1025), "sysctl net.ipv4.neigh.default.gc_thresh3"),
    ],
)
def test_what_the_kernel_does_not_allow_is_named(needs: Needs, setting: str) -> None:
    with pytest.raises(KernelLimitError, match=setting):
        check_limits(needs, AMPLE)
    check_limits(Needs(1000, 10_000, 28_000, 1024), AMPLE)
    assert read_limits().files > 0
