"""The member ladder: what it reckons, and one small climb of real programs."""

import json
from pathlib import Path

import attrs
import pytest
from click.testing import CliRunner

from agentmesh.bench.report import Hold, JoinReport, Member, Outages
from benchmarks.climbing import Settings
from benchmarks.ladder import Climb, main
from benchmarks.ladder_chart import write_chart
from benchmarks.programs import metrics_in, value_of
from benchmarks.steps import MIB, Model, Process, RouterState, Snapshot, Step, as_json, holds_of, lines_of

SETTINGS = Settings(
    members=250,
    step=100,
    routers=4,
    wanted=2,
    high_watermark=4000,
    ramp=20.0,
    settle=0.0,
    enroll_rate=200.0,
    join_timeout=900.0,
    calls=True,
)
SMALL = ("--members", "300", "--step", "150", "--ramp", "0", "--routers", "2", "--wanted", "1", "--settle", "0s")
IDLE = Process(50 * MIB, 1.0)
ROUTER = RouterState(IDLE, 0, 0, 4000, 0, 0, 0, 0, 0)
EMPTY = Snapshot(IDLE, 2, (attrs.evolve(ROUTER, outbound=1), attrs.evolve(ROUTER, inbound=1)), Process(0, 0.0))
HOLD = Hold(60.0, 10, 9, 1, 1, Outages(50.0, 50.0), 0, 0)


def climbed(number: int, resident: int) -> Step:
    """`resident` members, each held by both routers."""
    held = Process(50 * MIB + resident * 100 * 1024, 1.0 + resident / 10)
    routers = tuple(attrs.evolve(one, process=held, inbound=one.inbound + resident) for one in EMPTY.routers)
    after = attrs.evolve(EMPTY, routers=routers, members=Process(resident * MIB, 5.0))
    report = JoinReport((Member(100.0, 5.0), Member(300.0)), 10, 10, 0, 10, 3.0, {}, {}, HOLD)
    return Step(number, resident, EMPTY, after, report)


def test_steps_make_up_all_members_and_what_the_kernel_has_to_allow_follows() -> None:
    assert SETTINGS.counts == [100, 100, 50]
    needs = attrs.evolve(SETTINGS, members=5000, step=500).needs()
    assert (needs.files, needs.ports, needs.neighbours) == (3 * 3000 + 64, 5000, 0)
    assert attrs.evolve(SETTINGS, members=200).counts == [100, 100]


def test_the_sizing_model_is_that_of_the_guide() -> None:
    model = Model(members=5000, wanted=2, routers=4, high_watermark=4000)
    assert (model.sessions_per_router, model.members_that_fit, model.between_routers) == (2500, 8000, 6)
    assert model.watermark_needed == pytest.approx(4000)
    assert Model(10, 2, 1, 4000).sessions_per_router == 10


def test_metrics_are_read_by_name_and_labels() -> None:
    metrics = metrics_in('# TYPE a gauge\na{b="c",d="e"} 3\n# TYPE f counter\nf_total 4\n')
    assert (value_of(metrics, "a", d="e", b="c"), value_of(metrics, "f_total")) == (3, 4)


def test_a_table_has_the_model_beside_what_was_measured() -> None:
    steps = [climbed(1, 10), climbed(2, 20)]
    shown = dict(lines_of(steps, wanted=2))
    assert shown["members"] == ["10", "20"]
    assert shown["  that did not come"] == ["0", "0"]
    assert Climb(steps).is_good
    assert not Climb([attrs.evolve(steps[0], report=None)]).is_good
    assert not Climb(steps, "interrupted").is_good
    assert shown["ready, ms: median, p99, last"] == ["100, 300, 300"] * 2
    assert shown["sessions of a router, by the model"] == ["10", "20"]
    assert shown["  measured, least and most"] == ["10 to 11", "20 to 21"]
    assert shown["  for each session, KiB"] == ["100", "100"]
    assert shown["CPU of all routers in the step, s"] == ["2.0", "4.0"]
    assert [number for number, _ in holds_of(steps)] == ["1", "2"]
    assert holds_of([attrs.evolve(steps[0], report=None)]) == []


def test_a_ladder_is_drawn(tmp_path: Path) -> None:
    assert [path.name for path in write_chart(tmp_path, [climbed(1, 10), climbed(2, 20)], 2)] == [
        "ladder.png",
        "ladder.svg",
    ]
    assert json.loads(json.dumps(as_json([climbed(1, 10)])))[0]["ready_ms"]["count"] == 2


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--wanted", "3", "--routers", "2"), "a member cannot hold more routers than there are"),
        (("--members", "9000000"), "the kernel does not allow that"),
    ],
)
def test_what_cannot_be_is_said_at_once(arguments: tuple[str, ...], text: str) -> None:
    result = CliRunner().invoke(main, list(arguments))
    assert result.exit_code in (1, 2)
    assert text in result.stderr


@pytest.mark.timeout(300)
def test_three_hundred_members_climb_a_ladder_and_every_one_comes_and_stays(tmp_path: Path) -> None:
    file, charts = tmp_path / "ladder.json", tmp_path / "charts"
    arguments = [*SMALL, "--json", str(file), "--charts", str(charts), "--folder", str(tmp_path / "run")]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    found = json.loads(file.read_text())
    assert [step["resident"] for step in found["steps"]] == [150, 300]
    assert found["why"] == ""
    for step in found["steps"]:
        assert (step["report"]["completed"], step["report"]["failed"]) == (150, 0)
        assert step["report"]["hold"]["members_exited"] == 0
        assert step["ready_ms"]["count"] == step["first_call_ms"]["count"] == 150
        assert step["after"]["routers_active"] == 2
        assert step["after"]["members"]["memory"] > 0
    last = found["steps"][-1]["after"]["routers"]
    assert sum(router["reservations"] for router in last) in (301, 302)  # the member that serves holds one more, or two
    assert sum(router["outbound"] for router in last) == 1
    assert (charts / "ladder.png").stat().st_size > 0
