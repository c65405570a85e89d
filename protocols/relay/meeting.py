"""Where the two connections of one circuit meet, in the relay.

    near      hop: CONNECT, data_path ─▶     relay     stop: CONNECT, offer ─▶              far
                                                       ◀─ stop: STATUS OK, data_path
              ◀─ hop: STATUS OK, offer
              ══ a connection: door byte, ticket ═▶    ◀═ a connection: door byte, ticket ══
              ◀═ welcome ══                            ══ welcome ═▶

Or one of them does not come, and on both streams it is said that they carry the circuit (`pairing`).
"""

from collections.abc import Callable, Iterable
from contextlib import suppress

import attrs
import trio

from agentmesh.abc import Splicer, Stream
from agentmesh.errors import ErrorCode
from agentmesh.protocols.relay.circuit import Circuit, SplicedEnd
from agentmesh.protocols.relay.control import Control
from agentmesh.protocols.relay.events import Offer
from agentmesh.protocols.relay.pairing import Pairing, StreamsChosen
from agentmesh.protocols.relay.pairing import State as PairingState
from agentmesh.protocols.relay.rendezvous import Input, Rendezvous, State
from agentmesh.protocols.relay.tickets import Side
from agentmesh.protocols.relay.wire import WELCOME
from agentmesh.runtime.direct import nowait_sender
from agentmesh.runtime.messages import flush, wait_event

AGREEMENT_TIMEOUT = 10.0  # seconds in which an end that is to go over streams has to say that it does


@attrs.define
class _End:
    """An end on its way.

    Attributes:
        connection: its own, while it is there.
        missed: whether it is for want of it that the circuit goes over streams.
        watch: cancelled when nobody has to watch the connection any more.
    """

    connection: trio.abc.HalfCloseableStream | None = None
    missed: bool = False
    watch: trio.CancelScope = attrs.Factory(trio.CancelScope)


@attrs.frozen
class _Line:
    """To an end: its stream, and what is agreed on there."""

    side: Side
    stream: Stream
    pairing: Pairing


@attrs.define(eq=False)
class Meeting:
    """Of one circuit, from its offer to its end.

    Attributes:
        circuit: the circuit.
        offer: makes the offer to an end, good from now on.
        splicer: what moves its bytes, should it come to that.
        timeout: seconds that the connections have to come, once both ends know of the circuit.
        on_decided: called once, synchronously.
        rendezvous: how it stands.
    """

    circuit: Circuit
    offer: Callable[[Side], Offer]
    splicer: Splicer
    timeout: float
    on_decided: Callable[["Meeting"], None]
    rendezvous: Rendezvous = attrs.Factory(Rendezvous)
    _ends: dict[Side, _End] = attrs.Factory(lambda: {side: _End() for side in Side})
    _decided: trio.Event = attrs.Factory(trio.Event)
    _over: trio.Event = attrs.Factory(trio.Event)

    # ── connections ──

    async def attend(self, side: Side, connection: trio.abc.HalfCloseableStream) -> None:
        """Be there with the connection of one end, for as long as it is needed."""
        end = self._ends[side]
        end.connection = connection
        self.rendezvous.comes(side)
        self._settle()
        with end.watch:
            await _wait_restless(connection)
        if not end.watch.cancelled_caught:
            end.connection, end.missed = None, True
            self._receive(Input.LEFT)
        elif self.rendezvous.state is State.SPLICED:
            try:
                await self._over.wait()
            finally:
                if not self._over.is_set():
                    self.circuit.cut(ErrorCode.NO_ERROR)  # the listener closes that the connection came by

    def give_up(self) -> None:
        """The far end does not take its offer."""
        self._receive(Input.UNTAKEN)

    def close(self) -> None:
        """The circuit has ended."""
        self._over.set()
        for end in self._ends.values():
            end.watch.cancel()

    def _receive(self, got: Input) -> None:
        self.rendezvous.receive(got)
        if self.rendezvous.state is State.BROKEN:
            self.circuit.cut(ErrorCode.PROTOCOL_VIOLATION)
        self._settle()

    def _settle(self) -> None:
        """Once it is decided nobody watches the connections: what comes on them is the circuit's."""
        if self.rendezvous.is_decided and not self._decided.is_set():
            self._decided.set()
            self.on_decided(self)
            for end in self._ends.values():
                end.watch.cancel()

    # ── the circuit ──

    async def carry(self, near: Stream, far: Stream, early_near: bytes, early_far: bytes) -> None:
        """Carry the circuit: on connections if they come, else over the streams. For the rest as `Circuit.carry`."""
        deadline = trio.current_time() + self.timeout + AGREEMENT_TIMEOUT
        with self.circuit.cut_by_errors():
            lines = (
                _Line(Side.NEAR, near, Pairing(early_near, deadline)),
                _Line(Side.FAR, far, Pairing(early_far, deadline)),
            )
            await self._decide(lines)
            if self.rendezvous.state is State.STREAMED:
                await self._agree_on_streams(lines)
                await self.circuit.carry(near, far, *(line.pairing.trailing() for line in lines))
            else:
                near_end, far_end = [await self._welcome(line) for line in lines]
                await self.circuit.splice(near_end, far_end, self.splicer)
        await trio.lowlevel.checkpoint_if_cancelled()

    async def _decide(self, lines: Iterable[_Line]) -> None:
        async with trio.open_nursery() as nursery:
            for line in lines:
                nursery.start_soon(self._hear, line)
            with trio.move_on_after(self.timeout):
                await self._decided.wait()
            if not self.rendezvous.is_decided:
                for end in self._ends.values():
                    end.missed = end.connection is None
                self._receive(Input.TIMEOUT)
            nursery.cancel_scope.cancel()
        await trio.lowlevel.checkpoint_if_cancelled()

    async def _hear(self, line: _Line) -> None:
        """An end that cannot come says so."""
        with self.circuit.cut_by_errors():
            await wait_event(line.pairing, line.stream)
            self._ends[line.side].missed = True
            self._receive(Input.DECLINED)

    async def _agree_on_streams(self, lines: Iterable[_Line]) -> None:
        async with trio.open_nursery() as nursery:
            for line in lines:
                nursery.start_soon(self._agree, line)
        await trio.lowlevel.checkpoint_if_cancelled()

    async def _agree(self, line: _Line) -> None:
        with self.circuit.cut_by_errors():
            line.pairing.send_streams(missed=self._ends[line.side].missed)
            await flush(line.pairing, line.stream)
            agreed = line.pairing.state is PairingState.STREAMED
            if not agreed and not isinstance(await wait_event(line.pairing, line.stream), StreamsChosen):
                raise trio.TooSlowError("an end does not go over streams")

    async def _welcome(self, line: _Line) -> SplicedEnd:
        connection = self._ends[line.side].connection
        assert connection is not None
        line.pairing.splice()
        if not nowait_sender(connection)(WELCOME):
            await connection.send_all(WELCOME)
        return SplicedEnd(Control(line.stream), connection)


async def _wait_restless(connection: trio.abc.HalfCloseableStream) -> None:
    """Until the connection ends or breaks, or brings a byte before its time."""
    with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        await connection.receive_some(1)
