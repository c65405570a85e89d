"""Whether an open that failed is made again on another connection, which its client never notices."""

from agentmesh.protocols.pool import Code, OpenResult, Stage

MAX_RETRIES = 2  # of one open
OPEN_BUDGET = 8.0  # seconds that one open may take with all its retries
RETRY_SHARE = 0.1  # of all opens: an agent in trouble gets no more opens for it
FREE_RETRIES = 10.0

_OF_THE_CONNECTION = frozenset({Stage.QUEUE, Stage.RELAY})
_NEVER = frozenset({Code.FORBIDDEN, Code.UNSUPPORTED_CAPABILITY})


def blames_connection(result: OpenResult) -> bool:
    """Whether the connection is at fault, and not the target, the rules or the client."""
    return not result.accepted and result.stage in _OF_THE_CONNECTION


class RetryBudget:
    """How many retries there may be: a tenth of the opens, and a few."""

    def __init__(self) -> None:
        self._credit = FREE_RETRIES

    def note_open(self) -> None:
        """An open is made for a client, and not again."""
        self._credit = min(self._credit + RETRY_SHARE, FREE_RETRIES)

    def take(self, result: OpenResult, retries: int, left: float) -> bool:
        """Whether to try once more, which is counted.

        Args:
            result: of the last try. No byte of the client's has left.
            retries: that this open has had.
            left: seconds of its time.
        """
        may = result.retryable and result.code not in _NEVER and retries < MAX_RETRIES and left > 0
        if not may or self._credit < 1:
            return False
        self._credit -= 1
        return True
