"""When to renew a credential, and how long to wait after a failure."""

LONG_LEFT = 6 * 3600.0  # seconds; above it the renewal is due a fixed time before the end
LEAD = 4.8 * 3600.0
MIN_WAIT = 2.0
RETRY_WAIT = 30.0  # after a renewal that failed


def renewal_wait(now: float, expires_at: float) -> float:
    """Seconds from `now` until a credential that ends at `expires_at` should be renewed; at least 2, at once when
    over.
    """
    left = expires_at - now
    if left <= 0:
        return 0.0
    return left - LEAD if left > LONG_LEFT else max(left / 2, MIN_WAIT)


def retry_wait(now: float, expires_at: float) -> float:
    """Seconds from `now`, when a renewal has failed, until the next attempt: the last one is made when it is over."""
    return max(min(RETRY_WAIT, expires_at - now), MIN_WAIT)
