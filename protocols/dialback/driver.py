"""The dial-back over streams."""

import logging
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager

import attrs
import trio

from agentmesh.abc import Admission, OpenStream, Stream, StreamLimits
from agentmesh.errors import DialError, ErrorCode, RejectedError, RemoteProtocolError
from agentmesh.protocols.dialback.eligible import eligible
from agentmesh.protocols.dialback.events import Answered, Asked
from agentmesh.protocols.dialback.machine import ANSWER_TIMEOUT, Answerer, Asker
from agentmesh.protocols.dialback.wire import DIALBACK_ID, MAX_ADDRESS_CHARS, MAX_ADDRESSES
from agentmesh.runtime.messages import flush, wait_event
from agentmesh.runtime.meters import Meter
from agentmesh.runtime.registry import Protocol
from agentmesh.runtime.yamux import Allowance
from agentmesh.types import Address, PeerId

logger = logging.getLogger(__name__)

MAX_STREAMS_PER_PEER = 2
DIAL_TIMEOUT = 5.0  # seconds for each address; all of a request are dialled at once

# What asking a router may raise.
ASK_ERRORS = (DialError, RemoteProtocolError, trio.BrokenResourceError, trio.TooSlowError)

Probe = Callable[[PeerId, Address], Awaitable[bool]]


@attrs.frozen
class DialBackLimits:
    """What a router does for those who ask."""

    requests: Allowance = Allowance(burst=4, per_second=1 / 60)
    """Requests of one member."""
    max_requests: int = 32
    """Requests of all members that are under way at once."""


async def ask(
    open_stream: OpenStream, router: PeerId, addresses: Sequence[Address], timeout: float = ANSWER_TIMEOUT
) -> tuple[Address, ...]:
    """Have a router dial us back, on a stream of its own over the standing session.

    Args:
        open_stream: `Host.open_stream`.
        router: whom to ask.
        addresses: where we listen, at least one; the router is asked for the first MAX_ADDRESSES, without those that
            are too long.
        timeout: seconds for the answer.
    Returns:
        Where it reached us, and we proved our key; without /p2p parts.
    Raises:
        DialError: no session to it.
        RejectedError: it does not speak this (PROTOCOL_NEGOTIATION_FAILED), has not admitted us, or has no time for us.
        RemoteProtocolError: it broke the protocol.
        TooSlowError: no answer in time.
        BrokenResourceError: the stream broke.
    Cancellation: safe.
    """
    bare = dict.fromkeys(address.without_peer() for address in addresses)
    asker = Asker(timeout)
    async with await open_stream(router, DIALBACK_ID) as stream:
        wanted = [address for address in bare if len(str(address)) <= MAX_ADDRESS_CHARS]
        asker.send_request(wanted[:MAX_ADDRESSES], trio.current_time())
        match await wait_event(asker, stream):
            case Answered(found):
                return found
            case _:
                raise trio.TooSlowError(f"no answer from {router} within {timeout} s")


class DialBack:
    """The router's side. List `protocol()` where the host is built.

    Args:
        probe: dials one address of a peer; whether it answered there, and proved its key.
        limits: the bounds.
        loopback: whether members are dialled at the loopback, if that is where they come from.

    Attributes:
        reached: how many addresses were dialled, by whether the member was there.
        is_local: as `loopback`.
    """

    def __init__(self, probe: Probe, limits: DialBackLimits | None = None, *, loopback: bool = False) -> None:
        self.limits = limits or DialBackLimits()
        self.reached = {True: 0, False: 0}
        self._probe = probe
        self.is_local = loopback
        self._meter = Meter(self.limits.requests)
        self._under_way = 0

    def protocol(self) -> Protocol:
        limits = StreamLimits(MAX_STREAMS_PER_PEER)
        return Protocol(DIALBACK_ID, self._serve, admission=Admission.MEMBER, limits=limits)

    async def _serve(self, stream: Stream) -> None:
        answerer = Answerer(trio.current_time())
        match await wait_event(answerer, stream):
            case Asked(addresses):
                with self._place(stream.peer):
                    source = stream.session.address
                    found = await self._dial(stream.peer, eligible(addresses, source, loopback=self.is_local))
                answerer.send_response(found)
                await flush(answerer, stream)
            case _:
                raise RemoteProtocolError("no request came")

    @contextmanager
    def _place(self, peer: PeerId) -> Generator[None]:
        if self._under_way >= self.limits.max_requests:
            raise RejectedError("too many dial-backs under way")
        if wait := self._meter.spend(peer, trio.current_time()):
            raise RejectedError(f"{peer} asks too often", ErrorCode.RATE_LIMITED, wait)
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1

    async def _dial(self, peer: PeerId, addresses: Sequence[Address]) -> tuple[Address, ...]:
        """Those of the addresses at which the peer is, in their order."""
        found = dict.fromkeys(addresses, False)

        async def dial(address: Address) -> None:
            with trio.move_on_after(DIAL_TIMEOUT):
                found[address] = await self._probe(peer, address)

        async with trio.open_nursery() as nursery:
            for address in addresses:
                nursery.start_soon(dial, address)
        for there in found.values():
            self.reached[there] += 1
        logger.info("dialled back", extra={"peer": peer, "reached": sum(found.values()), "dialled": len(found)})
        return tuple(address for address, there in found.items() if there)
