"""What an agent's processes tell of themselves: one entry for each process, of which none overwrites another.

It has nothing to do with being online: metadata that is not taken ends no connection, and old metadata is shown as old.
"""

import hashlib
import json
from collections import Counter, OrderedDict
from collections.abc import Sequence

import attrs

from agentmesh.pool.registry.values import ConnectionLease
from agentmesh.pool.router.connection import Connection
from agentmesh.protocols.pool import ErrorName, Hello, Item, Problem

METADATA_TTL = 300.0  # seconds after which it is old
MAX_INSTANCES = 4096  # of all agents; the one that was heard of longest ago is forgotten first


@attrs.frozen
class Metadata:
    """What one process said last."""

    revision: int
    digest: bytes
    items: tuple[Item, ...]
    errors: tuple[Problem, ...]
    reported_at: str
    at: float  # seconds on the caller's clock

    def is_old(self, now: float) -> bool:
        return now >= self.at + METADATA_TTL


@attrs.frozen
class Taken:
    """What became of metadata: whether it counts, whether it was known, and if it does not count, why."""

    accepted: bool
    idempotent: bool = False
    problems: tuple[Problem, ...] = ()


@attrs.frozen
class InstanceView:
    """One process, for whoever looks at the agent.

    Attributes:
        is_old: nothing was heard of it for long, or it is connected to other routers only, which know its items.
    """

    instance_id: str
    connection_count: int
    items: tuple[Item, ...]
    is_healthy: bool
    is_old: bool
    is_local: bool = True


@attrs.frozen
class AgentView:
    """An agent: its processes, and for those who know of one only, the freshest healthy one's items."""

    agent_id: str
    items: tuple[Item, ...]
    instances: tuple[InstanceView, ...]

    def to_json(self) -> dict[str, object]:
        """As the API gives it. A list is never null."""
        return {
            "agentId": self.agent_id,
            "items": [attrs.asdict(item) for item in self.items],
            "instances": [
                {
                    "instanceId": one.instance_id,
                    "connectionCount": one.connection_count,
                    "healthy": one.is_healthy,
                    "stale": one.is_old,
                    "local": one.is_local,
                    "items": [attrs.asdict(item) for item in one.items],
                }
                for one in self.instances
            ],
        }


class MetadataBook:
    """The metadata of all processes, by agent and instance."""

    def __init__(self, max_instances: int = MAX_INSTANCES) -> None:
        self._max_instances = max_instances
        self._known: OrderedDict[tuple[str, str], Metadata] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def take(self, agent_id: str, instance_id: str, hello: Hello, now: float) -> Taken:
        """Take what a process says, if its revision is above the last, or it says the same again."""
        if hello.agent_id != agent_id:
            return _refuse("agent_id", ErrorName.IDENTITY_MISMATCH)
        key, digest = (agent_id, instance_id), _digest(hello)
        known = self._known.get(key)
        if known is not None and hello.revision < known.revision:
            return _refuse("revision", ErrorName.STALE_REVISION)
        if known is not None and hello.revision == known.revision and digest != known.digest:
            return _refuse("revision", ErrorName.REVISION_CONFLICT)
        self._known[key] = Metadata(hello.revision, digest, hello.items, hello.errors, hello.reported_at, now)
        self._known.move_to_end(key)
        if len(self._known) > self._max_instances:
            self._known.popitem(last=False)
        return Taken(accepted=True, idempotent=known is not None and digest == known.digest)

    def forget(self, agent_id: str, instance_id: str) -> None:
        """The last connection of a process is gone."""
        self._known.pop((agent_id, instance_id), None)

    def keys(self) -> frozenset[tuple[str, str]]:
        """The agents and processes that it knows of."""
        return frozenset(self._known)

    def view(
        self,
        agent_id: str,
        connections: Sequence[Connection],
        healthy: Sequence[Connection],
        now: float,
        elsewhere: Sequence[ConnectionLease] = (),
    ) -> AgentView:
        """An agent with all its processes, by instance ID. One without metadata has no items, which is no error.

        Args:
            connections: those of this router, and which of them are `healthy`.
            elsewhere: those of others.
        """
        here = Counter(connection.claim.instance_id for connection in connections)
        there = Counter(lease.instance_id for lease in elsewhere)
        well = {connection.claim.instance_id for connection in healthy}
        well_there = {lease.instance_id for lease in elsewhere if lease.health_score > 0}
        views: list[InstanceView] = []
        for instance_id in sorted(here.keys() | there.keys()):
            known = self._known.get((agent_id, instance_id)) if instance_id in here else None
            items, is_old = (known.items, known.is_old(now)) if known else ((), True)
            count, is_healthy = here[instance_id] + there[instance_id], instance_id in well | well_there
            views.append(InstanceView(instance_id, count, items, is_healthy, is_old, instance_id in here))
        candidates = sorted(well or here)
        freshest = max(candidates, key=lambda one: self._heard_at(agent_id, one), default="")
        top = self._known.get((agent_id, freshest))
        return AgentView(agent_id, top.items if top else (), tuple(views))

    def _heard_at(self, agent_id: str, instance_id: str) -> float:
        known = self._known.get((agent_id, instance_id))
        return known.at if known else -1.0


def _refuse(name: str, code: ErrorName) -> Taken:
    return Taken(accepted=False, problems=(Problem(name, code),))


def _digest(hello: Hello) -> bytes:
    said = [[attrs.astuple(item) for item in hello.items], [attrs.astuple(problem) for problem in hello.errors]]
    return hashlib.sha256(json.dumps(said).encode()).digest()
