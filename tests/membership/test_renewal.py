"""When a credential is renewed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmesh.membership.renewal import renewal_wait, retry_wait

HOUR = 3600.0


@pytest.mark.parametrize(
    ("left", "wait"),
    [
        (24 * HOUR, 19.2 * HOUR),
        (6 * HOUR + 1, 1.2 * HOUR + 1),
        (6 * HOUR, 3 * HOUR),
        (HOUR, HOUR / 2),
        (4.0, 2.0),
        (3.0, 2.0),
        (0.5, 2.0),
        (0.0, 0.0),
        (-5.0, 0.0),
    ],
)
def test_a_renewal_is_due_well_before_the_end(left: float, wait: float) -> None:
    assert renewal_wait(1000.0, 1000.0 + left) == pytest.approx(wait)


@pytest.mark.parametrize(("left", "wait"), [(HOUR, 30.0), (10.0, 10.0), (1.0, 2.0), (-9.0, 2.0)])
def test_a_renewal_that_failed_is_tried_again_soon_and_at_the_end(left: float, wait: float) -> None:
    assert retry_wait(1000.0, 1000.0 + left) == wait


@given(left=st.floats(4.0, 1e7))
def test_what_has_time_left_is_renewed_before_its_end(left: float) -> None:
    assert 2.0 <= renewal_wait(0.0, left) < left
