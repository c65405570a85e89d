"""Putting several routers' answers together, sans-IO: when to stop waiting, and whose word counts.

A lookup ends when everybody has answered, when there is enough, or when its time is over. With something in hand it
waits only a moment for the slow: a router that hangs costs a lookup that moment and not its whole time.
"""

import enum
import math
from collections.abc import Iterable

import attrs

from agentmesh.protocols.directory.events import Answer, Found, Status
from agentmesh.types import PeerId

LOOKUP_TIMEOUT = 2.5  # seconds for an answer with nothing in hand; less than an asker waits
LOOKUP_PATIENCE = 0.25  # seconds for further answers with something in hand


class State(enum.Enum):
    SEARCHING = "nothing found yet"
    SETTLING = "something found"
    FINISHED = "finished"


class Input(enum.Enum):
    FOUND = "an answer with something"
    NOTHING = "an answer with nothing, or none"
    ENOUGH = "as much as was asked for"
    LAST = "the last answer"
    TIMEOUT = "timeout"


_SRCH, _SETL, _DONE = State
# fmt: off
ROWS: dict[State, tuple[State, ...]] = {
    #       FOUND  NOTHING ENOUGH LAST   TIMEOUT
    _SRCH: (_SETL, _SRCH,  _DONE, _DONE, _DONE),
    _SETL: (_SETL, _SETL,  _DONE, _DONE, _DONE),
    _DONE: (_DONE, _DONE,  _DONE, _DONE, _DONE),
}
# fmt: on
TRANSITIONS = {(state, got): to for state, row in ROWS.items() for got, to in zip(Input, row, strict=True)}


class Lookup:
    """One lookup.

    Args:
        own: what the router that is asked knows itself.
        asked: how many routers are asked.
        limit: how many providers are enough.
        now: when it begins.
        timeout: seconds to wait with nothing in hand.
        patience: seconds to wait for more.

    `now` is seconds on the driver's clock. Answers that come after the end change nothing.
    """

    def __init__(
        self,
        own: Iterable[Found],
        asked: int,
        limit: int,
        now: float,
        timeout: float = LOOKUP_TIMEOUT,
        patience: float = LOOKUP_PATIENCE,
    ) -> None:
        self.state = State.SEARCHING
        self.deadline = now + timeout
        self._answered = 0
        self._asked = asked
        self._patience = patience
        self._limit = limit
        self._waiting = asked
        self._found: dict[PeerId, Found] = {}
        self._heard: dict[PeerId, float] = {}  # when
        self._take(own, now)

    def receive_answer(self, answer: Answer, now: float) -> None:
        """A router has answered, be it with nothing. One that could not do what was asked has not."""
        self._waiting -= 1
        self._answered += answer.status is Status.OK
        self._take(answer.found, now)

    def receive_failure(self, now: float) -> None:
        """A router will not answer."""
        self._waiting -= 1
        self._take((), now)

    def handle_timeout(self, now: float) -> None:
        if now >= self.deadline:
            self._step(Input.TIMEOUT, now)

    @property
    def is_finished(self) -> bool:
        return self.state is State.FINISHED

    @property
    def is_in_vain(self) -> bool:
        """Whether routers were asked and none of them answered: that nothing was found says nothing then."""
        return self._asked > 0 and self._answered == 0

    @property
    def found(self) -> tuple[Found, ...]:
        """What there is, at most `limit` of them."""
        return tuple(self._found.values())[: self._limit]

    def good(self, now: float) -> tuple[Found, ...]:
        """As `found`, each with the time that it is good for still; what has expired since it was heard is left out.
        A router's own knowledge has no time, and does not expire.
        """
        aged = (attrs.evolve(one, ttl=max(one.ttl - (now - self._heard[one.peer]), 0.0)) for one in self.found)
        return tuple(after for one, after in zip(self.found, aged, strict=True) if after.ttl > 0 or not one.ttl)

    def _take(self, found: Iterable[Found], now: float) -> None:
        if self.is_finished:
            return
        got = Input.NOTHING
        for one in found:
            got = Input.FOUND
            held = self._found.get(one.peer)
            if held is None or one.sequence > held.sequence:
                self._found[one.peer], self._heard[one.peer] = one, now
        self._step(got, now)
        if len(self._found) >= self._limit:
            self._step(Input.ENOUGH, now)
        if self._waiting <= 0:
            self._step(Input.LAST, now)

    def _step(self, got: Input, now: float) -> None:
        was, self.state = self.state, TRANSITIONS[self.state, got]
        if self.state is State.FINISHED:
            self.deadline = math.inf
        elif was is State.SEARCHING and self.state is State.SETTLING:
            self.deadline = min(self.deadline, now + self._patience)
