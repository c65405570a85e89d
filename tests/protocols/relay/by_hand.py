"""Ends of a circuit that are driven by hand, and connections that say what a test wants."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import attrs
import trio

from agentmesh.abc import ByteStream, DataDialer, DataStream, Stream
from agentmesh.errors import DialError
from agentmesh.protocols.relay import HOP_ID, STOP_ID, Status, reserve
from agentmesh.protocols.relay.events import Offer
from agentmesh.protocols.relay.wire import (
    DOOR_BYTE,
    WELCOME,
    ConnectMessage,
    StatusMessage,
    decode_hop,
    decode_stop,
    encode_hop_connect,
    encode_stop_status,
)
from agentmesh.runtime.host import Host
from agentmesh.runtime.messages import read_message, write_message
from agentmesh.runtime.registry import Protocol
from agentmesh.types import Address, PeerId
from agentmesh.wire.framing import FrameReader
from tests.protocols.relay.net import Net

Act = Callable[["Hand"], Awaitable[None]]


@attrs.frozen
class Hand:
    """One end: its stream, and the offer that it has."""

    net: Net
    stream: Stream
    offer: Offer | None
    reader: FrameReader

    @property
    def preamble(self) -> bytes:
        assert self.offer is not None
        return bytes([DOOR_BYTE]) + self.offer.ticket

    @asynccontextmanager
    async def connection(self) -> AsyncGenerator[ByteStream]:
        """A connection that shows the ticket."""
        async with connection(self.net) as stream:
            await stream.send_all(self.preamble)
            yield stream

    async def is_turned_away(self) -> bool:
        """Whether a connection with the ticket is closed without a word, and at once."""
        start = trio.current_time()
        async with self.connection() as stream:
            return await stream.receive_some() == b"" and trio.current_time() == start


@asynccontextmanager
async def connection(net: Net) -> AsyncGenerator[ByteStream]:
    """A stranger's connection to the relay."""
    (address,) = net.router.addresses
    async with net.network.transport("stranger").dial(address.without_peer()) as stream:
        yield stream


@asynccontextmanager
async def near_by_hand(net: Net, near: Host, far: PeerId, *, data_path: bool = True) -> AsyncGenerator[Hand]:
    """Ask for a circuit, and get it."""
    reader = FrameReader(4096)
    async with await near.open_stream(net.router.peer, HOP_ID) as stream:
        await write_message(stream, encode_hop_connect(far, data_path))
        answer = decode_hop(await read_message(stream, reader))
        assert isinstance(answer, StatusMessage)
        assert answer.status == Status.OK
        yield Hand(net, stream, answer.offer, reader)


async def join_by_hand(net: Net, act: Act, *, takes: bool = True, delay: float = 0.0) -> Host:
    """A reachable member that answers each circuit by hand, and then does as the test wants."""

    async def serve(stream: Stream) -> None:
        reader = FrameReader(4096)
        request = decode_stop(await read_message(stream, reader))
        assert isinstance(request, ConnectMessage)
        await trio.sleep(delay)
        await write_message(stream, encode_stop_status(Status.OK, takes))
        await act(Hand(net, stream, request.offer, reader))

    host = await net.join_raw(Protocol(STOP_ID, serve))
    await reserve(host, net.router.peer)
    return host


async def come(hand: Hand) -> None:
    """What an honest end does: show the ticket, be welcomed, echo, end."""
    async with hand.connection() as stream:
        assert await stream.receive_some(1) == WELCOME
        while data := await stream.receive_some():
            await stream.send_all(data)
        assert isinstance(stream, trio.abc.HalfCloseableStream)
        await stream.send_eof()
        await hand.stream.send_eof()
        await hand.stream.receive_some()


class Nowhere(DataDialer):
    """Nobody answers.

    Attributes:
        dials: how often it was tried.
    """

    def __init__(self) -> None:
        self.dials: int = 0

    def can_carry(self, address: Address) -> bool:
        return True

    async def dial_data(self, address: Address) -> DataStream:
        self.dials += 1
        await trio.lowlevel.checkpoint()
        raise DialError(f"nobody at {address}")


class Silence(Nowhere):
    """Nor does anybody refuse."""

    async def dial_data(self, address: Address) -> DataStream:
        self.dials += 1
        await trio.sleep_forever()
        raise AssertionError
