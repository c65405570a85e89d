"""A protocol of one's own: members vote. A pure machine, a driver, and a value that says who may open it.

`agentmesh.open_node(…, protocols=[protocol(Ballot())])` serves it; `vote(await node.open_stream(peer, VOTE), b"yes")`
votes. Its property test: `pytest examples/test_custom_protocol.py`.
"""

from collections import Counter

import trio

from agentmesh.abc import Admission, Stream
from agentmesh.errors import LimitExceededError, RemoteProtocolError
from agentmesh.runtime.messages import read_message, write_message
from agentmesh.runtime.registry import Protocol
from agentmesh.types import PeerId, ProtocolId
from agentmesh.wire.framing import FrameReader

VOTE = ProtocolId("/example/vote/1.0.0")
CHOICES = (b"yes", b"no")
MAX_VOTE_BYTES = 16
MAX_VOTERS = 10_000


class Ballot:
    """The machine: one vote a peer, the last one counts. No clock, no I/O."""

    def __init__(self) -> None:
        self._votes: dict[PeerId, bytes] = {}

    @property
    def tally(self) -> Counter[bytes]:
        return Counter(self._votes.values())

    def receive_vote(self, voter: PeerId, choice: bytes) -> int:
        """Count a vote. Returns how many chose the same."""
        if choice not in CHOICES:
            raise RemoteProtocolError(f"{choice!r} is no choice")
        if voter not in self._votes and len(self._votes) >= MAX_VOTERS:
            raise LimitExceededError(f"{MAX_VOTERS} have voted")
        self._votes[voter] = choice
        return self.tally[choice]


def protocol(ballot: Ballot) -> Protocol:
    async def serve(stream: Stream) -> None:
        choice = await read_message(stream, FrameReader(MAX_VOTE_BYTES))
        await write_message(stream, str(ballot.receive_vote(stream.peer, choice)).encode())

    return Protocol(VOTE, serve, admission=Admission.ANYONE)


async def vote(stream: Stream, choice: bytes) -> int:
    """Vote, and learn how many voted alike. Raises StreamResetError when the vote does not count."""
    async with stream:
        with trio.fail_after(10):
            await write_message(stream, choice)
            return int(await read_message(stream, FrameReader(MAX_VOTE_BYTES)))
