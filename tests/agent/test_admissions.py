"""When routers and an agent's process show each other their credentials again."""

from hypothesis import given
from hypothesis import strategies as st

from agentmesh.agent.admissions import EXPIRY_SPREAD, LEAD, MIN_WAIT, next_look

CHANCES = st.floats(0, 1)


@given(st.floats(-1e6, 1e6), CHANCES)
def test_a_router_is_asked_in_time_and_not_without_end(left: float, chance: float) -> None:
    wait = next_look(1000.0, 1000.0 + left, chance) - 1000.0
    assert wait >= MIN_WAIT or abs(wait - MIN_WAIT) < 1e-6
    if left > 2 * MIN_WAIT:
        assert wait <= left


def test_a_fleet_asks_one_after_the_other_and_all_of_it_before_the_end() -> None:
    looks = [next_look(0.0, 86400.0, chance / 100) for chance in range(101)]
    assert max(looks) == 86400.0 - LEAD
    assert min(looks) == 86400.0 - LEAD - EXPIRY_SPREAD


def test_what_is_short_lived_is_asked_for_half_way() -> None:
    assert next_look(0.0, 20.0, 0.5) == 10.0
    assert next_look(0.0, 1.0, 0.5) == MIN_WAIT
