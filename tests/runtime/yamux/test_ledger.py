"""So much at once, so much in the long run, and nothing that a peer can save up."""

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmesh.errors import LimitExceededError
from agentmesh.runtime.yamux import Allowance, MuxLimits, Waste
from agentmesh.runtime.yamux.ledger import Ledger

START = 1_000_000.0


def ledger(burst: int = 3, per_second: float = 0.5) -> Ledger:
    return Ledger(dict.fromkeys(Waste, Allowance(burst, per_second)), START)


def spent(accounts: Ledger, waste: Waste = Waste.PINGS) -> int:
    """How many more there are before the account is overdrawn."""
    for count in range(100_000):
        try:
            accounts.spend(waste)
        except LimitExceededError as exc:
            assert exc.limit == waste.value
            return count
    raise AssertionError("no end")


def test_a_burst_and_then_as_time_goes_by() -> None:
    accounts = ledger()
    assert spent(accounts) == 3
    accounts.now += 2.0
    assert spent(accounts) == 1
    accounts.now += 1000.0
    assert spent(accounts) == 3


def test_each_kind_has_an_account_of_its_own() -> None:
    accounts = ledger()
    assert [spent(accounts, waste) for waste in Waste] == [3] * len(Waste)


def test_what_is_earned_can_be_spent() -> None:
    accounts = ledger()
    assert spent(accounts) == 3
    accounts.earn(Waste.PINGS)
    assert spent(accounts) == 1


def test_every_kind_has_its_limit_by_name() -> None:
    limits = MuxLimits()
    assert {waste.value for waste in Waste} <= {field.name for field in attrs.fields(MuxLimits)}
    assert set(limits.allowances) == set(Waste)


@pytest.mark.parametrize(("burst", "per_second"), [(-1, 1.0), (1, 0.0)])
def test_what_is_no_allowance(burst: int, per_second: float) -> None:
    with pytest.raises(ValueError):
        Allowance(burst, per_second)


@given(st.integers(0, 20_000), st.floats(0.01, 10_000), st.floats(0, 1e9))
def test_rounding_takes_nothing_away(burst: int, per_second: float, start: float) -> None:
    accounts = Ledger({Waste.PINGS: Allowance(burst, per_second)}, start)
    assert abs(spent(accounts) - burst) <= 1 + burst * 1e-3
