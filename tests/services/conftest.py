import pytest

from tests.services.libraries import LIBRARIES, Library


@pytest.fixture(params=LIBRARIES, ids=lambda library: library.module.__name__)
def library(request: pytest.FixtureRequest) -> Library:
    found: Library = request.param
    return found
