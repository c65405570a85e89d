"""The benchmark of the directory, with so little to do that it is over in a moment."""

import json
from pathlib import Path

from click.testing import CliRunner

from benchmarks.directory import LOOKUPS, RECORDS_EACH, main, percentiles

TINY = ("--seconds", "0.1", "--records", str(RECORDS_EACH), "--at-once", "4")


def test_it_measures_every_lookup_and_writes_what_it_found(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    result = CliRunner().invoke(main, [*TINY, "--json", str(file)], catch_exceptions=False)
    assert result.exit_code == 0
    assert "a name, one has it" in result.stdout
    figures = json.loads(file.read_text())
    assert RECORDS_EACH <= figures["records"] <= RECORDS_EACH + 1, "its member's own record is one more"
    assert figures["announcing"] > 0
    found = [(one["what"], one["at_once"]) for one in figures["lookups"]]
    assert found == [(what, at_once) for what in LOOKUPS for at_once in (1, 4)]
    assert all(one["rate"] > 0 and one["cpu"] > 0 and one["p50"] <= one["p99"] for one in figures["lookups"])


def test_percentiles_are_of_those_that_there_are() -> None:
    assert percentiles([3.0, 1.0, 2.0]) == {"p50": 2.0, "p99": 3.0}
    assert percentiles([float(number) for number in range(200)]) == {"p50": 100.0, "p99": 198.0}
