"""The faults of `python -m tests.pool.mutations` still have their places in the sources."""

import pytest

from tests.pool.mutations import MUTATIONS, ROOT


@pytest.mark.parametrize("name", sorted(MUTATIONS))
def test_a_fault_has_its_place(name: str) -> None:
    mutation = MUTATIONS[name]
    assert (ROOT / mutation.file).read_text().count(mutation.old) == 1
    assert all((ROOT / test).exists() for test in mutation.tests)
