"""An HTTP/2 connection on Trio: a task that reads, one that writes, and streams for whoever uses them."""

import operator
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio

from agentmesh.errors import DialError, RemoteProtocolError
from agentmesh.runtime.guard import Guard, Signal
from agentmesh.runtime.nursery import open_background
from agentmesh.transports.h2_flow import OK, Flow, Way
from agentmesh.transports.h2_machine import Carrier

READ_BYTES = 64 * 1024  # given to a reader that names no number
RECEIVE_BYTES = 256 * 1024  # read from the socket at once
CLOSE_TIMEOUT = 3.0  # seconds the peer has to answer our closing

UNANSWERED = {
    Way.OPEN: "no answer in time",
    Way.ENDED: "the server speaks another protocol",
    Way.BROKEN: "the peer reset it",
}

Data = bytes | bytearray | memoryview


class Connection:
    """A connection whose two tasks live in `open_connection`."""

    def __init__(self, wire: trio.abc.Stream, carrier: Carrier) -> None:
        self.carrier = carrier
        self._wire = wire
        self._outgoing = Signal()
        self._changed = trio.lowlevel.ParkingLot()
        self._drained = trio.Event()

    def touch(self) -> None:
        """Something in the carrier has changed: whoever waits looks again."""
        self._outgoing.set()
        self._changed.unpark_all()

    async def wait_change(self) -> None:
        await self._changed.park()

    async def wait_drained(self) -> None:
        """Until all that could be sent was, once the carrier has failed or was closed."""
        await self._drained.wait()

    async def read(self) -> None:
        """Feed the carrier until the connection is over."""
        try:
            while self.carrier.failure is None:
                data = await self._wire.receive_some(RECEIVE_BYTES)
                if not data:
                    self.carrier.fail("the peer hung up")
                    break
                self.carrier.receive_data(data, trio.current_time())
                self.touch()
        except (trio.BrokenResourceError, RemoteProtocolError) as exc:
            self.carrier.fail(str(exc))
        self.touch()

    async def write(self) -> None:
        """Send what the carrier has to say, the last word too."""
        try:
            while True:
                data = self.carrier.data_to_send()
                if data:
                    self._changed.unpark_all()  # there is room again
                    await self._wire.send_all(data)
                elif self.carrier.failure is not None:
                    break
                else:
                    await self._outgoing.wait()
        except trio.BrokenResourceError as exc:
            self.carrier.fail(str(exc))
        self._drained.set()
        self.touch()

    async def request(self, authority: str, scheme: str, deadline: float, name: str) -> "H2Stream":
        """Open a stream, as the client.

        Raises:
            DialError: the peer refused, hung up, took too long or does not speak HTTP/2.
        """
        flow = self.carrier.request(authority, scheme)
        self.touch()
        with trio.move_on_at(deadline):
            while not flow.opened and not flow.refused:
                await self.wait_change()
        if not flow.opened:
            raise DialError(f"no HTTP/2 stream {name}: {self._reason(flow)}")
        return H2Stream(self, flow)

    def _reason(self, flow: Flow) -> str:
        if flow.status not in (None, OK):
            return f"refused with HTTP status {flow.status}"
        if self.carrier.failure is not None:
            return self.carrier.failure
        return UNANSWERED[flow.receiving]

    async def wait_idle(self) -> None:
        """Until there is no stream any more, or another one, or the connection is over."""
        while self.carrier.flows and not self.carrier.accepted and self.carrier.failure is None:
            await self.wait_change()

    async def accept(self) -> "H2Stream | None":
        """The next stream that the peer opens; None when there will be none."""
        while not self.carrier.accepted:
            if self.carrier.failure is not None:
                return None
            await self.wait_change()
        return H2Stream(self, self.carrier.accepted.popleft())


class H2Stream(trio.abc.Stream):
    """The DATA of one HTTP/2 stream; it cannot be closed by halves (proxies end an exchange with its response).

    Cancellation: a cancelled `receive_some` loses nothing; a cancelled `send_all` has sent all, part or none of its
    bytes. `aclose` waits for the peer's END_STREAM, CLOSE_TIMEOUT at most; cancelled, it resets the stream.
    """

    def __init__(self, connection: Connection, flow: Flow) -> None:
        self._connection = connection
        self._carrier = connection.carrier
        self._flow = flow
        self._receiving = Guard("receiving")
        self._sending = Guard("sending")

    async def send_all(self, data: Data) -> None:
        with self._sending:
            self._check_sending()
            await trio.lowlevel.checkpoint()
            unsent = memoryview(bytes(data))
            while unsent:
                self._check_sending()
                if taken := self._carrier.send(self._flow, unsent):
                    self._connection.touch()
                    unsent = unsent[taken:]
                else:
                    await self._connection.wait_change()

    async def wait_send_all_might_not_block(self) -> None:
        with self._sending:
            self._check_sending()
            await trio.lowlevel.checkpoint()
            while not self._carrier.room(self._flow):
                self._check_sending()
                await self._connection.wait_change()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        max_bytes = READ_BYTES if max_bytes is None else operator.index(max_bytes)
        if max_bytes < 1:
            raise ValueError("max_bytes must be at least 1")
        with self._receiving:
            self._check_open()
            await trio.lowlevel.checkpoint()
            while True:
                self._check_open()
                if data := self._carrier.take(self._flow, max_bytes):
                    self._connection.touch()
                    return data
                if self._flow.receiving is Way.ENDED:
                    return b""
                if self._flow.receiving is Way.BROKEN:
                    raise self._broken()
                await self._connection.wait_change()

    async def aclose(self) -> None:
        if not self._flow.read:
            await trio.lowlevel.checkpoint()
            return
        self._carrier.end(self._flow)
        self._connection.touch()
        try:
            with trio.move_on_after(CLOSE_TIMEOUT):
                await trio.lowlevel.checkpoint()
                while not self._flow.over:
                    await self._connection.wait_change()
        finally:
            self._carrier.release(self._flow)
            self._connection.touch()

    def _check_open(self) -> None:
        if not self._flow.read:
            raise trio.ClosedResourceError("this stream was closed")

    def _check_sending(self) -> None:
        self._check_open()
        if self._flow.sending is not Way.OPEN:
            raise self._broken()

    def _broken(self) -> trio.BrokenResourceError:
        return trio.BrokenResourceError(f"the HTTP/2 stream broke: {self._carrier.failure or 'the peer ended it'}")


@asynccontextmanager
async def open_connection(wire: trio.abc.Stream, carrier: Carrier) -> AsyncGenerator[Connection]:
    """An HTTP/2 connection for the length of a block, which ends with GOAWAY. The wire is closed behind it."""
    connection = Connection(wire, carrier)
    try:
        async with open_background() as nursery:
            nursery.start_soon(connection.read)
            nursery.start_soon(connection.write)
            yield connection
            carrier.close()
            connection.touch()
            with trio.move_on_after(CLOSE_TIMEOUT):
                await connection.wait_drained()
    finally:
        await trio.aclose_forcefully(wire)
