"""Results: their JSON, their ratios, and files that are none."""

import json
from pathlib import Path

import attrs
import pytest

from benchmarks.figures import FIGURES, ON_STREAMS, SCENARIOS, Figure, measured_by
from benchmarks.measure import GROUPS, MEASURES
from benchmarks.results import Measurement, Results, ResultsError, Settings, read_results
from benchmarks.run import plan, steps_of
from benchmarks.stacks.known import AGENTMESH, STACKS, TLS
from benchmarks.summary import Summary
from tests.benchmarks.made import growth_results, scenario_results

BULK = next(figure for figure in FIGURES if figure.scenario == "S1")
ROUTER_CPU = next(figure for figure in FIGURES if figure.scenario == "S8")


@pytest.mark.parametrize("results", [scenario_results(), growth_results()], ids=lambda results: results.kind)
def test_json_gives_back_what_was_written(results: Results) -> None:
    assert Results.from_json(results.to_json()) == results


def test_the_form_in_json() -> None:
    """Others read it: a change of these names is a new format."""
    data = json.loads(scenario_results().to_json())
    assert data["format"] == 1
    assert set(data) == {"format", *(field.name for field in attrs.fields(Results))}
    assert set(data["settings"]) == {"scenarios", "repeat", "seconds", "members"}
    assert {"cpu", "cores", "kernel", "python", "openssl", "versions", "load", "busy"} <= set(data["machine"])
    assert set(data["measurements"][0]) == {"stack", "scenario", "repeat", "values", "size", "error"}
    assert data["measurements"][3]["error"] == "the server ended"


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "7", "{}", '{"format": 2}', '{"format": 1}', '{"format": 1, "kind": 3}']
)
def test_what_is_no_result_is_told_with_its_name(text: str, tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    path.write_text(text)
    with pytest.raises(ResultsError, match=r"old\.json: "):
        read_results([path])


def test_a_failed_repeat_is_an_error_and_no_number() -> None:
    results = scenario_results()
    assert results.summary("agentmesh", BULK) == Summary(400.0, 300.0, 500.0)
    assert results.summary("loopback-tls-trio", BULK) == Summary(800.0, 800.0, 800.0)
    assert results.errors() == ["loopback-tls-trio, S1: the server ended"]


def test_circuits_that_failed_are_told_beside_those_that_did_not() -> None:
    results = scenario_results()
    results.measurements = [Measurement("py-libp2p", "S5", 0, {"count": 11.0, "failed": 2.0, "p50": 0.1})]
    assert results.errors() == ["py-libp2p, S5: 2 failed, 11 went well"]


def test_the_ratio_is_to_the_same_run() -> None:
    results = scenario_results()
    assert results.ratio("agentmesh", BULK) == 0.5
    assert results.ratio("agentmesh", ROUTER_CPU) == 4.0
    assert results.ratio("py-libp2p", BULK) is None
    results.measurements = [one for one in results.measurements if one.stack == "agentmesh"]
    assert results.ratio("agentmesh", BULK) is None


def test_cpu_time_is_that_of_each_process_for_a_piece_of_work() -> None:
    assert scenario_results().cpu("agentmesh", "S1") == {"caller": 4.0, "router": 1.6, "server": 2.0}


def test_growth_is_fitted_where_there_is_something_to_fit() -> None:
    results = growth_results()
    fit = results.fit("members", "router_bytes")
    assert fit is not None
    assert fit.exponent == pytest.approx(1)
    assert results.fit("streams", "server_bytes") is None
    assert results.fit("circuits", "router_bytes") is None


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.title)
def test_a_figure_has_a_scenario_that_is_measured(figure: Figure) -> None:
    assert measured_by(figure.scenario) in MEASURES
    assert figure.reference is None or figure.scenario in STACKS[figure.reference].scenarios


def test_every_scenario_is_measured_in_one_group() -> None:
    grouped = [scenario for scenarios, _ in GROUPS for scenario in scenarios]
    assert sorted(grouped) == sorted(MEASURES) == sorted({measured_by(scenario) for scenario in SCENARIOS})
    assert set(ON_STREAMS) < set(grouped)


def test_every_stack_is_measured_before_any_is_measured_again() -> None:
    settings = Settings(("S1", "S6", "S8"), repeat=2, seconds=1.0, members=1)
    planned = [(repeat, stack.name, scenarios) for repeat, stack, scenarios, _ in plan([AGENTMESH, TLS], settings)]
    once = [("agentmesh", ("S1",)), ("agentmesh", ("S6",)), ("loopback-tls-trio", ("S1",))]
    assert planned == [(repeat, *group) for repeat in range(2) for group in once]
    assert steps_of([AGENTMESH, TLS], settings) == 6


def test_a_measurement_without_values_has_no_figure() -> None:
    results = scenario_results()
    results.measurements = [Measurement("agentmesh", "S1", 0)]
    assert results.summary("agentmesh", BULK) is None
