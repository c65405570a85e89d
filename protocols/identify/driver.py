"""Identify over streams."""

from importlib.metadata import version

import trio

from agentmesh.abc import Stream, StreamLimits
from agentmesh.protocols.identify.events import PeerIdentified, PeerInfo
from agentmesh.protocols.identify.machine import IDENTIFY_TIMEOUT, Identification
from agentmesh.protocols.identify.wire import IDENTIFY_ID, MAX_STREAMS_PER_PEER, encode_info
from agentmesh.runtime.host import Host
from agentmesh.runtime.messages import WRITE_TIMEOUT, wait_event, write_message
from agentmesh.runtime.registry import Protocol

PROTOCOL_VERSION = "mesh/0.1.0"
AGENT_VERSION = f"agentmesh/{version('agentmesh')}"


def protocol(agent_version: str = AGENT_VERSION) -> Protocol:
    """The answering side.

    Args:
        agent_version: the program that the peer is told it talks to.
    """
    server = _Server(agent_version)
    return Protocol(IDENTIFY_ID, server.serve, limits=StreamLimits(MAX_STREAMS_PER_PEER), run=server.run)


async def identify(stream: Stream) -> PeerInfo:
    """Learn what the peer says of itself, on a stream opened for IDENTIFY_ID. It is the caller's to close.

    Raises:
        RemoteProtocolError: it says nothing, or what it says is malformed or names the key of another peer.
        TooSlowError: nothing within IDENTIFY_TIMEOUT.
        BrokenResourceError: the stream broke.
    Cancellation: safe.
    """
    match await wait_event(Identification(stream.peer, trio.current_time()), stream):
        case PeerIdentified(info):
            return info
        case _:
            raise trio.TooSlowError(f"{stream.peer} did not identify itself within {IDENTIFY_TIMEOUT} s")


class _Server:
    """Answers with the host as it is at that moment."""

    def __init__(self, agent_version: str) -> None:
        self._agent_version = agent_version
        self._opened = trio.Event()
        self._host: Host

    async def run(self, host: Host) -> None:
        self._host = host
        self._opened.set()
        await trio.lowlevel.checkpoint()

    async def serve(self, stream: Stream) -> None:
        await self._opened.wait()
        with trio.fail_after(WRITE_TIMEOUT):
            await write_message(stream, encode_info(self._info(stream)))

    def _info(self, stream: Stream) -> PeerInfo:
        return PeerInfo(
            peer=self._host.peer,
            public_key=self._host.identity.public_key_bytes,
            addresses=self._host.addresses,
            protocols=self._host.registry.ids,
            observed=stream.session.address,
            protocol_version=PROTOCOL_VERSION,
            agent_version=self._agent_version,
        )
