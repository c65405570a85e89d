"""Leases of the time when an agent had one connection: what they become, whatever store they are in.

Such a lease is of an agent, a node and an epoch. Of it the connection `legacy-<epoch>` is made, of an instance and a
router that are both called like the node. It is copied once; what it was copied from stays as it is, to go back to.
"""

from datetime import UTC, datetime

import attrs

from agentmesh.pool.registry.errors import IdentifierError
from agentmesh.pool.registry.values import Fence, NewConnection

LEGACY_PREFIX = "legacy-"


@attrs.frozen
class Migration:
    """What was found, and what became of it.

    Attributes:
        copied: leases that are connections now.
        known: those that had been copied before, and are left as they are.
        refused: agents whose leases no registry could keep. They stay where they are.
    """

    copied: int = 0
    known: int = 0
    refused: tuple[str, ...] = ()

    def __add__(self, other: "Migration") -> "Migration":
        return Migration(self.copied + other.copied, self.known + other.known, self.refused + other.refused)


def connection_of(agent_id: str, node_id: str, epoch: object) -> tuple[NewConnection, Fence]:
    """The connection that a legacy lease becomes, and its fence.

    Raises:
        IdentifierError: the lease holds what no registry keeps.
    """
    try:
        number = int(str(epoch))
    except ValueError:
        raise IdentifierError("epoch is no number") from None
    new = NewConnection(
        agent_id=agent_id, connection_id=f"{LEGACY_PREFIX}{number}", instance_id=node_id, server_node_id=node_id
    )
    return new, new.fenced(number)


def seconds_of(instant: object) -> float:
    """Seconds since 1970 of text as of RFC 3339, of a number of seconds, or of a datetime; in UTC when it says none.

    Raises:
        IdentifierError: it is no instant.
    """
    try:
        match instant:
            case int() | float():
                return float(instant)
            case datetime():
                found = instant
            case _:
                found = datetime.fromisoformat(str(instant))
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise IdentifierError("expires_at is no instant") from None
