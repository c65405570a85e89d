"""Routers join, leave and lose each other, members announce and ask, in every order, on a virtual clock."""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from agentmesh.testing import run
from tests.membership.plane import Plane
from tests.node.fleet import open_fleet
from tests.router.directories import KEYS, MAX_ROUTERS, World

MEMBERS = 3
Step = Callable[[World], Awaitable[object]]

routers, members, keys = st.integers(0, MAX_ROUTERS - 1), st.integers(0, MEMBERS - 1), st.integers(0, len(KEYS) - 1)


class Directories(RuleBasedStateMachine):
    """A record that was announced and has not expired is found through every router once it is quiet, and lies just
    where it belongs, also when routers have stopped meanwhile. Nothing withdrawn is found then, nothing expired at any
    time, and nothing but what its provider said.

    The rules write the story down; it is played when it is over, since it takes one run of Trio.
    """

    def __init__(self) -> None:
        super().__init__()
        self.replication, self.seed = 1, 0
        self.steps: list[Step] = [World.start]

    @initialize(count=st.integers(1, MAX_ROUTERS), replication=st.integers(1, 3), seed=st.integers(0, 3))
    def begin(self, count: int, replication: int, seed: int) -> None:
        self.replication, self.seed = replication, seed
        self.steps = [World.start] * count

    @rule()
    def join(self) -> None:
        self.steps.append(World.start)

    @rule(which=routers)
    def leave(self, which: int) -> None:
        self.steps.append(lambda world: world.stop(which))

    @rule(one=routers, others=st.sets(routers, min_size=1))
    def cut(self, one: int, others: set[int]) -> None:
        self.steps.append(lambda world: world.cut(one, others))

    @rule()
    def heal(self) -> None:
        self.steps.append(World.heal)

    @rule(who=members, what=keys, router=routers, ttl=st.sampled_from((5.0, 150.0, 900.0)), addresses=st.integers(0, 2))
    def announce(self, who: int, what: int, router: int, ttl: float, addresses: int) -> None:
        self.steps.append(lambda world: world.announce(who, what, router, ttl, addresses))

    @rule(which=st.integers(0, 9), router=routers)
    def withdraw(self, which: int, router: int) -> None:
        self.steps.append(lambda world: world.withdraw(which, router))

    @rule(who=members, victim=members, router=routers)
    def forge(self, who: int, victim: int, router: int) -> None:
        self.steps.append(lambda world: world.forge(who, victim, router))

    @rule(seconds=st.sampled_from((0.1, 0.9, 3.0, 60.0, 300.0)))
    def wait(self, seconds: float) -> None:
        self.steps.append(lambda world: world.wait(seconds))

    @rule(who=members, what=keys, router=routers)
    def look(self, who: int, what: int, router: int) -> None:
        self.steps.append(lambda world: world.look(who, what, router))

    @rule()
    def quiet(self) -> None:
        self.steps.append(World.quiet)

    def teardown(self) -> None:
        run(self._play, seed=self.seed)

    async def _play(self) -> None:
        async with open_fleet(Plane(replication=self.replication)) as fleet, AsyncExitStack() as stack:
            world = World(fleet, stack)
            await world.open(MEMBERS)
            for step in [*self.steps, World.quiet]:
                await step(world)


TestDirectories = Directories.TestCase
TestDirectories.settings = settings(
    max_examples=20,
    stateful_step_count=15,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # a story of hours takes as long to make small
    suppress_health_check=[HealthCheck.too_slow],
)
