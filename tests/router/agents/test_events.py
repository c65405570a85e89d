"""What befalls agents' connections: in the log, in the ring, and at each listener, once each."""

import logging

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from agentmesh.pool.router.audit import AGGREGATION_INTERVAL, Action, Audit, AuditEvent
from agentmesh.router.agents.events import AgentEvents, Happened, Listener, Missed


def event(name: str = "c1", action: Action = Action.REGISTERED, at: float = 0.0) -> AuditEvent:
    return AuditEvent(
        action=action,
        at=at,
        agent_id="agent",
        instance_id="i1",
        connection_id=name,
        server_node_id="n1",
        token_id="t1",
        epoch=7,
        reason="" if action is Action.REGISTERED else "full",
    )


async def heard(listener: Listener) -> list[str | int | None]:
    """The connections that a listener hears of, and how many it misses."""
    found: list[Happened | Missed] = []
    with trio.move_on_after(0.1):
        found = await listener.receive()
    return [one.event.connection_id if isinstance(one, Happened) else one.count for one in found]


async def test_each_listener_hears_each_event_once(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    audit = Audit()
    events = AgentEvents(audit, "run")
    caplog.set_level(logging.INFO, "agentmesh.audit")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(events.run)
        with events.listen() as first:
            audit.record(event("c1"))
            await wait_all_tasks_blocked()
            with events.listen() as second:
                audit.record(event("c2"))
                assert await heard(first) == ["c1"]
                assert await heard(first) == ["c2"]
                assert await heard(second) == ["c2"]
                assert await heard(second) == []
                assert events.listeners == 2
        assert events.listeners == 0
        nursery.cancel_scope.cancel()
    assert [(line.getMessage(), vars(line)["connection"], vars(line)["epoch"]) for line in caplog.records] == [
        ("agent.connection.registered", "c1", 7),
        ("agent.connection.registered", "c2", 7),
    ]


async def test_refusals_of_a_minute_come_though_nothing_else_happens(autojump_clock: MockClock) -> None:
    audit = Audit()
    events = AgentEvents(audit, "run")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(events.run)
        with events.listen() as listener:
            for _ in range(5):
                audit.record(event(action=Action.REJECTED, at=trio.current_time()))
            counts = [one.event.count for one in await listener.receive() if isinstance(one, Happened)]
            began = trio.current_time()
            counts += [one.event.count for one in await listener.receive() if isinstance(one, Happened)]
            assert counts == [1, 4]
            assert trio.current_time() - began == pytest.approx(AGGREGATION_INTERVAL)
        nursery.cancel_scope.cancel()


async def test_a_slow_listener_is_told_what_it_missed_and_costs_nothing(autojump_clock: MockClock) -> None:
    audit = Audit()
    events = AgentEvents(audit, "run", max_kept=3)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(events.run)
        with events.listen() as slow:
            for n in range(10):
                audit.record(event(f"c{n}"))
            await wait_all_tasks_blocked()
            assert await heard(slow) == [7, "c7", "c8", "c9"]
            audit.record(event("c10"))
            assert await heard(slow) == ["c10"]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ("run.9", ["c9"]),
        ("run.8", ["c8", "c9"]),
        ("run.5", [2, "c7", "c8", "c9"]),
        ("run.10", []),
        ("run.11", [None, "c7", "c8", "c9"]),  # more than have been
        ("earlier.9", [None, "c7", "c8", "c9"]),
        ("run.x", [None, "c7", "c8", "c9"]),
        ("run.-1", [None, "c7", "c8", "c9"]),
        ("run.99999999999999999999999", [None, "c7", "c8", "c9"]),
        ("nonsense", [None, "c7", "c8", "c9"]),
    ],
)
async def test_who_comes_again_goes_on_where_it_was(
    autojump_clock: MockClock, after: str, expected: list[str | int | None]
) -> None:
    audit = Audit()
    events = AgentEvents(audit, "run", max_kept=3)
    for n in range(10):
        audit.record(event(f"c{n}"))
    events.close()  # which takes what is left
    with events.listen(after) as listener:
        assert await heard(listener) == expected
        assert await heard(listener) == []
        assert listener.last_id == "run.10"


async def test_ids_are_those_by_which_a_listener_goes_on() -> None:
    audit = Audit()
    events = AgentEvents(audit, "run")
    for n in range(4):
        audit.record(event(f"c{n}"))
    events.close()
    with events.listen("earlier.1") as listener:
        missed, *happened = await listener.receive()
    assert missed == Missed(None)
    assert [one.id for one in happened if isinstance(one, Happened)] == ["run.1", "run.2", "run.3", "run.4"]


async def test_what_the_book_has_lost_is_said(caplog: pytest.LogCaptureFixture) -> None:
    audit = Audit(max_pending=1)
    events = AgentEvents(audit, "run")
    for n in range(3):
        audit.record(event(f"c{n}"))
    events.close()
    events.close()
    assert [vars(line)["count"] for line in caplog.records if line.getMessage() == "entries lost"] == [2]


def test_there_are_so_many_listeners_and_no_more() -> None:
    events = AgentEvents(Audit(), "run", max_listeners=2)
    with events.listen(), events.listen():
        assert events.is_full
    assert not events.is_full
