"""What befalls the connections of agents, as it happens: written to the log, kept for a while, told to who listens.

All listeners read the same ring, each from a place of its own. One that is slow holds nothing back and costs nothing;
what has left the ring before it was read is told as a number.
"""

import logging
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from typing import NoReturn

import attrs
import trio

from agentmesh.pool.router.audit import Action, Audit, AuditEvent

logger = logging.getLogger("agentmesh.audit")

MAX_KEPT = 1024  # events in the ring
MAX_LISTENERS = 64

GRAVE = frozenset({Action.REJECTED, Action.CLONED, Action.SUPERSEDED, Action.UNLISTED, Action.CLOSE_FAILED})


@attrs.frozen
class Happened:
    """An event, and its ID: by it a listener that comes again says where it was."""

    id: str
    event: AuditEvent


@attrs.frozen
class Missed:
    """Events that the listener will not get.

    Attributes:
        count: how many; None: it cannot be known, they were of an earlier run of this router.
    """

    count: int | None


class AgentEvents:
    """The events of one router.

    Args:
        audit: where they are written down first.
        run_id: names this run of the router; IDs begin with it.

    Attributes:
        listeners: how many there are.
    """

    def __init__(
        self, audit: Audit, run_id: str, *, max_kept: int = MAX_KEPT, max_listeners: int = MAX_LISTENERS
    ) -> None:
        self.listeners = 0
        self._audit, self._run_id, self._max_listeners = audit, run_id, max_listeners
        self._kept: deque[AuditEvent] = deque(maxlen=max_kept)
        self._count = 0  # events so far: the number of the latest
        self._lost = 0
        self._waiting = trio.lowlevel.ParkingLot()

    @property
    def is_full(self) -> bool:
        """Whether there are as many listeners as there may be."""
        return self.listeners >= self._max_listeners

    async def run(self) -> NoReturn:
        """Take the events from the book, until cancelled."""
        while True:
            recorded = trio.Event()
            self._audit.watch(recorded.set)
            self._publish(self._audit.take(trio.current_time()))
            with trio.move_on_at(self._audit.deadline):
                await recorded.wait()

    def close(self) -> None:
        """Take what is left in the book: nothing more will happen."""
        self._publish(self._audit.close())

    @contextmanager
    def listen(self, after: str = "") -> "Generator[Listener]":
        """Listen for as long as the block lasts.

        Args:
            after: the ID of the last event that was had; "" begins with what comes next.
        """
        self.listeners += 1
        try:
            yield self._listener(after)
        finally:
            self.listeners -= 1

    def _listener(self, after: str) -> "Listener":
        if not after:
            return Listener(self, self._count)
        run_id, _, number = after.partition(".")
        known = run_id == self._run_id and number.isascii() and number.isdecimal() and len(number) < 20
        if not known or int(number) > self._count:
            return Listener(self, self._count - len(self._kept), Missed(None))
        return Listener(self, int(number))

    def since(self, number: int) -> tuple[int, list[Happened]]:
        """How many events after this number are gone, and those that are not."""
        first = self._count - len(self._kept) + 1
        wanted = max(number + 1, first)
        events = list(self._kept)[wanted - first :]
        return wanted - number - 1, [Happened(self.id_of(wanted + n), event) for n, event in enumerate(events)]

    async def wait_after(self, number: int) -> None:
        """Wait for an event after the one of this number."""
        while self._count <= number:
            await self._waiting.park()

    def id_of(self, number: int) -> str:
        return f"{self._run_id}.{number}"

    def _publish(self, events: list[AuditEvent]) -> None:
        for event in events:
            _write(event)
            self._kept.append(event)
            self._count += 1
        if self._audit.lost > self._lost:
            logger.warning("entries lost", extra={"count": self._audit.lost - self._lost})
            self._lost = self._audit.lost
        if events:
            self._waiting.unpark_all()


class Listener:
    """One listener's place in the ring. Made by `AgentEvents.listen`."""

    def __init__(self, events: AgentEvents, number: int, missed: Missed | None = None) -> None:
        self._events, self._number, self._missed = events, number, missed

    @property
    def last_id(self) -> str:
        """Of the event up to which everything was had."""
        return self._events.id_of(self._number)

    async def receive(self) -> list[Happened | Missed]:
        """What has happened since the last call, at least one thing.

        Cancellation: safe; nothing is lost.
        """
        if self._missed is None:
            await self._events.wait_after(self._number)
        found: list[Happened | Missed] = []
        gone, events = self._events.since(self._number)
        if self._missed is not None:
            found.append(self._missed)
            self._missed = None
        elif gone:
            found.append(Missed(gone))
        self._number += gone + len(events)
        return [*found, *events]


def _write(event: AuditEvent) -> None:
    logger.log(
        logging.WARNING if event.action in GRAVE else logging.INFO,
        event.action.value,
        extra={
            "agent": event.agent_id,
            "instance": event.instance_id,
            "connection": event.connection_id,
            "epoch": event.epoch,
            "router": event.server_node_id,
            "token_id": event.token_id,
            "reason": event.reason,
            "count": event.count,
        },
    )
