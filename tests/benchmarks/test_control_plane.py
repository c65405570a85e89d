"""The benchmark of the control plane, with so little to do that it is over in a moment."""

import json
from pathlib import Path

from click.testing import CliRunner

from benchmarks.control_plane import main

TINY = ("--seconds", "0.1", "--members", "20", "--routers", "2", "--callers", "3")


def test_it_measures_both_databases_and_writes_what_it_found(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    result = CliRunner().invoke(main, [*TINY, "--json", str(file)], catch_exceptions=False)
    assert result.exit_code == 0
    assert "20 members, 2 routers, 3 callers" in result.stdout
    figures = json.loads(file.read_text())
    assert figures["verifications"] > 0
    assert [found.pop("database") for found in figures["databases"]] == ["SQLite", "PostgreSQL"]
    for found in figures["databases"]:
        assert {name for name, value in found.items() if value <= 0} - {
            "enrollment_cpu",
            "info_cpu",
        } == set()  # in ticks
        assert found["info_bytes"] > 400
