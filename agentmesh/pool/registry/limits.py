"""Every bound of the registry, by its name."""

import attrs


@attrs.frozen(kw_only=True)
class RegistryLimits:
    """All are at least 1.

    Attributes:
        max_connections_per_agent: listed at once, in the whole cluster. Refused is who comes too late; a connection
            that is listed already is always let in again.
        max_fences_per_agent: connections that have ended, whose epochs are remembered one by one. Of those before, the
            highest epoch is.
        max_ttl: seconds that a lease may last.
        max_batch: reports in one update of statistics.
        max_listed: connections in one answer; nothing beyond max_connections_per_agent of the whole cluster is.
        max_races: times that a change is tried anew because another was faster.
    """

    max_connections_per_agent: int = attrs.field(default=64, validator=attrs.validators.ge(1))
    max_fences_per_agent: int = attrs.field(default=1024, validator=attrs.validators.ge(1))
    max_ttl: float = attrs.field(default=3600.0, validator=attrs.validators.gt(0))
    max_batch: int = attrs.field(default=256, validator=attrs.validators.ge(1))
    max_listed: int = attrs.field(default=512, validator=attrs.validators.ge(1))
    max_races: int = attrs.field(default=20, validator=attrs.validators.ge(1))
