"""Tables and charts: what they show, and where they go."""

import io
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.charts import ChartsError, write_charts
from benchmarks.results import Results
from benchmarks.tables import MarkdownError, markdown, print_results, show_number, write_markdown
from tests.benchmarks.made import growth_results, scenario_results

PNG = b"\x89PNG\r\n\x1a\n"


def printed(results: Results, width: int = 80) -> str:
    console = Console(width=width, file=io.StringIO(), record=True)
    print_results(console, results)
    lines = console.export_text().splitlines()
    assert max(map(len, lines)) <= width
    return "\n".join(" ".join(line.split()) for line in lines)


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0.00"), (1.234, "1.23"), (12.34, "12.3"), (123.4, "123"), (12345.6, "12,346")]
)
def test_a_number_has_three_digits_that_mean_something(value: float, text: str) -> None:
    assert show_number(value) == text


def test_the_terminal_shows_figures_with_their_ratios_and_what_went_wrong() -> None:
    text = printed(scenario_results())
    assert "agentmesh 400 300–500 0.50 4.00·1.60·2.00" in text
    assert "loopback-tls-trio 800 1.00 4.00·–·2.00" in text
    assert "failed: loopback-tls-trio, S1: the server ended" in text
    assert "py-libp2p was left out. py-libp2p is not here" in text
    assert "busy" not in text


def test_growth_is_shown_with_its_exponent() -> None:
    text = printed(growth_results(), width=120)
    assert "100: 4.77 200: 9.54 400: 19.1 1.00 1.00" in text
    assert "16: 40.0 64: 40.0 256: 40.0" in text


def test_a_busy_machine_and_a_broken_run_are_said() -> None:
    results = Results.from_json(scenario_results().to_json().replace('"busy": 0.02', '"busy": 0.5'))
    results.is_whole = False
    text = " ".join(printed(results).split())
    assert "The machine was busy" in text
    assert "The run was broken off" in text


def test_markdown_has_a_row_for_each_figure_and_one_for_cpu_time() -> None:
    lines = markdown(scenario_results()).splitlines()
    assert "| S1 bulk, MB/s | 400 [300–500]<br>**0.50** | 800 | 600<br>**0.75** |" in lines
    assert "| S1, s/GiB | 4.00 · 1.60 · 2.00 | 4.00 · – · 2.00 | 4.00 · 0.40 · 2.00 |" in lines
    assert "- Failed: loopback-tls-trio, S1: the server ended" in lines
    rows = [line for line in lines if line.startswith("|")]
    assert {row.count("|") for row in rows} == {5}


def test_markdown_goes_between_its_marks_and_can_be_written_again(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    write_markdown(page, scenario_results())
    page.write_text(f"before\n{page.read_text()}after\n")
    write_markdown(page, scenario_results())
    text = page.read_text()
    assert text.startswith("before\n<!-- scenarios: ")
    assert text.endswith("-->\nafter\n")
    assert text.count("S1 bulk") == 1


def test_markdown_never_goes_into_a_file_without_its_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("something of value")
    with pytest.raises(MarkdownError, match="which are not there"):
        write_markdown(page, scenario_results())
    assert page.read_text() == "something of value"


@pytest.mark.parametrize("results", [scenario_results(), growth_results()], ids=lambda results: results.kind)
def test_charts_are_images_with_every_bar_named(results: Results, tmp_path: Path) -> None:
    png, svg = write_charts(tmp_path / "new" / "folder", results)
    assert png.read_bytes().startswith(PNG)
    ElementTree.parse(svg)
    words = ["through a router", "direct TLS", "MB/s"] if results.kind == "scenarios" else ["members", "exponent 1.00"]
    for word in words:
        assert word in svg.read_text()


def test_without_matplotlib_there_are_no_charts_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.charts.MATPLOTLIB", "a_package_that_is_not_there")
    with pytest.raises(ChartsError, match=r"pip install '\.\[bench\]'"):
        write_charts(tmp_path, scenario_results())
