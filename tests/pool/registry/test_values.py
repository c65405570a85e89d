"""What no registry would take is refused before any is asked."""

from typing import Any

import attrs
import pytest

from agentmesh.pool.registry import Fence, IdentifierError, NewConnection, Stats
from agentmesh.protocols.pool import MAX_EPOCH, ConnEpoch


@pytest.mark.parametrize("name", ["agent_id", "connection_id", "instance_id", "server_node_id"])
@pytest.mark.parametrize("bad", ["", "a/b", "a b", "ä", "a\n", "-a", "a" * 129, "a\x00"])
def test_an_id_is_safe_in_keys_and_bounded(name: str, bad: str) -> None:
    longest = "a" * 128
    good = NewConnection(
        agent_id=longest, connection_id=longest, instance_id=longest, server_node_id=longest, capabilities=("tcp",)
    )
    change: dict[str, Any] = {name: bad}
    with pytest.raises(IdentifierError, match=name) as caught:
        attrs.evolve(good, **change)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("epoch", [-1, MAX_EPOCH + 1])
def test_an_epoch_has_63_bits(epoch: int) -> None:
    with pytest.raises(IdentifierError):
        Fence("a", "c", ConnEpoch(epoch))


@pytest.mark.parametrize("capabilities", [("x",) * 65, ("",), ("x" * 129,)])
def test_capabilities_are_bounded(capabilities: tuple[str, ...]) -> None:
    with pytest.raises(IdentifierError):
        NewConnection(agent_id="a", connection_id="c", instance_id="i", server_node_id="s", capabilities=capabilities)


@pytest.mark.parametrize(("streams", "health"), [(-1, 0), (2**31, 0), (0, -1), (0, 101)])
def test_statistics_are_bounded(streams: int, health: int) -> None:
    with pytest.raises(IdentifierError):
        Stats(streams, health)
