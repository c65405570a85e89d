import math

from agentmesh.pool.router.audit import AGGREGATION_INTERVAL, MAX_AGGREGATED, Action, Audit, AuditEvent


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
