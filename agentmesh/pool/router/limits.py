"""Every bound of a router's pool, by its name. 0 means no limit, except where it says otherwise."""

import attrs

DEFAULT_CONNECTIONS_PER_AGENT = 64
MAX_CONNECTIONS_PER_AGENT = 512


def _connections(value: int) -> int:
    return value or DEFAULT_CONNECTIONS_PER_AGENT


@attrs.frozen(kw_only=True)
class PoolLimits:
    """Settings of the pool of one router."""

    max_connections_per_agent: int = attrs.field(default=DEFAULT_CONNECTIONS_PER_AGENT, converter=_connections)
    """Of one agent over all its processes, those that drain not counted; at most 512. 0 means the default."""
    max_connections_per_token: int = 128
    """Made with one credential."""
    max_connections_per_node: int = 10_000
    """On this router."""
    registrations_per_second: float = 5.0
    """New connections of one credential, in the long run."""
    max_streams_per_connection: int = 1024
    max_streams_per_agent: int = 1024 * 16
    fresh_timeout: float = 25.0
    """Seconds since anything was heard of a connection, up to which it gets streams."""
    fence_horizon: float = 180.0
    """Seconds for which the epoch of a connection that has ended is remembered."""
    max_fences_per_agent: int = 1024
    """Epochs that are remembered; the oldest is forgotten first."""

    def __attrs_post_init__(self) -> None:
        if not 1 <= self.max_connections_per_agent <= MAX_CONNECTIONS_PER_AGENT:
            raise ValueError(f"max_connections_per_agent is from 1 to {MAX_CONNECTIONS_PER_AGENT}")
        if self.fresh_timeout <= 0 or self.fence_horizon <= 0 or self.max_fences_per_agent < 1:
            raise ValueError("fresh_timeout, fence_horizon and max_fences_per_agent are above 0")
        counts = (self.max_connections_per_token, self.max_connections_per_node, self.registrations_per_second)
        if min(*counts, self.max_streams_per_connection, self.max_streams_per_agent) < 0:
            raise ValueError("a limit is not negative")

    @property
    def registration_burst(self) -> int:
        """New connections of one credential at once: all of an agent, twice."""
        return 2 * self.max_connections_per_agent


def is_full(count: int, limit: int) -> bool:
    """Whether one more would be too many. A limit of 0 is none."""
    return 0 < limit <= count
