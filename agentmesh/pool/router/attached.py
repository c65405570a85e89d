"""What a router has of a connection besides its place in the pool: the session, the control stream, open streams."""

from collections.abc import Callable
from typing import Protocol as Interface

import attrs
import trio

from agentmesh.abc import Session
from agentmesh.errors import ErrorCode
from agentmesh.pool.router.claims import Claim, ConnectionKey, Refusal
from agentmesh.pool.router.connection import Connection
from agentmesh.pool.router.leased import PooledStream
from agentmesh.protocols.pool import ConnEpoch, Control, RouterSide
from agentmesh.runtime.session import MuxSession


@attrs.frozen
class Bearer:
    """Whose credential was shown on a session.

    Attributes:
        agent_id: that it is for (its label `agent`); None when for none.
        token_id: names the credential, and does not hold it.
    """

    agent_id: str | None
    token_id: str


FindBearer = Callable[[Session], Bearer | None]


class Registrar(Interface):
    """Where a connection is registered beyond this router."""

    async def register(self, claim: Claim) -> ConnEpoch | Refusal:
        """Its epoch from now on, or why it is not taken."""
        ...

    async def release(self, key: ConnectionKey) -> None:
        """It has ended."""
        ...

    def accepts(self, key: ConnectionKey) -> bool:
        """Whether a stream that another router sends may be opened on it."""
        ...

    def watch(self, on_lost: Callable[[Connection], None]) -> None:
        """Have `on_lost` called with a connection that lives on elsewhere."""
        ...


class NoRegistry:
    """A router alone: the epoch that a connection proposes is its epoch."""

    async def register(self, claim: Claim) -> ConnEpoch | Refusal:
        await trio.lowlevel.checkpoint()
        return claim.epoch

    async def release(self, key: ConnectionKey) -> None:
        await trio.lowlevel.checkpoint()

    def accepts(self, key: ConnectionKey) -> bool:
        return True

    def watch(self, on_lost: Callable[[Connection], None]) -> None:
        """There is no elsewhere."""


@attrs.define(eq=False)
class Attached:
    """What opens streams on a connection.

    Attributes:
        opening: opens that wait for their results, by their numbers.
        streams: those that were accepted.
    """

    session: MuxSession
    control: Control[RouterSide]
    opening: dict[int, trio.CancelScope] = attrs.Factory(dict[int, trio.CancelScope])
    streams: dict[int, PooledStream] = attrs.Factory(dict[int, PooledStream])

    def end(self, stream_id: int) -> None:
        """A stream is over."""
        self.streams.pop(stream_id, None)
        self.control.tell(lambda machine: machine.end_open(stream_id))

    def reset(self, stream_ids: frozenset[int] | None = None) -> None:
        """Cut streams, all of them unless it is said which."""
        for stream_id, stream in list(self.streams.items()):
            if stream_ids is None or stream_id in stream_ids:
                stream.cut(ErrorCode.SHUTDOWN, "the connection drains, and its time is over")

    def give_back(self, stream_ids: frozenset[int]) -> None:
        """The agent has not begun these opens, and will not: they are made elsewhere."""
        for stream_id in stream_ids & self.opening.keys():
            self.opening[stream_id].cancel()

    def drop(self, reason: str) -> None:
        """The connection is over: so is everything on it, and its session."""
        self.give_back(frozenset(self.opening))
        self.session.abort(reason)  # which breaks the streams
        self.streams.clear()


def attached_to(connection: Connection) -> Attached:
    """What is attached to a connection of a `PoolService`."""
    assert isinstance(connection.handle, Attached)
    return connection.handle
