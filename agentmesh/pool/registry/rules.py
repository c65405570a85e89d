"""What a registration comes to, given what the store holds. Every store asks here, within its own transaction."""

import attrs

from agentmesh.pool.registry.errors import EpochsExhaustedError
from agentmesh.pool.registry.limits import RegistryLimits
from agentmesh.pool.registry.values import Full, Held, Superseded
from agentmesh.protocols.pool import MAX_EPOCH, ConnEpoch

NO_EPOCH = -1  # the floor of an agent that nothing is known of


@attrs.frozen
class Remembered:
    """A connection that the store knows.

    Attributes:
        expires_at: of the lease that is listed; None when there is none any more.
    """

    epoch: int
    server_node_id: str
    expires_at: float | None


@attrs.frozen
class Granted:
    """The connection is to be listed under `epoch`.

    Attributes:
        replaced: the epoch of the life that ends by it.
    """

    epoch: ConnEpoch
    replaced: ConnEpoch | None


def decide(
    proposed: int | None, found: Remembered | None, floor: int, listed: int, limits: RegistryLimits
) -> Granted | Held | Superseded | Full:
    """Decide a registration.

    Args:
        found: the connection, if it is remembered.
        floor: the highest epoch of the agent's connections that are not remembered any more.
        listed: how many connections of the agent are listed.
    Raises:
        EpochsExhaustedError: no epoch is above the last one.
    """
    fence = floor if found is None else found.epoch
    is_listed = found is not None and found.expires_at is not None
    if found is not None and proposed is not None and proposed <= found.epoch:
        return Superseded(ConnEpoch(found.epoch))
    if found is not None and found.expires_at is not None and proposed is None:
        return Held(found.server_node_id, ConnEpoch(found.epoch), found.expires_at)
    if not is_listed and listed >= limits.max_connections_per_agent:
        return Full("max_connections_per_agent", limits.max_connections_per_agent)
    least = max(fence + 1, 0 if proposed is not None else 1)  # epoch 0 is only ever proposed
    epoch = least if proposed is None else max(proposed, least)
    if epoch > MAX_EPOCH:
        raise EpochsExhaustedError(f"epoch {fence} was used: there is none above")
    return Granted(ConnEpoch(epoch), ConnEpoch(fence) if is_listed else None)
