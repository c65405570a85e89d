"""The go-away over streams."""

import enum
from collections.abc import Callable

import attrs
import trio

from agentmesh.abc import OpenStream, Stream, StreamLimits
from agentmesh.errors import DialError, ErrorCode, RejectedError, RemoteProtocolError
from agentmesh.protocols.goaway.events import Acknowledged, GoAway, GoAwayReceived
from agentmesh.protocols.goaway.machine import GOAWAY_TIMEOUT, Listener, Sender
from agentmesh.protocols.goaway.wire import GOAWAY_ID
from agentmesh.runtime.messages import flush, wait_event
from agentmesh.runtime.registry import Protocol
from agentmesh.types import PeerId

MAX_STREAMS_PER_PEER = 2


class Result(enum.StrEnum):
    """What became of a go-away that was sent."""

    OK = "ok"
    UNSUPPORTED = "unsupported"
    FAILED = "failed"


def protocol(accepts: Callable[[PeerId], bool], on_goaway: Callable[[PeerId, GoAway], None]) -> Protocol:
    """The member's side.

    Args:
        accepts: whether we are attached to that router. From anybody else the stream is reset.
        on_goaway: called, synchronously, with what it said. It must not raise.
    """
    return Protocol(GOAWAY_ID, _Server(accepts, on_goaway).serve, limits=StreamLimits(MAX_STREAMS_PER_PEER))


async def send_goaway(open_stream: OpenStream, member: PeerId, goaway: GoAway) -> Result:
    """The router's side: tell one member, on a stream of its own over the standing session.

    Returns:
        OK when it has read it; it has 5 seconds.
    Cancellation: safe; whether it was read is then unknown.
    """
    try:
        with trio.fail_after(GOAWAY_TIMEOUT):
            stream = await open_stream(member, GOAWAY_ID)
            async with stream:
                sender = Sender()
                sender.send_goaway(goaway, trio.current_time())
                await flush(sender, stream)
                await stream.send_eof()
                event = await wait_event(sender, stream)
    except RejectedError as exc:
        return Result.UNSUPPORTED if exc.code == ErrorCode.PROTOCOL_NEGOTIATION_FAILED else Result.FAILED
    except (DialError, RemoteProtocolError, trio.BrokenResourceError, trio.TooSlowError):
        return Result.FAILED
    return Result.OK if isinstance(event, Acknowledged) else Result.FAILED


@attrs.frozen
class _Server:
    accepts: Callable[[PeerId], bool]
    on_goaway: Callable[[PeerId, GoAway], None]

    async def serve(self, stream: Stream) -> None:
        """Take one message. The runtime ends our side when this returns, which is the answer."""
        self._check(stream.peer)
        match await wait_event(Listener(trio.current_time()), stream):
            case GoAwayReceived(goaway):
                self._check(stream.peer)  # once more: it may have been lost meanwhile
                self.on_goaway(stream.peer, goaway)
            case _:
                raise RemoteProtocolError("no go-away came")

    def _check(self, peer: PeerId) -> None:
        if not self.accepts(peer):
            raise RejectedError(f"not attached to {peer}", ErrorCode.GATED)
