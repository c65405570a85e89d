import math

import trio
from trio.testing import MockClock

from agentmesh.pool.registry import Fence, MemoryRegistry, NewConnection, RegistryLimits
from agentmesh.pool.router.audit import AGGREGATION_INTERVAL, MAX_AGGREGATED, Action, Audit, AuditEvent
from agentmesh.pool.router.claims import ConnectionKey
from agentmesh.protocols.pool import ConnEpoch
from tests.pool.worlds import open_cluster


def event(action: Action = Action.REJECTED, at: float = 0.0, token_id: str = "t1", reason: str = "full") -> AuditEvent:
    return AuditEvent(
        action=action,
        at=at,
        agent_id="a",
        instance_id="i",
        connection_id="c",
        server_node_id="n",
        token_id=token_id,
        epoch=1,
        reason=reason,
    )


def test_what_is_no_refusal_is_written_at_once() -> None:
    audit = Audit()
    audit.record(event(Action.CLOSED))
    audit.record(event(Action.CLOSED))
    assert [one.count for one in audit.take(0.0)] == [1, 1]
    assert audit.take(0.0) == []


def test_the_first_refusal_is_written_at_once_and_the_others_together() -> None:
    audit = Audit()
    for n in range(10):
        audit.record(event(at=n))
    audit.record(event(at=9.0, reason="stale"))
    audit.record(event(at=9.0, token_id="t2"))
    assert [(one.token_id, one.reason, one.count) for one in audit.take(10.0)] == [
        ("t1", "full", 1),
        ("t1", "stale", 1),
        ("t2", "full", 1),
    ]
    [later] = audit.take(AGGREGATION_INTERVAL)
    assert (later.count, later.at) == (9, 9.0)
    audit.record(event(at=AGGREGATION_INTERVAL + 1))
    assert [one.count for one in audit.take(AGGREGATION_INTERVAL + 1)] == [1]


def test_nobody_fills_the_book() -> None:
    audit = Audit(max_pending=100)
    for n in range(3 * MAX_AGGREGATED):
        audit.record(event(token_id=f"t{n}"))
        audit.record(event(token_id=f"t{n}"))
    assert len(audit) <= 100 + MAX_AGGREGATED
    written = sum(one.count for one in audit.close())
    assert written + audit.lost == 6 * MAX_AGGREGATED
    assert len(audit) == 0


async def test_what_the_registry_makes_of_a_connection_is_written_down(autojump_clock: MockClock) -> None:
    registry = MemoryRegistry(clock=trio.current_time)
    async with open_cluster(registry=registry) as cluster, cluster.agent("i1"):
        await cluster.wait_for(1)

        def written() -> list[Action]:
            return [one.action for one in cluster.table.audit.take(trio.current_time())]

        def key() -> ConnectionKey:
            [one] = [pool.connections[0] for pool in cluster.table if pool.by_id]
            return one.key

        assert written() == [Action.REGISTERED]
        before = key()
        await registry.release_connection(Fence(before.agent_id, before.connection_id, before.epoch))
        await trio.sleep(60)
        assert (written(), key().epoch > before.epoch) == ([Action.HEALED], True)
        registry.limits = RegistryLimits(max_connections_per_agent=1)
        now = key()
        await registry.release_connection(Fence(now.agent_id, now.connection_id, now.epoch))
        other = NewConnection(agent_id="agent", connection_id="c9", instance_id="i9", server_node_id="n2")
        await registry.register_connection(other, 3600.0)
        await trio.sleep(40)
        assert set(written()) == {Action.UNLISTED}
        assert cluster.healthy() == 1  # its streams do not notice
        registry.limits = RegistryLimits()
        await trio.sleep(60)
        assert written() == [Action.HEALED]
        same = NewConnection(agent_id="agent", connection_id=key().connection_id, instance_id="i1", server_node_id="n2")
        await registry.register_connection(same, 90.0, ConnEpoch(key().epoch + 1))
        await trio.sleep(40)
        assert written()[:2] == [Action.SUPERSEDED, Action.DRAINING]


def test_whoever_waits_is_woken_and_knows_until_when_to_wait() -> None:
    audit, woken = Audit(), list[str]()
    audit.watch(lambda: woken.append("once"))
    assert audit.deadline == math.inf
    audit.record(event(Action.CLOSED))
    assert (len(woken), audit.deadline) == (1, math.inf)
    audit.record(event(at=5.0))
    audit.record(event(at=7.0, token_id="t2"))
    assert (len(woken), audit.deadline) == (3, 5.0 + AGGREGATION_INTERVAL)
    audit.take(5.0 + AGGREGATION_INTERVAL)
    assert audit.deadline == 7.0 + AGGREGATION_INTERVAL
