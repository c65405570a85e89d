from pathlib import Path

import pytest

from tests.programs.programs import Machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)
