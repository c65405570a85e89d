"""What the relay's tests share."""

import pytest

from tests.protocols.relay import net


@pytest.fixture(params=[net.STREAMS, net.CONNECTIONS])
def carriers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever carries circuits, for those who open them it is the same."""
    monkeypatch.setattr(net, "CARRIER", request.param)
