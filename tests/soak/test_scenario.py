"""What a seed stands for."""

from collections import Counter

import pytest

from tests.soak.scenario import Attack, Fault, Habit, Rates, Scope, make_scenario


def test_a_seed_stands_for_one_scenario() -> None:
    one = make_scenario(7, members=50, seconds=120)
    assert make_scenario(7, members=50, seconds=120) == one
    assert make_scenario(8, members=50, seconds=120) != one


@pytest.mark.parametrize("seed", range(5))
def test_everything_happens_and_is_over_in_time(seed: int) -> None:
    scenario = make_scenario(seed, members=100, seconds=300, rates=Rates(transfers=3.0))
    assert len(scenario.transfers) == 100 * 5 * 3
    assert {injection.fault for injection in scenario.injections} == set(Fault)
    assert {injection.scope for injection in scenario.injections} == set(Scope)
    assert {transfer.habit for transfer in scenario.transfers} == set(Habit)
    assert {assault.attack for assault in scenario.assaults} == set(Attack)
    assert {restart.abrupt for restart in scenario.restarts} == {True, False}
    for listed in (scenario.injections, scenario.restarts, scenario.assaults):
        assert all(event.at >= 0 and event.at + event.lasts <= 300.001 for event in listed)
    assert all(100 <= transfer.size <= 1_000_000 for transfer in scenario.transfers)
    assert all(transfer.sender != transfer.receiver for transfer in scenario.transfers)
    assert max(Counter(transfer.sender for transfer in scenario.transfers).values()) < 50
