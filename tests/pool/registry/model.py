"""What a registry is to do, said a second time, in one dictionary and one thing after another."""

import copy
from collections.abc import Sequence
from typing import Self

import attrs

from agentmesh.pool.registry import (
    AmbiguousAgentError,
    ConnectionRegistry,
    Fence,
    Full,
    Held,
    Lapsed,
    NewConnection,
    Registered,
    Released,
    Renewed,
    Stats,
    StatsReport,
    Superseded,
    Updated,
)
from agentmesh.protocols.pool import ConnEpoch

Outcome = tuple[object, ...]  # the kind of outcome, and what is in it but instants
Listing = list[tuple[object, ...]]


@attrs.frozen
class Register:
    new: NewConnection
    proposed: int | None
    ttl: float

    async def ask(self, registry: ConnectionRegistry) -> Outcome:
        epoch = None if self.proposed is None else ConnEpoch(self.proposed)
        match await registry.register_connection(self.new, self.ttl, epoch):
            case Registered(fence, _, replaced):
                return Registered, fence, replaced
            case Held(node, epoch, _):
                return Held, node, epoch
            case other:
                return (other,)


@attrs.frozen
class Renew:
    fence: Fence
    ttl: float

    async def ask(self, registry: ConnectionRegistry) -> Outcome:
        outcome = await registry.renew_connection(self.fence, self.ttl)
        return (Renewed,) if isinstance(outcome, Renewed) else (outcome,)


@attrs.frozen
class Release:
    fence: Fence

    async def ask(self, registry: ConnectionRegistry) -> Outcome:
        return (await registry.release_connection(self.fence),)


@attrs.frozen
class Report:
    fence: Fence
    stats: Stats

    async def ask(self, registry: ConnectionRegistry) -> Outcome:
        return await registry.update_connection_stats([StatsReport(self.fence, self.stats)])


Operation = Register | Renew | Release | Report


@attrs.define
class Life:
    """The last one of a connection."""

    new: NewConnection
    epoch: int
    ends_at: float
    stats: Stats = Stats()


@attrs.define
class Model:
    """Attributes:
    lives: by agent and connection.
    floors: by agent, the highest epoch of lives that were forgotten.
    """

    max_connections: int
    now: float = 0.0
    lives: dict[tuple[str, str], Life] = attrs.field(factory=dict[tuple[str, str], Life])
    floors: dict[str, int] = attrs.field(factory=dict[str, int])

    def after(self, operation: Operation) -> tuple[Self, Outcome]:
        """Another model, in which it has been done."""
        model = copy.deepcopy(self)
        match operation:
            case Register():
                return model, model._register(operation)
            case Renew(fence, ttl):
                return model, model._change(fence, Renewed, "ends_at", model.now + ttl)
            case Release(fence):
                return model, model._change(fence, Released(), "ends_at", model.now)
            case Report(fence, stats):
                return model, model._change(fence, Updated(), "stats", stats)

    def listing(self, agent_id: str) -> Listing | type[AmbiguousAgentError]:
        lives = [
            life
            for _, life in sorted(self.lives.items())
            if life.ends_at > self.now and life.new.agent_id.lower() == agent_id.lower()
        ]
        if len({life.new.agent_id for life in lives}) > 1:
            return AmbiguousAgentError
        return [(life.new, life.epoch, life.stats) for life in lives]

    def forget(self) -> int:
        ended = [key for key, life in self.lives.items() if life.ends_at <= self.now]
        for key in ended:
            self.floors[key[0]] = max(self.floors.get(key[0], -1), self.lives.pop(key).epoch)
        return len(ended)

    def _register(self, operation: Register) -> Outcome:
        new, proposed = operation.new, operation.proposed
        key = new.agent_id, new.connection_id
        life = self.lives.get(key)
        is_listed = life is not None and life.ends_at > self.now
        if life is not None and proposed is not None and proposed <= life.epoch:
            return (Superseded(ConnEpoch(life.epoch)),)
        if life is not None and is_listed and proposed is None:
            return Held, life.new.server_node_id, life.epoch
        others = sum(agent == new.agent_id and other.ends_at > self.now for (agent, _), other in self.lives.items())
        if not is_listed and others >= self.max_connections:
            return (Full("max_connections_per_agent", self.max_connections),)
        last = life.epoch if life is not None else self.floors.get(new.agent_id, -1)
        epoch = max(last + 1, 1) if proposed is None else max(last + 1, proposed)
        self.lives[key] = Life(new, epoch, self.now + operation.ttl)
        return Registered, new.fenced(epoch), last if is_listed else None

    def _change(self, fence: Fence, done: object, attribute: str, value: object) -> Outcome:
        life = self.lives.get((fence.agent_id, fence.connection_id))
        if life is not None and life.epoch > fence.epoch:
            return (Superseded(ConnEpoch(life.epoch)),)
        if life is None or life.epoch != fence.epoch or life.ends_at <= self.now:
            return (Lapsed(),)
        setattr(life, attribute, value)
        return (done,)


async def list_of(registry: ConnectionRegistry, agent_id: str) -> Listing | type[AmbiguousAgentError]:
    """What a registry lists, as `Model.listing` says it."""
    try:
        leases = await registry.list_active_by_agent(agent_id)
    except AmbiguousAgentError:
        return AmbiguousAgentError
    return [
        (
            NewConnection(
                agent_id=lease.agent_id,
                connection_id=lease.connection_id,
                instance_id=lease.instance_id,
                server_node_id=lease.server_node_id,
                capabilities=lease.capabilities,
            ),
            lease.connection_epoch,
            Stats(lease.active_streams, lease.health_score),
        )
        for lease in leases
    ]


def outcomes_in_any_order(model: Model, operations: Sequence[Operation]) -> list[tuple[Model, dict[int, Outcome]]]:
    """All that a model may be, and answer, when operations are done at once; answers by their position."""
    ends: list[tuple[Model, dict[int, Outcome]]] = [(model, {})]
    for _ in operations:
        ends = [
            (after, {**answers, index: outcome})
            for before, answers in ends
            for index, operation in enumerate(operations)
            if index not in answers
            for after, outcome in [before.after(operation)]
        ]
    return ends
