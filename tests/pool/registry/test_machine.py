"""Several routers with clocks of their own, on one store of each kind, in any order and at once, against the model.

What was done at once has to have come out as if it had been done one by one, in some order; where several orders would
explain what was seen, all of them are kept in mind. Fences of long ago are used again and again, as by routers that
slept, and by messages that were late.
"""

import threading
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

import pytest
import trio
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from agentmesh.pool.registry import AmbiguousAgentError, Fence, NewConnection, Registered, RegistryLimits, Stats
from agentmesh.protocols.pool import ConnEpoch
from tests.pool.registry.conftest import KINDS, Opener, opener
from tests.pool.registry.model import (
    Listing,
    Model,
    Operation,
    Outcome,
    Register,
    Release,
    Renew,
    Report,
    list_of,
    outcomes_in_any_order,
)
from tests.pool.registry.stores import Store

T = TypeVar("T")

SKEWS = (0.0, 7200.0, -86_400.0)  # seconds that routers' clocks are off
# Far apart, so that the seconds a slow machine takes for a run end no lease.
TTLS = st.sampled_from([10_000.0, 30_000.0])
STEPS = st.sampled_from([6_000.0, 21_000.0])
LIMITS = RegistryLimits(max_connections_per_agent=2, max_ttl=1_000_000.0)

# How often, by what it costs: the model and the rules are tried in memory, the servers' own ways on the servers.
RUNS = {"memory": (40, 25), "sqlite": (8, 20), "postgres": (4, 20), "mariadb": (4, 20), "etcd": (5, 20)}

NOTHING = Fence("nobody", "conn-a", ConnEpoch(3))

agents = st.sampled_from(["agent", "Agent", "other"])
connection_ids = st.sampled_from(["conn-a", "conn-B", "conn-c"])
routers = st.integers(0, len(SKEWS) - 1)
epochs = st.sampled_from([0, 1, 2, 5, 2**31 - 1, 2**31, 2**53 + 1])
statistics = st.builds(Stats, st.integers(0, 9), st.integers(0, 100))


class Worker:
    """A store in a thread of its own, for steps that are not async."""

    def __init__(self, open_store: Opener) -> None:
        self._open, self._ready = open_store, threading.Event()
        self._thread = threading.Thread(target=trio.run, args=(self._main,))
        self._thread.start()
        self._ready.wait()

    async def _main(self) -> None:
        self._token, self._stop = trio.lowlevel.current_trio_token(), trio.Event()
        try:
            async with self._open(LIMITS) as self.store:
                self._ready.set()
                await self._stop.wait()
        finally:
            self._ready.set()

    def call(self, step: Callable[[Store], Awaitable[T]]) -> T:
        return trio.from_thread.run(step, self.store, trio_token=self._token)

    def close(self) -> None:
        self._token.run_sync_soon(self._stop.set)
        self._thread.join()


class Routers(RuleBasedStateMachine):
    """Its `open_store` is set in a subclass for each kind of store."""

    open_store: Opener
    fences: Bundle[Fence] = Bundle("fences")

    def __init__(self) -> None:
        super().__init__()
        self.worker = Worker(self.open_store)
        self.models = [Model(LIMITS.max_connections_per_agent)]
        self.minted: dict[tuple[str, str], int] = {}

    def teardown(self) -> None:
        self.worker.close()

    def do(self, asked: Sequence[tuple[int, Operation]]) -> MultipleResults[Fence]:
        """Do these at once, each on its router. Gives as many fences as connections were to be registered: Hypothesis
        is not to see which of them won.
        """
        answers = self.worker.call(lambda store: ask_at_once(store, asked))
        operations = [operation for _, operation in asked]
        found = [
            after
            for model in self.models
            for after, expected in outcomes_in_any_order(model, operations)
            if expected == answers
        ]
        assert found, f"{operations} came out as {answers}, which is no order's outcome, in {self.models}"
        self.models = [model for index, model in enumerate(found) if model not in found[:index]]
        self.check_epochs([answer[1] for answer in answers.values() if answer[0] is Registered])
        registered = [answers[index][1:2] for index, (_, asking) in enumerate(asked) if isinstance(asking, Register)]
        return multiple(*(got[0] if got and isinstance(got[0], Fence) else NOTHING for got in registered))

    def check_epochs(self, fences: Sequence[object]) -> None:
        """Those of a connection only ever go up, whatever was forgotten."""
        for epoch, agent_id, connection_id in sorted(
            (fence.epoch, fence.agent_id, fence.connection_id) for fence in fences if isinstance(fence, Fence)
        ):
            assert epoch > self.minted.get((agent_id, connection_id), -1)
            self.minted[agent_id, connection_id] = epoch

    @rule(target=fences, agent=agents, name=connection_ids, router=routers, proposed=st.none() | epochs, ttl=TTLS)
    def register(self, agent: str, name: str, router: int, proposed: int | None, ttl: float) -> MultipleResults[Fence]:
        return self.do([(router, Register(new_connection(agent, name, router), proposed, ttl))])

    @rule(fence=fences, router=routers, ttl=TTLS)
    def renew(self, fence: Fence, router: int, ttl: float) -> None:
        self.do([(router, Renew(fence, ttl))])

    @rule(fence=fences, router=routers)
    def release(self, fence: Fence, router: int) -> None:
        self.do([(router, Release(fence))])

    @rule(fence=fences, router=routers, stats=statistics)
    def report(self, fence: Fence, router: int, stats: Stats) -> None:
        self.do([(router, Report(fence, stats))])

    @rule(agent=agents, name=connection_ids, fence=st.integers(0, 3))
    def renew_what_was_never_given_out(self, agent: str, name: str, fence: int) -> None:
        self.do([(0, Renew(new_connection(agent, name, 0).fenced(2**40 + fence), 10_000.0))])

    @rule(
        target=fences,
        agent=agents,
        name=connection_ids,
        proposals=st.lists(st.none() | epochs, min_size=1, max_size=2),
        fence=fences,
        stats=statistics,
        kinds=st.lists(st.sampled_from(["renew", "release", "report"]), min_size=1, max_size=2),
    )
    def at_once(
        self,
        agent: str,
        name: str,
        proposals: list[int | None],
        fence: Fence,
        stats: Stats,
        kinds: list[str],
    ) -> MultipleResults[Fence]:
        changes: dict[str, Operation] = {
            "renew": Renew(fence, 30_000.0),
            "release": Release(fence),
            "report": Report(fence, stats),
        }
        asked: list[Operation] = [
            Register(new_connection(agent, name, router), proposed, 10_000.0)
            for router, proposed in enumerate(proposals)
        ]
        asked += [changes[kind] for kind in kinds]
        return self.do([(index % len(SKEWS), operation) for index, operation in enumerate(asked)])

    @rule(seconds=STEPS)
    def time_passes(self, seconds: float) -> None:
        for model in self.models:
            model.now += seconds
        ended = {key for model in self.models for key, life in model.lives.items() if life.ends_at <= model.now}
        self.worker.call(lambda store: store.advance(seconds, ended))

    @rule()
    def forget(self) -> None:
        forgotten = self.worker.call(lambda store: store.forget_all())
        self.models = [model for model in self.models if model.forget() == forgotten]
        assert self.models

    @invariant()
    def what_is_listed_is_what_lives(self) -> None:
        for agent_id in ("AGENT", "other"):
            listed = self.worker.call(partial(list_on, agent_id=agent_id))
            self.models = [model for model in self.models if model.listing(agent_id) == listed]
            assert self.models, f"{agent_id} is listed as {listed}"


async def list_on(store: Store, agent_id: str) -> Listing | type[AmbiguousAgentError]:
    return await list_of(store.registry, agent_id)


async def ask_at_once(store: Store, asked: Sequence[tuple[int, Operation]]) -> dict[int, Outcome]:
    answers: dict[int, Outcome] = {}

    async def ask(index: int, router: int, operation: Operation) -> None:
        answers[index] = await operation.ask(store.of_router(SKEWS[router]))

    async with trio.open_nursery() as nursery:
        for index, (router, operation) in enumerate(asked):
            nursery.start_soon(ask, index, router, operation)
    return answers


def new_connection(agent: str, name: str, router: int) -> NewConnection:
    return NewConnection(
        agent_id=agent,
        connection_id=name,
        instance_id=f"instance-{router}",
        server_node_id=f"router-{router}",
        capabilities=("tcp",),
    )


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_routers_do_at_once_comes_out_as_one_after_another(kind: str, request: pytest.FixtureRequest) -> None:
    examples, steps = RUNS[kind]
    machine = type("Routers", (Routers,), {"open_store": staticmethod(opener(request, kind))})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
        ),
    )
