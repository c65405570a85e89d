"""The faults of `mutations.py` still fit the sources that they are to be put into."""

import pytest

from tests.pool.registry.mutations import MUTATIONS, ROOT, Mutation


@pytest.mark.parametrize("mutation", MUTATIONS.values(), ids=MUTATIONS)
def test_a_mutation_fits_the_sources(mutation: Mutation) -> None:
    assert mutation.fits, f"{mutation.before!r} is not there once in {mutation.file}"
    files = [argument for argument in mutation.tests if argument.endswith(".py")]
    assert files
    assert all((ROOT / file).exists() for file in files)
