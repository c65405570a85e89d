"""How long to go on trying: a budget of elapsed time, not a number of attempts."""

from random import Random

import attrs


@attrs.frozen
class Backoff:
    """All in seconds."""

    budget: float = 180.0  # after which no further attempt is begun
    first_wait: float = 1.0  # at most, before the second attempt; doubles from then on
    max_wait: float = 15.0
    max_retry_after: float = 60.0  # the most that a Retry-After is taken at its word


class Retries:
    """The waits of one call. Has no clock: `now` is seconds on any clock that does not go back."""

    def __init__(self, backoff: Backoff, rng: Random, now: float) -> None:
        self._backoff, self._rng = backoff, rng
        self._give_up_at = now + backoff.budget
        self._wait = backoff.first_wait

    def next_wait(self, now: float, retry_after: float | None = None) -> float | None:
        """How long to wait before the next attempt; None when the budget does not reach that far.

        Full jitter, so that a fleet turned away at once does not come back at once; what the other side asks for with
        Retry-After is waited first.
        """
        asked = min(retry_after or 0.0, self._backoff.max_retry_after)
        wait = asked + self._rng.uniform(0.0, self._wait)
        self._wait = min(2 * self._wait, self._backoff.max_wait)
        return wait if now + wait <= self._give_up_at else None
