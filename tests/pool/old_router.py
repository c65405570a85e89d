"""A router from before there were pools."""

import json

import attrs
import trio

from agentmesh.abc import Stream
from agentmesh.protocols.pool import Open, open_target
from agentmesh.runtime.messages import read_message, write_message
from agentmesh.runtime.session import MuxSession
from agentmesh.wire.framing import FrameReader
from tests.pool.worlds import ECHO


@attrs.define
class OldRouter:
    """Takes each connection of an agent without a word of others, and answers heartbeats.

    Args:
        agent_id: of the agent that streams are opened for.
    Attributes:
        serving: its connections.
        hellos, opens: how many there were.
    """

    agent_id: str
    serving: list[Stream] = attrs.Factory(list[Stream])
    hellos: int = 0
    opens: int = 0

    @property
    def sessions(self) -> list[MuxSession]:
        sessions = [stream.session for stream in self.serving]
        return [session for session in sessions if isinstance(session, MuxSession)]

    async def serve(self, stream: Stream) -> None:
        """For `pool_protocol`."""
        reader = FrameReader(32 * 1024)
        hello = json.loads(await read_message(stream, reader))
        self.hellos += 1
        ack = {"agent_id": hello["agent_id"], "epoch": hello["epoch"], "revision": hello["revision"], "accepted": True}
        await write_message(stream, json.dumps(ack).encode())
        self.serving.append(stream)
        try:
            while True:
                said = json.loads(await read_message(stream, reader))
                if said["type"] == "heartbeat":
                    await write_message(stream, json.dumps({"type": "heartbeat_ack", "seq": said["seq"]}).encode())
        finally:
            self.serving.remove(stream)

    async def open(self) -> trio.abc.HalfCloseableStream | None:
        """A stream on the first of its connections."""
        if not self.serving:
            return None
        self.opens += 1
        request = Open(self.agent_id, "tcp", ECHO, 22, self.opens)
        return (await open_target(self.sessions[0], request)).stream
