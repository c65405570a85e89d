"""A router's side of opens: what clients and other routers ask for, answered, and the bytes passed on."""

from collections import Counter
from collections.abc import Callable

from agentmesh.abc import Stream
from agentmesh.pool.copying import accept_and_copy
from agentmesh.pool.router.claims import ConnectionKey
from agentmesh.pool.router.ingress import Ingress, Through
from agentmesh.pool.router.leased import PooledStream
from agentmesh.pool.router.opening import Opener
from agentmesh.protocols.pool import (
    DIAL_ID,
    RELAY_ID,
    Code,
    Open,
    OpenResult,
    answer_open,
    receive_open,
)
from agentmesh.types import PeerId

JudgeOpen = Callable[[PeerId, str, Open], OpenResult | None]


class StreamServer:
    """Serves opens.

    Args:
        ingress: opens for clients.
        opener: opens for other routers, on the connection that they name.
        judge: why a client may not reach a target through the agent of this ID; None: it may.

    Attributes:
        dialled, relayed: what came of the opens of clients and of routers; every Code is there from the start, at 0.
        clients: how many streams each client has.
    """

    def __init__(self, ingress: Ingress, opener: Opener, judge: JudgeOpen) -> None:
        self.dialled = dict.fromkeys(Code, 0)
        self.relayed = dict.fromkeys(Code, 0)
        self.clients: Counter[PeerId] = Counter()
        self._ingress = ingress
        self._opener = opener
        self._judge = judge

    async def serve_dial(self, stream: Stream) -> None:
        """Serve one open of a client, to its end.

        Raises:
            RemoteProtocolError, BrokenResourceError, TooSlowError: as `receive_open`.
        """
        request = await receive_open(stream, DIAL_ID)
        client = stream.peer
        self.clients[client] += 1
        try:
            found = await self._ingress.open(
                request.agent_id, request, lambda agent_id: self._judge(client, agent_id, request)
            )
            await _pass(stream, found, self.dialled)
        finally:
            self.clients -= Counter([client])  # which keeps no zeros

    async def serve_relay(self, stream: Stream) -> None:
        """The same of an open that another router makes for a client of its own, whom it has judged."""
        request = await receive_open(stream, RELAY_ID)
        key = ConnectionKey(request.agent_id, request.target_connection_id, request.target_connection_epoch)
        await _pass(stream, await self._opener.open_on(key, request), self.relayed)


async def _pass(stream: Stream, found: Through, counts: dict[Code, int]) -> None:
    """Answer an open, and copy until it ends."""
    if isinstance(found, OpenResult):
        counts[found.code] += 1
        await answer_open(stream, found)
        return
    counts[Code.OK] += 1
    await accept_and_copy(stream, found, _cut)


async def _cut(found: PooledStream | Stream) -> None:
    found.reset()
