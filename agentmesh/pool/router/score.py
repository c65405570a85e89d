"""What one more stream on a connection costs, in thousandths of a stream. Integers only: every router gets the same."""

import attrs

STREAM = 1000
MAX_PENALTY = 16 * STREAM  # of a queue that is full, of a way that is long, of opens that fail: a high watermark each
QUEUE_WAIT_US = 200_000  # as bad as a full queue
RTT_STEP_US = 25_000  # slower than the fastest: as bad as a stream
SLOW_START_US = 10_000_000
SLOW_START_STREAMS = 8
STATS_STEP_MS = 10_000  # of what is known of a remote connection: each as bad as a stream
MAX_STATS_STREAMS = 4


@attrs.frozen
class Load:
    """What is known of a connection.

    Attributes:
        active: streams open or being opened.
        queued_bytes, queue_limit_bytes: what waits to be sent, and how much may.
        queue_wait_us: how long it waits, 95th percentile.
        rtt_us: smoothed; None when it was not measured.
        errors: thousandths of recent opens that failed for the connection's own fault.
        age_us: since it was registered.
        stats_age_ms: how old this knowledge is; 0 of a local connection.
    """

    active: int = 0
    queued_bytes: int = 0
    queue_limit_bytes: int = 0
    queue_wait_us: int = 0
    rtt_us: int | None = None
    errors: int = 0
    age_us: int = SLOW_START_US
    stats_age_ms: int = 0


def score(load: Load, best_rtt_us: int | None) -> int:
    """The lower the better.

    Args:
        best_rtt_us: of the connections that it is compared with.
    """
    return (
        STREAM * load.active
        + queue_penalty(load)
        + rtt_penalty(load.rtt_us, best_rtt_us)
        + error_penalty(load.errors)
        + newness_penalty(load.age_us)
        + min(load.stats_age_ms * STREAM // STATS_STEP_MS, MAX_STATS_STREAMS * STREAM)
    )


def queue_penalty(load: Load) -> int:
    """Quadratic: a short queue is none."""
    filled = STREAM * load.queued_bytes // load.queue_limit_bytes if load.queue_limit_bytes else 0
    waited = STREAM * load.queue_wait_us // QUEUE_WAIT_US
    pressure = min(max(filled, waited), STREAM)
    return MAX_PENALTY * pressure * pressure // (STREAM * STREAM)


def rtt_penalty(rtt_us: int | None, best_rtt_us: int | None) -> int:
    """Against the fastest, so that an agent that is far away as a whole pays nothing."""
    if rtt_us is None or best_rtt_us is None:
        return 0
    return min(max(rtt_us - best_rtt_us, 0) * STREAM // RTT_STEP_US, MAX_PENALTY)


def error_penalty(errors: int) -> int:
    return MAX_PENALTY * errors // 1000


def newness_penalty(age_us: int) -> int:
    """Whole streams, 8 at birth: an empty newcomer is not to get everything."""
    left = max(SLOW_START_US - age_us, 0)
    return STREAM * (-(-SLOW_START_STREAMS * left // SLOW_START_US))


def health_score(load: Load, best_rtt_us: int | None) -> int:
    """From 0 to 100, as other routers see it: opens that fail weigh twice what a long way or a long queue does."""
    lost = 2 * error_penalty(load.errors) + rtt_penalty(load.rtt_us, best_rtt_us) + queue_penalty(load)
    return 100 - 100 * lost // (4 * MAX_PENALTY)
