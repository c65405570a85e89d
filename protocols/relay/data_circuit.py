"""A circuit as either of its ends has it, when it may get a connection of its own."""

from collections.abc import Sequence
from contextlib import suppress

import trio

from agentmesh.abc import BufferReceiver, DataDialer, DataStream, Stream
from agentmesh.errors import DialError, ErrorCode, MeshError, RemoteProtocolError, SessionClosedError
from agentmesh.protocols.relay.circuit_stream import CircuitStream
from agentmesh.protocols.relay.control import Control
from agentmesh.protocols.relay.events import CircuitLimits
from agentmesh.protocols.relay.leaving import FAILED, end, linger
from agentmesh.protocols.relay.pairing import Pairing, State, StreamsChosen
from agentmesh.protocols.relay.wire import DOOR_BYTE, WELCOME
from agentmesh.runtime.messages import flush, wait_event
from agentmesh.types import Address, PeerId

DECISION_TIMEOUT = 15.0  # seconds that a relay has to say what carries a circuit

PAIR_ERRORS = (MeshError, trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError)


class DataCircuit(CircuitStream, BufferReceiver):
    """A circuit for which there is an offer. Until `pair` has returned, whoever uses it waits.

    Somebody has to run `pair`, and then `hold`.

    Args:
        stream: where it was offered.
        early: what came behind the offer.
        peer: who the relay says is at the other end.
        limits: what the circuit may use.
        ticket: of the offer.
        dialer: what dials.
        addresses: of the relay, to be tried in turn.
    """

    def __init__(
        self,
        stream: Stream,
        early: bytes,
        peer: PeerId,
        limits: CircuitLimits,
        ticket: bytes,
        dialer: DataDialer,
        addresses: Sequence[Address],
    ) -> None:
        super().__init__(stream, early, peer, limits)
        self._preamble = bytes([DOOR_BYTE]) + ticket
        self._dialer = dialer
        self._addresses = addresses
        self._control = Control(stream)
        self._data: DataStream | None = None
        self._decided = trio.Event()
        self._left = trio.Event()  # closed on this side

    @property
    def is_spliced(self) -> bool:
        return self._data is not None

    # ── what carries it ──

    async def pair(self) -> bool:
        """Dial the relay, and find out what carries the circuit.

        Returns:
            Whether there is nothing amiss with our way there; False is a reason not to try again soon.
        Raises:
            RemoteProtocolError: the relay broke the protocol.
            TooSlowError: it did not decide within DECISION_TIMEOUT.
            BrokenResourceError: the stream broke.
            ClosedResourceError: the circuit was closed meanwhile.
        Cancellation: safe. The circuit is reset.
        """
        try:
            return await self._pair()
        except BaseException as exc:
            reason = exc if isinstance(exc, trio.BrokenResourceError) else trio.BrokenResourceError(str(exc))
            self._control.error = reason
            self._stream.reset()
            if self._data is not None:
                self._data.close_now()
            raise
        finally:
            self._decided.set()

    async def _pair(self) -> bool:
        pairing = Pairing(self._early, trio.current_time() + DECISION_TIMEOUT)
        self._early = b""
        failure, missed = None, False
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._come, pairing, nursery.cancel_scope)
            try:
                missed = await self._hear(pairing)
            except PAIR_ERRORS as exc:
                failure = exc  # raised below: in here it would come in a group
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure
        if self._data is None:
            self._early = pairing.trailing()
            return not missed
        if pairing.state is not State.OPEN:
            raise RemoteProtocolError("the relay chose streams, and welcomed the connection")
        pairing.splice()
        return True

    async def _hear(self, pairing: Pairing) -> bool:
        """Wait until the relay says that the streams carry the circuit, and agree. Returns whether we were missed."""
        chosen = await wait_event(pairing, self._stream)
        if not isinstance(chosen, StreamsChosen):
            raise trio.TooSlowError(f"relay {self.relay} did not decide what carries a circuit")
        if pairing.state is State.HEARD:
            pairing.send_streams()
            await flush(pairing, self._stream)
        return chosen.missed

    async def _come(self, pairing: Pairing, until: trio.CancelScope) -> None:
        """Be welcomed on a connection, which ends the waiting; or say that we cannot come."""
        for address in self._addresses:
            data = await self._knock(address)
            if data is not None:
                self._data = data
                until.cancel()
                return
        if pairing.state is State.OPEN:
            pairing.send_streams()
            with trio.CancelScope(shield=True), suppress(trio.BrokenResourceError, trio.TooSlowError):
                await flush(pairing, self._stream)  # a matter of moments: half a message would be none

    async def _knock(self, address: Address) -> DataStream | None:
        try:
            data = await self._dialer.dial_data(address)
        except DialError:
            return None
        try:
            await data.send_all(self._preamble)
            if await data.receive_some(len(WELCOME)) == WELCOME:
                return data
        except trio.BrokenResourceError:
            pass
        except BaseException:
            data.close_now()
            raise
        data.close_now()
        return None

    async def hold(self) -> None:
        """Be there for as long as the circuit is spliced; else return at once.

        Cancellation: breaks the circuit.
        """
        if (data := self._data) is None:
            return
        try:
            await self._control.listen()
            if self._control.finished:
                await self._left.wait()  # what has come can still be read
        except RemoteProtocolError as exc:
            self._control.error = trio.BrokenResourceError(str(exc))
            self._stream.reset(exc.code)
        except trio.ClosedResourceError:  # by us
            await linger(data)
        except trio.Cancelled:
            self._control.error = self._control.error or SessionClosedError(f"the session to {self.relay} ended")
            self._stream.reset()
            raise
        finally:
            data.close_now()

    # ── a stream ──

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        carrier = await self._carrier()
        if carrier is None:
            await super().send_all(data)
            return
        try:
            await carrier.send_all(data)
        except FAILED as exc:
            await self._explain(exc)
            raise

    def send_nowait(self, data: bytes | memoryview) -> int:
        if self._left.is_set() or not self._decided.is_set() or self._control.error is not None:
            return 0
        return super().send_nowait(data) if self._data is None else self._data.send_nowait(data)

    async def wait_send_all_might_not_block(self) -> None:
        carrier = await self._carrier()
        if carrier is None:
            await super().wait_send_all_might_not_block()
            return
        try:
            await carrier.wait_send_all_might_not_block()
        except FAILED as exc:
            await self._explain(exc)
            raise

    async def send_eof(self) -> None:
        carrier = await self._carrier()
        await super().send_eof()
        if carrier is None:
            return
        try:
            await carrier.send_eof()
        except FAILED as exc:
            await self._explain(exc)
            raise

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        carrier = await self._carrier()
        if carrier is None:
            return await super().receive_some(max_bytes)
        try:
            data = await carrier.receive_some(max_bytes)
        except FAILED as exc:
            await self._explain(exc)
            raise
        if not data:
            await self._confirm_end()
        return data

    async def receive_into(self, buffer: memoryview) -> int:
        carrier = await self._carrier()
        if carrier is None:
            data = await super().receive_some(len(buffer))
            buffer[: len(data)] = data
            return len(data)
        try:
            size = await carrier.receive_into(buffer)
        except FAILED as exc:
            await self._explain(exc)
            raise
        if not size:
            await self._confirm_end()
        return size

    async def _confirm_end(self) -> None:
        """The connection has ended. Raises when that is not the end of the circuit's bytes."""
        await self._control.wait_word()
        if not self._control.finished:
            raise self._control.error or trio.BrokenResourceError("the connection of the circuit was cut off")

    async def aclose(self) -> None:
        if self._left.is_set():
            await trio.lowlevel.checkpoint()
            return
        if not self._decided.is_set():
            self.reset()
            await trio.lowlevel.checkpoint()
            return
        self._left.set()
        if self._data is None:
            await super().aclose()
            return
        try:
            await end(self._data)
            await super().aclose()
        except trio.Cancelled:
            self.reset()
            raise

    def reset(self, code: int = ErrorCode.NO_ERROR) -> None:
        self._left.set()
        super().reset(code)
        if self._data is not None:
            self._data.close_now()

    async def _carrier(self) -> DataStream | None:
        """The connection, or None where the stream carries the circuit."""
        if not self._decided.is_set():
            await self._decided.wait()
        if self._left.is_set():
            raise trio.ClosedResourceError("this circuit was closed")
        if self._data is None and self._control.error is not None:
            raise self._control.error
        return self._data

    async def _explain(self, exc: Exception) -> None:
        """Raise why the circuit failed, if there is more to say than what its connection raised."""
        if self._left.is_set():
            raise trio.ClosedResourceError("this circuit was closed") from exc
        if isinstance(exc, trio.BrokenResourceError):
            await self._control.wait_word()
        if self._control.error is not None:
            raise self._control.error from exc
