"""Who serves something, one after the other."""

from collections.abc import Awaitable, Callable, Sequence

from agentmesh.protocols.directory import Found

Find = Callable[[], Awaitable[Sequence[Found]]]


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
