"""`agentmesh bench`: help, what is refused at once, and reports as distributions."""

import json
from pathlib import Path

import attrs
import pytest
from click.testing import CliRunner, Result

from agentmesh.bench.report import Hold, JoinReport, Member, Outages
from agentmesh.cli import main
from agentmesh.cli.bench import marking

HOLD = Hold(60.0, 2, 1, 3, 2, Outages(100.0, 900.0), 0, 0)
REPORT = JoinReport(
    (Member(100.0, 10.0), Member(300.0)), 3, 2, 1, 5, 12.0, {"late": 1}, {"503": 4}, HOLD, {"step": "2"}
)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["bench", *arguments], prog_name="agentmesh", env={"COLUMNS": "100"})


def test_help_names_every_option_and_what_it_is_for() -> None:
    text = run("join", "--help").output
    for option in ("--control-plane", "--bootstrap-token-path", "--count", "--ramp", "--hold", "--service", "--label"):
        assert f"\n  {option} " in text
    for option in ("--routers", "--resident-marker", "--processes", "--out", "--join-timeout"):
        assert f"\n  {option} " in text
    assert "\n  --by LABEL" in run("summary", "--help").output


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["jion"], "agentmesh bench: No such command 'jion'. Did you mean 'join'?"),
        (["join", "--cuont", "3"], "agentmesh bench join: No such option '--cuont'. (Did you mean"),
        (["join", "--count", "0"], "0 is not in the range"),
        (["join", "--count", "3"], "Missing option '--bootstrap-token-path'"),
        (["join", "--bootstrap-token-path", "/missing", "--count", "3"], "/missing: No such file or directory"),
        (["join", "--service", "weather"], "'weather' is no TYPE/NAME; TYPE is one of a2a,"),
        (["join", "--service", "ftp/x"], "'ftp/x' is no TYPE/NAME"),
        (["join", "--label", "blue"], "'blue' is no key=value"),
        (["join", "--out", "/missing/report.json"], "/missing/report.json: no folder to write it in"),
        (["join", "--resident-marker", "/missing/there"], "/missing/there: no folder to write it in"),
        (["summary"], "Missing argument 'REPORT"),
    ],
)
def test_wrong_usage_is_one_clear_line(arguments: list[str], text: str) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stderr.count("\n"), result.stdout) == (2, 1, ""), result.output
    assert text in result.stderr


def test_what_the_kernel_does_not_allow_is_said_before_anything_is_started(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("agentmesh-bt-0")
    result = run("join", "--bootstrap-token-path", str(token), "--count", "5000000", "--processes", "1")
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1), result.output
    assert "a process needs 25000064 open files" in result.stderr
    assert "sysctl net.ipv4.ip_local_port_range" in result.stderr


def test_a_marker_of_an_earlier_run_is_none_of_this_one(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    marker.write_text("")
    made = marking(str(marker))
    assert not marker.exists()
    made()
    assert marker.exists()
    assert marking(None)() is None


def test_reports_are_merged_into_distributions(tmp_path: Path) -> None:
    files = [tmp_path / f"{number}.json" for number in range(3)]
    other = attrs.evolve(REPORT, members=(Member(200.0, 20.0),), labels={"step": "10"}, hold=None)
    for file, report in zip(files, (REPORT, REPORT, other), strict=True):
        file.write_text(report.to_json())
    found = json.loads(run("summary", "--json", "--by", "step", *map(str, files)).stdout)
    assert [(row["name"], row["reports"]) for row in found] == [("step=2", 2), ("step=10", 1), ("all", 3)]
    both, _, all_of_them = found
    assert (both["count"], both["completed"], both["failed"], both["call_attempts"]) == (6, 4, 2, 10)
    assert all_of_them["ready_ms"] == {"count": 5, "values": {"p50": 200, "p90": 300, "p99": 300, "max": 300}}
    assert all_of_them["first_call_ms"] == {"count": 3, "values": {"p50": 10, "p90": 20, "p99": 20, "max": 20}}
    assert all_of_them["errors"] == {"late": 3}
    hold = {"seconds": 60, "resident": 4, "min_ready": 2, "flaps": 6, "members_flapped": 4}
    assert both["hold"] == {
        **hold,
        "outage_ms": {"p50": 100, "max": 900},
        "members_not_ready_at_end": 0,
        "members_exited": 0,
    }
    text = run("summary", *map(str, files)).stdout
    assert "ready, ms, p50" in text
    assert "calls: 12 × 503" in text


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"labels": {}, "join": {"members": [1]}}'])
def test_a_file_that_is_no_report_is_named(tmp_path: Path, content: str) -> None:
    file = tmp_path / "file.json"
    file.write_text(content)
    result = run("summary", str(file))
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert f"{file}: no report of members that joined" in result.stderr
    missing = run("summary", str(tmp_path / "missing.json"))
    assert (missing.exit_code, "missing.json: No such file" in missing.stderr) == (1, True)
