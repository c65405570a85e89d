"""Ping over streams."""

import os

import trio

from agentmesh.abc import Stream, StreamLimits
from agentmesh.protocols.ping.events import PongReceived
from agentmesh.protocols.ping.machine import PONG_TIMEOUT, Echo, Pinger
from agentmesh.protocols.ping.wire import MAX_STREAMS_PER_PEER, PING_BYTES, PING_ID
from agentmesh.runtime.messages import wait_event
from agentmesh.runtime.registry import Protocol


def protocol() -> Protocol:
    """The answering side."""
    return Protocol(PING_ID, serve_ping, limits=StreamLimits(max_streams_per_peer=MAX_STREAMS_PER_PEER))


async def serve_ping(stream: Stream) -> None:
    """Echo until the peer ends the stream, or sends nothing for IDLE_TIMEOUT seconds.

    Raises:
        RemoteProtocolError: the stream ended inside a ping.
        BrokenResourceError: the stream broke.
    """
    await wait_event(Echo(trio.current_time()), stream)


async def ping(stream: trio.abc.Stream) -> float:
    """Measure one round trip on a stream opened for PING_ID. May be called again on the same stream.

    Returns:
        The round-trip time in seconds.
    Raises:
        TooSlowError: no answer within PONG_TIMEOUT.
        RemoteProtocolError: an answer that is not what was sent, or the end of the stream instead.
        BrokenResourceError: the stream broke; a RejectedError when the peer refuses (its limit is two streams at once).
    Cancellation and errors: the stream is no longer in step; close it.
    """
    pinger = Pinger()
    pinger.send_ping(os.urandom(PING_BYTES), trio.current_time())
    match await wait_event(pinger, stream):
        case PongReceived(rtt):
            return rtt
        case _:
            raise trio.TooSlowError(f"no pong within {PONG_TIMEOUT} s")
