"""The meetings of a relay: its door, its tickets, and what becomes of those who come."""

import os
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

import attrs
import trio

from agentmesh.abc import ByteStream, Splicer
from agentmesh.protocols.relay.book import CircuitEntry
from agentmesh.protocols.relay.circuit import Circuit
from agentmesh.protocols.relay.events import Offer
from agentmesh.protocols.relay.meeting import Meeting
from agentmesh.protocols.relay.rendezvous import FALLBACKS
from agentmesh.protocols.relay.tickets import Fate, Side, TicketTable
from agentmesh.protocols.relay.wire import DOOR_BYTE, PREAMBLE_BYTES
from agentmesh.runtime.doors import Door
from agentmesh.types import Address

UNFIT = "unfit"  # a good ticket, on a connection whose bytes cannot be moved
REFUSALS: tuple[str, ...] = (*(fate.value for fate in Fate), UNFIT)
REASONS: tuple[str, ...] = tuple(reason.value for reason in FALLBACKS)
NO_METHOD = "off"


@attrs.frozen
class DataPathConfig:
    """Settings of circuits on connections of their own.

    Attributes:
        enabled: whether there are any; without, all circuits go over streams.
        pairing_timeout: seconds that both connections have to come, once both ends know of the circuit.
        ticket_lifetime: seconds that a ticket is good.
        max_circuits: how many there are at once; further circuits go over streams.
        max_circuits_per_peer: how many of them one peer has asked for.
    """

    enabled: bool = True
    pairing_timeout: float = 5.0
    ticket_lifetime: float = 10.0
    max_circuits: int = 1024
    max_circuits_per_peer: int = 128


@attrs.frozen
class DataPathStatistics:
    """A snapshot of a relay's data paths. `circuits` is a size, the numbers below it count up.

    Attributes:
        method: how bytes are moved: "splice", "copy", or "off".
        circuits: that are on connections of their own, or may get there.
        spliced: circuits that got there.
        fallbacks: circuits that went over streams instead, by reason (all of REASONS, from 0).
        refusals: connections that came through the door and were sent away, by reason (all of REFUSALS, from 0).
    """

    method: str
    circuits: int
    spliced: int
    fallbacks: dict[str, int]
    refusals: dict[str, int]


class Meetings:
    """Those of all circuits.

    Args:
        config: the settings.
        splicer: what moves bytes; None when nothing here can.
        draw: so many random bytes that nobody can guess.
    """

    def __init__(
        self, config: DataPathConfig, splicer: Splicer | None, draw: Callable[[int], bytes] = os.urandom
    ) -> None:
        self._config = config
        self._splicer = splicer if config.enabled else None
        self._tickets = TicketTable(
            draw,
            lifetime=config.ticket_lifetime,
            max_circuits=config.max_circuits,
            max_circuits_per_peer=config.max_circuits_per_peer,
        )
        self._meetings: dict[CircuitEntry, Meeting] = {}
        self._spliced = 0
        self._fallbacks = dict.fromkeys(REASONS, 0)
        self._refusals = dict.fromkeys(REFUSALS, 0)

    @property
    def doors(self) -> tuple[Door, ...]:
        """For the connections of circuits."""
        if self._splicer is None:
            return ()
        return (Door(DOOR_BYTE, PREAMBLE_BYTES, self._config.pairing_timeout, self._serve),)

    def statistics(self) -> DataPathStatistics:
        return DataPathStatistics(
            method=NO_METHOD if self._splicer is None else self._splicer.method,
            circuits=len(self._meetings),
            spliced=self._spliced,
            fallbacks=dict(self._fallbacks),
            refusals=dict(self._refusals),
        )

    @contextmanager
    def arranged(self, circuit: Circuit, addresses: Sequence[Address]) -> Generator[Meeting | None]:
        """A meeting for a circuit, for as long as the block lasts; None when there can be none.

        Args:
            addresses: where its ends may come, beside where they have come before.
        """
        if self._splicer is None or not self._tickets.open(circuit.entry):
            yield None
            return

        def offer(side: Side) -> Offer:
            return Offer(self._tickets.issue(circuit.entry, side, trio.current_time()), tuple(addresses))

        meeting = Meeting(circuit, offer, self._splicer, self._config.pairing_timeout, self._decided)
        self._meetings[circuit.entry] = meeting
        try:
            yield meeting
        finally:
            meeting.close()
            del self._meetings[circuit.entry]
            self._tickets.forget(circuit.entry)

    def _decided(self, meeting: Meeting) -> None:
        reason = meeting.rendezvous.fallback
        if reason is None:
            self._spliced += 1
        else:
            self._fallbacks[reason.value] += 1
            self._tickets.revoke(meeting.circuit.entry)

    async def _serve(self, stream: ByteStream, preamble: bytes) -> None:
        """A connection that has come through the door."""
        claim = self._tickets.redeem(preamble[1:], trio.current_time())
        if isinstance(claim, Fate):
            self._refusals[claim.value] += 1
            return
        connection = None if self._splicer is None else self._splicer.take(stream)
        if connection is None:
            self._refusals[UNFIT] += 1
        else:
            await self._meetings[claim.circuit].attend(claim.side, connection)
