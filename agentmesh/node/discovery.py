"""Who serves something, one after the other; and only who has certain labels, where that is asked for."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

import trio

from agentmesh.protocols.directory import Found
from agentmesh.services.calls import FAILURES
from agentmesh.types import PeerId

MAX_ASKED_AT_ONCE = 8  # members, for their labels

Find = Callable[[], Awaitable[Sequence[Found]]]
HasLabels = Callable[[PeerId], Awaitable[bool]]


async def with_labels(find: Find, has_labels: HasLabels, limit: int) -> list[Found]:
    """Those whom `find` finds and who have the labels, at most `limit` of them; who cannot be asked is left out."""
    found = await find()
    good, room = set[PeerId](), trio.CapacityLimiter(MAX_ASKED_AT_ONCE)

    async def ask(peer: PeerId) -> None:
        with suppress(*FAILURES):
            async with room:
                if await has_labels(peer):
                    good.add(peer)

    async with trio.open_nursery() as nursery:
        for one in found:
            nursery.start_soon(ask, one.peer)
    return [one for one in found if one.peer in good][:limit]


class Discovery:
    """An async iterator over providers: `async for found in node.discover("mcp")`. The directory is asked once, when
    the first is wanted. Dropping it half read leaves nothing behind.

    Args:
        find: asks; what it raises comes out of the first step.
    """

    def __init__(self, find: Find) -> None:
        self._find = find
        self._left: list[Found] | None = None

    def __aiter__(self) -> "Discovery":
        return self

    async def __anext__(self) -> Found:
        if self._left is None:
            self._left = list(reversed(await self._find()))
        if not self._left:
            raise StopAsyncIteration
        return self._left.pop()
