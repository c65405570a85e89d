"""What the registry listed a moment ago, so that not every stream asks it anew."""

import math
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable

import attrs
import trio

from agentmesh.pool.router.remotes import Remote

MAX_AGE = 1.0  # seconds for which a list is good
MAX_AGENTS = 1024  # lists that are kept; the one that was used longest ago goes first

Fetch = Callable[[str], Awaitable[tuple[Remote, ...]]]


@attrs.define
class _Entry:
    """One agent's list, when and how often it was asked for, and the streams that went to each connection since."""

    asked: int = 0
    asked_at: float = -math.inf
    remotes: tuple[Remote, ...] = ()
    sent: Counter[str] = attrs.Factory(Counter[str])
    lock: trio.Lock = attrs.Factory(trio.Lock)


class RecentRemotes:
    """The connections of agents to other routers, as they were within the last second. Streams that were sent there
    meanwhile are counted in, so that not all go to the same one.

    Args:
        fetch: asks the registry.
        max_age: seconds for which an answer is good.
    """

    def __init__(self, fetch: Fetch, max_age: float = MAX_AGE, max_agents: int = MAX_AGENTS) -> None:
        self._fetch = fetch
        self._max_age = max_age
        self._max_agents = max_agents
        self._entries: OrderedDict[str, _Entry] = OrderedDict()

    def __len__(self) -> int:
        """How many agents' lists are kept."""
        return len(self._entries)

    async def get(self, agent: str, *, fresh: bool = False) -> tuple[Remote, ...]:
        """The connections of an agent to other routers. Whoever asks for the same agent at once shares the answer.

        Args:
            agent: in any case.
            fresh: what was listed before does not do.
        Raises:
            AmbiguousAgentError, RegistryError: as the registry's.
        Cancellation: safe.
        """
        entry = self._entry(agent.casefold())
        known = entry.asked
        async with entry.lock:
            is_known = entry.asked > known if fresh else trio.current_time() < entry.asked_at + self._max_age
            if not is_known:
                asked_at = trio.current_time()
                entry.remotes = await self._fetch(agent)
                entry.asked, entry.asked_at = entry.asked + 1, asked_at
                entry.sent.clear()
        return tuple(
            attrs.evolve(one, active_streams=one.active_streams + entry.sent[one.connection_id])
            for one in entry.remotes
        )

    def sent(self, remote: Remote) -> None:
        """A stream goes to this connection."""
        self._entry(remote.agent_id.casefold()).sent[remote.connection_id] += 1

    def _entry(self, agent: str) -> _Entry:
        entry = self._entries.setdefault(agent, _Entry())
        self._entries.move_to_end(agent)
        if len(self._entries) > self._max_agents:
            self._entries.popitem(last=False)
        return entry
