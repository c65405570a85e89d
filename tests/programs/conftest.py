import signal
from pathlib import Path

import pytest

from tests.programs.programs import Machine


@pytest.fixture(autouse=True, scope="session")
def heed_interrupts() -> None:
    """Programs inherit whether Ctrl-C is ignored, as it is where a shell runs the tests in the background."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)
