"""Streams for clients: opened on a connection of this router, or by way of the router whose connection it is.

    client ── dial ──▶ this router ── open ──▶ agent
                            └── relay ──▶ its router ── open ──▶ agent

A stream is relayed once at most: what another router asks for is opened on the very connection that it names, or not at
all (`Opener.open_on`).
"""

import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol as Interface

import attrs
import trio

from agentmesh.abc import Stream
from agentmesh.pool.registry.errors import AmbiguousAgentError, RegistryError
from agentmesh.pool.router.leased import PooledStream
from agentmesh.pool.router.opening import RETURNED, Attempts, Opener
from agentmesh.pool.router.recent import RecentRemotes
from agentmesh.pool.router.remotes import Remote, RemotePolicy, pick_remote
from agentmesh.pool.router.score import STREAM, score
from agentmesh.pool.router.selection import NotChosen, cheapest
from agentmesh.pool.router.table import Pool
from agentmesh.protocols.pool import Code, Open, Opening, OpenResult, Stage

AMBIGUOUS = OpenResult(Stage.SELECTION, Code.AGENT_OFFLINE)  # which of several agents is meant is nothing to guess
UNLISTED = OpenResult(Stage.SELECTION, Code.INTERNAL_ERROR, retryable=True, retry_after_ms=1000)  # no registry answers

MAX_TRIES = 2  # of connections of other routers that might have taken a stream

NOBODY = NotChosen(Counter())

Through = PooledStream | Stream | OpenResult
Judge = Callable[[str], OpenResult | None]  # why a client may not use the agent of this very ID; None: it may


class Elsewhere(Interface):
    """The other routers, and what is connected to them."""

    async def remotes(self, agent: str) -> tuple[Remote, ...]:
        """The connections of an agent, in any case, to other routers. Raises RegistryError, AmbiguousAgentError."""
        ...

    async def open(self, remote: Remote, request: Open, timeout: float) -> Opening:
        """Have a router open a stream on a connection of its. That it cannot be reached is a result, too."""
        ...


@attrs.frozen(kw_only=True)
class IngressConfig:
    """How clients' streams are spread over routers.

    Attributes:
        remote_policy: how one of the connections of other routers is chosen, which are known a little late.
        local_spill_score: the cost of a stream, in streams, from which a connection of another router is taken that
            costs less; 0: a connection of this router goes before all others, whatever it costs.
    """

    remote_policy: RemotePolicy = RemotePolicy.LOWEST
    local_spill_score: int = attrs.field(default=0, validator=attrs.validators.ge(0))


class Ingress:
    """Opens streams for the clients of one router.

    Args:
        opener: on its own connections.
        elsewhere: the other routers; None when there are none, or no registry tells what is connected to them.
    """

    def __init__(self, opener: Opener, elsewhere: Elsewhere | None = None, config: IngressConfig | None = None) -> None:
        self._opener = opener
        self._table = opener.table
        self._elsewhere = elsewhere
        self._recent = RecentRemotes(elsewhere.remotes) if elsewhere else None
        self._config = config or IngressConfig()

    async def open(self, agent: str, request: Open, judge: Judge = lambda _: None) -> Through:
        """Open a stream to a target.

        Args:
            agent: in any case.
            request: the target; what else an open says is filled in.
            judge: is asked whether the client may.
        Returns:
            The stream, the caller's to close; or why there is none. No connection that failed was given a byte.
        Cancellation: safe; no stream is left.
        """
        if not request.trace_id:
            request = attrs.evolve(request, trace_id=secrets.token_hex(8))
        try:
            pool = self._table.lookup(agent)
            if (refusal := judge(pool.agent_id if pool else await self._spelt(agent))) is not None:
                return refusal
            return await self._open(agent, pool, request, judge)
        except AmbiguousAgentError:
            return AMBIGUOUS

    async def _open(self, agent: str, pool: Pool | None, request: Open, judge: Judge) -> Through:
        attempts = self._opener.begin()
        if pool is not None and await self._spills(pool, request):
            found = await self._open_elsewhere(agent, request, attempts, judge)
            if not isinstance(found, NotChosen):
                return found
        here = NOBODY if pool is None else await self._opener.open_here(pool, request, attempts)
        if not isinstance(here, NotChosen):
            return here
        there = await self._open_elsewhere(agent, request, attempts, judge)
        if not isinstance(there, NotChosen):
            return there
        return attempts.result or NotChosen(here.reasons + there.reasons).result

    async def _spelt(self, agent: str) -> str:
        """As other routers' agents are called: what may be reached does not depend on which router is asked."""
        try:
            listed = () if self._recent is None else await self._recent.get(agent)
        except AmbiguousAgentError:
            raise
        except RegistryError:
            return agent
        return listed[0].agent_id if listed else agent

    async def _spills(self, pool: Pool, request: Open) -> bool:
        """Whether our connections cost so much that one of another router may be taken, and one costs less."""
        most = self._config.local_spill_score * STREAM
        if not most or self._recent is None:
            return False
        cost = cheapest(pool, request.protocol, self._table.limits, trio.current_time())
        if cost is None or cost < most:
            return False
        try:
            remotes = await self._recent.get(pool.agent_id)
        except RegistryError:
            return False
        return any(score(one.load(), None) < cost for one in remotes)

    async def _open_elsewhere(
        self, agent: str, request: Open, attempts: Attempts, judge: Judge
    ) -> Stream | OpenResult | NotChosen:
        """By what the registry said a moment ago; and if that has come to nothing, once more by what it says now.
        Connections that leave are listed for a while yet, and begin nothing: those do not count.
        """
        if self._elsewhere is None or self._recent is None:
            return NOBODY
        tries, fresh = 0, False
        while tries < MAX_TRIES:
            try:
                listed = await self._recent.get(agent, fresh=fresh)
            except AmbiguousAgentError:
                raise
            except RegistryError:
                attempts.result = attempts.result or UNLISTED
                return NOBODY
            chosen = self._pick_remote([one for one in listed if one.key not in attempts.elsewhere], request)
            if isinstance(chosen, NotChosen):
                return chosen
            if (refusal := judge(chosen.agent_id)) is not None:
                return refusal
            opening = await self._elsewhere.open(chosen, _relayed(request, chosen), attempts.left)
            if opening.stream is not None:
                return opening.stream
            attempts.elsewhere.add(chosen.key)
            if not attempts.failed(opening.result):
                return opening.result
            fresh = opening.result != RETURNED
            tries += fresh
        return NOBODY

    def _pick_remote(self, remotes: Sequence[Remote], request: Open) -> Remote | NotChosen:
        if not remotes or self._recent is None:
            return NOBODY
        chosen = pick_remote(
            self._table.traces.of(remotes[0].agent_id),
            remotes,
            protocol=request.protocol,
            limits=self._table.limits,
            now=trio.current_time(),
            trace_id=request.trace_id,
            policy=self._config.remote_policy,
        )
        if isinstance(chosen, Remote):
            self._recent.sent(chosen)
        return chosen


def _relayed(request: Open, remote: Remote) -> Open:
    return attrs.evolve(
        request,
        agent_id=remote.agent_id,
        target_connection_id=remote.connection_id,
        target_connection_epoch=remote.epoch,
    )
