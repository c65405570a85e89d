"""How a keeper is set up, and what it has to say."""

import enum

import attrs

from agentmesh.pool.registry.keeping import Kept
from agentmesh.pool.registry.values import Fence
from agentmesh.protocols.pool import ConnEpoch


@attrs.frozen(kw_only=True)
class KeeperConfig:
    """All times in seconds.

    Attributes:
        ttl: that a lease lasts.
        renew_interval: between renewals of one lease; up to a fifth less, so that they spread.
        trust: the part of `ttl` for which a renewal is relied upon.
        retry_interval: between attempts while the registry does not answer.
        stats_interval: between reports of how busy connections are; those that changed, and each at least once in a
            `renew_interval`.
        operation_timeout: for one call of the registry.
        release_timeout: for the call that ends a lease. After it the lease runs out by itself.
        forget_interval, fence_retention: how often epochs of ended connections are forgotten, and after how long.
        max_at_once: renewals on their way.
    """

    ttl: float = 90.0
    renew_interval: float = 30.0
    trust: float = 2 / 3
    retry_interval: float = 5.0
    stats_interval: float = 5.0
    operation_timeout: float = 5.0
    release_timeout: float = 1.0
    forget_interval: float = 3600.0
    fence_retention: float = 86_400.0
    max_at_once: int = attrs.field(default=16, validator=attrs.validators.ge(1))

    def __attrs_post_init__(self) -> None:
        if not 0 < self.trust < 1 or not 0 < self.renew_interval < self.trust * self.ttl:
            raise ValueError("a lease has to be renewed before it stops being relied upon, and that before it ends")


class Result(enum.StrEnum):
    """What came of calls of the registry."""

    RENEWED = "renewed"
    LAPSED = "lapsed"
    HEALED = "healed"
    LOST = "lost"
    FULL = "full"
    UNAVAILABLE = "unavailable"


@attrs.frozen
class Healed:
    """The lease had run out; the connection is listed again, under `kept.fence`."""

    kept: Kept
    before: Fence


@attrs.frozen
class Lost:
    """A later life of the connection began elsewhere: open no stream on this one, drain it (replaced), close it."""

    kept: Kept
    epoch: ConnEpoch


@attrs.frozen
class Unlisted:
    """The lease has run out, and the agent has too many others now. It is tried again."""

    kept: Kept
    limit: str


KeeperEvent = Healed | Lost | Unlisted


def tell_nobody(_: KeeperEvent) -> None:
    """For tests and for those who only look at `Kept`."""
