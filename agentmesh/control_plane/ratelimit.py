"""A token bucket."""

import math


class TokenBucket:
    """Lets `rate` requests a second pass, and `burst` at once after a quiet time. Has no clock: `now` comes in.

    Args:
        rate: tokens a second, above 0.
        burst: tokens that the bucket holds, at least 1; it starts full.
    """

    def __init__(self, rate: float, burst: float, now: float = -math.inf) -> None:
        if not rate > 0 or not burst >= 1:
            raise ValueError(f"rate is above 0 and burst at least 1, not {rate} and {burst}")
        self.rate, self.burst = rate, burst
        self._tokens, self._at = burst, now

    def take(self, now: float) -> bool:
        """Take one token if there is one. `now`: seconds on any clock that does not go back."""
        if now > self._at:
            self._tokens = min(self.burst, self._tokens + (now - self._at) * self.rate)
            self._at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
