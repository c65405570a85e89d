import pytest
import trio
import trio.testing


@pytest.fixture
def patient_clock() -> trio.testing.MockClock:
    """A virtual clock for tests with sockets: it jumps when nothing has happened for a while, not while bytes are on
    their way through the kernel.
    """
    return trio.testing.MockClock(autojump_threshold=0.05)
