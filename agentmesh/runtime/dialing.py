"""One dial under way: an attempt an address, the first session wins, every caller shares it."""

from collections.abc import Sequence

import trio

from agentmesh.errors import DialError
from agentmesh.runtime.session import MuxSession
from agentmesh.types import Address, PeerId


class Dial:
    """The state of one dial. Attempts report to it, callers wait for it; it owns no task.

    Args:
        peer: who is dialled; None for whoever answers.
        addresses: where, each an attempt.
    """

    def __init__(self, peer: PeerId | None, addresses: Sequence[Address]) -> None:
        self.peer = peer
        self._scopes = {address: trio.CancelScope() for address in addresses}
        self._errors: dict[Address, Exception] = {}
        self._session: MuxSession | None = None
        self._done = trio.Event()
        self._news = trio.Event()  # an attempt has failed, or the dial is over
        self._waiters = 0

    def scope(self, address: Address) -> trio.CancelScope:
        """The scope of one attempt; cancelled when another wins or nobody waits any more."""
        return self._scopes[address]

    @property
    def is_over(self) -> bool:
        return self._done.is_set()

    def won(self, session: MuxSession, address: Address) -> bool:
        """An attempt has a session. False when another was first: close it."""
        if self.is_over:
            return False
        self._session = session
        self._finish()
        self._cancel(address)
        self._errors.clear()  # nobody asks any more; with their tracebacks they would live as long as the session
        return True

    def failed(self, address: Address, error: Exception) -> None:
        """An attempt is over without a session."""
        if self._session is not None:
            return
        self._errors[address] = error
        self._tell()
        if len(self._errors) == len(self._scopes):
            self._finish()

    def end(self) -> None:
        """No attempt is under way any more."""
        self._done.set()

    async def wait_turn(self, stagger: float) -> None:
        """Until the next attempt is to begin, or the dial is over.

        Args:
            stagger: seconds that those under way have for themselves, unless one of them fails.
        """
        with trio.move_on_after(0 if self.is_over else stagger):
            await self._news.wait()

    async def wait(self) -> None:
        """Until the dial is over; `outcome` tells how.

        Cancellation: safe; the dial goes on for the callers that are left, and ends with the last.
        """
        self._waiters += 1
        try:
            await self._done.wait()
        finally:
            self._waiters -= 1
            if not self._waiters and not self.is_over:
                self._finish()
                self._cancel(None)

    def outcome(self) -> MuxSession:
        """The session that won.

        Raises:
            DialError: every attempt failed, or nobody waited long enough.
        """
        if self._session is None:
            raise self._failure()
        return self._session

    def abandon(self) -> None:
        """Whoever would have had the session to itself is gone."""
        if self._session is not None:
            self._session.abort("nobody is there to use it")

    def _finish(self) -> None:
        self._done.set()
        self._tell()

    def _tell(self) -> None:
        news, self._news = self._news, trio.Event()
        news.set()

    def _cancel(self, winner: Address | None) -> None:
        for address, scope in self._scopes.items():
            if address != winner:
                scope.cancel()

    def _failure(self) -> DialError:
        reasons = "; ".join(_reason(address, self._errors.get(address)) for address in self._scopes)
        whom = "" if self.peer is None else f"{self.peer}: "
        failure = DialError(f"cannot reach {whom}{reasons}")
        errors = list(self._errors.values())
        if errors:
            failure.__cause__ = errors[0] if len(errors) == 1 else ExceptionGroup("the attempts failed", errors)
        return failure


def _reason(address: Address, error: Exception | None) -> str:
    """With the address once, and without the peer, who is named before it."""
    said = str(error) or type(error).__name__
    if error is None or isinstance(error, trio.TooSlowError):
        said = "no answer in time"
    return f"{address.without_peer()}: {said.replace(str(address), 'it')}"
