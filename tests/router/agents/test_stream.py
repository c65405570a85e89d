"""Events as operators' programs hear them: server-sent, resumed, bounded, and over when the listener leaves."""

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from agentmesh.pool.admin_client import HEARTBEAT_INTERVAL
from agentmesh.pool.agent.config import ConnectionsConfig
from agentmesh.pool.router.audit import Action, Audit, AuditEvent
from agentmesh.pool.router.views import Moment
from agentmesh.protocols.http import ASGIApp
from agentmesh.router.agents.events import AgentEvents
from agentmesh.router.agents.stream import OVERFLOW, EventStream
from tests.router.agents.agency import AGENT, open_agency
from tests.router.agents.operators import api_of, ask, open_hearing

TWO = ConnectionsConfig(min=2, max=2)


def event(name: str, agent_id: str = AGENT) -> AuditEvent:
    return AuditEvent(
        action=Action.REGISTERED,
        at=trio.current_time(),
        agent_id=agent_id,
        instance_id="i1",
        connection_id=name,
        server_node_id="n1",
        token_id="t1",
        epoch=2**60 + 1,
    )


class Router:
    """What a listener needs of one."""

    def __init__(self, nursery: trio.Nursery, *, max_kept: int = 1000, max_listeners: int = 64) -> None:
        self.audit = Audit()
        self.events = AgentEvents(self.audit, "run", max_kept=max_kept, max_listeners=max_listeners)
        self.app = EventStream(self.events, lambda: Moment(trio.current_time(), 1_800_000_000.0))
        nursery.start_soon(self.events.run)


async def test_the_life_of_a_connection_is_told(autojump_clock: MockClock) -> None:
    async with open_agency() as agency:
        router = await agency.router("r1")
        async with open_hearing(api_of(router)) as hearing:
            assert hearing.started["status"] == 200
            assert (b"content-type", b"text/event-stream; charset=utf-8") in hearing.started["headers"]
            assert await hearing.block() == {"retry": "3000"}
            agent = await agency.agent("i1")
            name, data = await hearing.event()
            [one] = [pool.connections[0] for pool in router.agents.service.table]
            assert (name, data["agentId"], data["instanceId"]) == (Action.REGISTERED, AGENT, "i1")
            assert (data["connectionId"], data["connectionEpoch"]) == (one.connection_id, one.epoch)
            assert (data["serverNodeId"], data["count"], data["reason"]) == (str(router.peer), 1, "")
            agent.pool.drain()
            told = [await hearing.event() for _ in range(2)]
            assert [name for name, _ in told] == [Action.DRAINING, Action.CLOSED]
            assert [data["reason"] for _, data in told] == ["agent_shutdown", "drained"]


async def test_a_listener_goes_on_where_it_was(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        router = Router(nursery, max_kept=3)
        for n in range(6):
            router.audit.record(event(f"c{n}"))
        await wait_all_tasks_blocked()
        cases: dict[str, list[str | int | None]] = {
            "run.5": ["c5"],
            "run.2": [1, "c3", "c4", "c5"],
            "old.9": [None, "c3", "c4", "c5"],
        }
        for last, expected in cases.items():
            for hearing_again in (
                open_hearing(router.app, f"/events?lastEventId={last}"),
                open_hearing(router.app, last_event_id=last),
            ):
                async with hearing_again as hearing:
                    told = [await hearing.event() for _ in expected]
                    found = [data["missed"] if name == OVERFLOW else data["connectionId"] for name, data in told]
                    assert found == expected
                    assert told[-1][1]["id"] == "run.6"
                    assert told[-1][1]["connectionEpochDecimal"] == str(2**60 + 1)
        nursery.cancel_scope.cancel()


async def test_a_slow_listener_is_told_what_it_missed(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        router = Router(nursery, max_kept=10)
        async with open_hearing(router.app, room=0) as hearing:
            await hearing.block()
            for n in range(500):  # it takes none of them in
                router.audit.record(event(f"c{n}"))
                await wait_all_tasks_blocked()
            assert (await hearing.event())[1]["connectionId"] == "c0"  # which was on its way
            assert (await hearing.event()) == (OVERFLOW, {"missed": 489, "id": None})
            assert [(await hearing.event())[1]["connectionId"] for _ in range(10)] == [f"c{n}" for n in range(490, 500)]
        nursery.cancel_scope.cancel()


async def test_silence_is_broken_by_comments_that_keep_the_place(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        router = Router(nursery)
        async with open_hearing(router.app, "/events?agentId=MINE") as hearing:
            assert "retry" in await hearing.block()
            began = trio.current_time()
            assert (await hearing.block())["id"] == "run.0"
            assert trio.current_time() - began == HEARTBEAT_INTERVAL
            router.audit.record(event("c1", "other"))
            assert await hearing.block() == {"": "nothing new", "id": "run.1"}  # no event, but not to be told again
            router.audit.record(event("c2", "mine"))
            assert (await hearing.event())[1]["connectionId"] == "c2"
        nursery.cancel_scope.cancel()


async def test_there_are_so_many_listeners_and_a_place_is_given_back(autojump_clock: MockClock) -> None:
    async with open_agency() as agency:
        router = await agency.router("r1")
        app, events = api_of(router), router.agents.events
        async with trio.open_nursery() as nursery:
            for _ in range(64):
                nursery.start_soon(_listen, app)
            await wait_all_tasks_blocked()
            refused = await ask(app, "/events")
            assert (refused.status_code, refused.json()["code"]) == (503, "too_many_listeners")
            assert int(refused.headers["retry-after"]) > 0
            nursery.cancel_scope.cancel()
        assert events.listeners == 0
        async with open_hearing(app) as hearing:
            await hearing.block()
            assert events.listeners == 1
            hearing.leave()
            with trio.fail_after(1):
                while events.listeners:  # noqa: ASYNC110 - seen from outside
                    await trio.sleep(0.01)


async def _listen(app: ASGIApp) -> None:
    async with open_hearing(app) as hearing:
        while True:
            await hearing.block()
