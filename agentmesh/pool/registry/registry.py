"""The registry of connections: which routers serve which agent, over which connections, in which life of each.

Each change is fenced: it names the agent, the connection and the epoch of the life that it is about, and does nothing
when a later life has begun. The store mints the epochs; they never go back, whatever expires, is deleted or restarts.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from agentmesh.pool.registry.limits import RegistryLimits
from agentmesh.pool.registry.values import (
    ConnectionLease,
    Fence,
    NewConnection,
    RegisterOutcome,
    ReleaseOutcome,
    RenewOutcome,
    StatsOutcome,
    StatsReport,
)
from agentmesh.protocols.pool import ConnEpoch


class ConnectionRegistry(ABC):
    """Where leases of connections are kept.

    Any call may raise RegistryUnavailableError. Whether a lease has run out is decided by the store's clock alone.

    Cancellation: a change that has begun may be carried through; the caller is cancelled after it, or at once. To ask
    again is always safe.

    Attributes:
        limits: may be changed. A lower one puts out nobody who is in.
    """

    limits: RegistryLimits

    @abstractmethod
    async def register_connection(
        self, new: NewConnection, ttl: float, proposed: ConnEpoch | None = None
    ) -> RegisterOutcome:
        """List a connection, in a life of its own.

        Args:
            ttl: seconds that the lease lasts, unless it is renewed.
            proposed: None has the store mint an epoch, if the connection is not listed. A number above all epochs of
                the connection so far is taken, and puts an end to the life that is listed; a lower one, or the same,
                is Superseded. Of a connection that nobody remembers the epoch may turn out higher than proposed: what
                counts is the fence in the answer.
        Raises:
            IdentifierError: `ttl` is out of bounds.
            EpochsExhaustedError: no epoch is left.
        """

    @abstractmethod
    async def renew_connection(self, fence: Fence, ttl: float) -> RenewOutcome:
        """Have the lease last `ttl` seconds from now. One that has run out stays so: Lapsed."""

    @abstractmethod
    async def release_connection(self, fence: Fence) -> ReleaseOutcome:
        """List the connection no more. Its epochs stay used."""

    @abstractmethod
    async def list_active_by_agent(self, agent_id: str, *, exact: bool = False) -> tuple[ConnectionLease, ...]:
        """The connections whose leases have not run out, by connection ID; at most `max_listed`.

        Args:
            agent_id: in any case.
            exact: only this spelling counts.
        Raises:
            AmbiguousAgentError: several agents go by this ID in different cases, and `exact` was not asked for.
        """

    @abstractmethod
    async def update_connection_stats(self, reports: Sequence[StatsReport]) -> tuple[StatsOutcome, ...]:
        """Note how busy connections are: an outcome for each report, in their order. No lease lasts longer for it.

        Raises:
            IdentifierError: more than `max_batch` reports.
        """

    @abstractmethod
    async def forget_fences(self, retention: float) -> int:
        """Stop remembering, one by one, the epochs of connections that ended more than `retention` seconds ago.

        Their agent's highest epoch stays known, so that no epoch ever comes again. Returns how many were forgotten.

        Args:
            retention: not less than 0. (In etcd it counts from the last registration or release, by routers' clocks.)
        """
