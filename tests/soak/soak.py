"""A soak: members that transfer bytes while everything goes wrong, and what there is afterwards."""

import random
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sized
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import trio

from agentmesh.errors import MeshError
from agentmesh.node import Node
from agentmesh.router import Router
from agentmesh.runtime.registry import Protocol
from agentmesh.testing import Footprint, footprint
from agentmesh.testing.expect import leaves
from agentmesh.types import PeerId
from tests.soak.attacks import Target, attack
from tests.soak.census import take_census
from tests.soak.figures import Figures, figures_of
from tests.soak.members import Member
from tests.soak.rest import crowds, disagreements
from tests.soak.scenario import Assault, Injection, Restart, Scenario
from tests.soak.transfers import TRANSFER_ID, Sending, Store
from tests.soak.world import World

FIRST_WAIT, MAX_WAIT = 0.5, 20.0  # seconds of a sender between two attempts, stretched by up to as much again
STARTING = 32  # members at once
BROKEN = (MeshError, trio.BrokenResourceError, trio.ClosedResourceError)
Act = Callable[[], Awaitable[None]]


class Soak:
    """One run.

    Args:
        world: what it runs on.
        scenario: what happens.

    Attributes:
        violations: what must not be, in words.
        happened: what did happen, in order: when, what, to whom.
        counts: how often.
        sendings: the transfers, as their senders know them.
        recovered_after: seconds from the end of the faults to that of the last transfer.
        footprints: before, with all members up, and afterwards.
        figures: what the routers had counted when their members had gone.
    """

    def __init__(self, world: World, scenario: Scenario) -> None:
        self.violations: list[str] = []
        self.happened: list[tuple[float, str, str]] = []
        self.counts: Counter[str] = Counter()
        self.sendings = [Sending(transfer, self.violations.append) for transfer in scenario.transfers]
        self.recovered_after = 0.0
        self.footprints: list[Footprint] = []
        self.figures = Figures()
        self._world = world
        self._scenario = scenario
        self._routers: list[Router] = []
        self._store = Store(self.violations.append)
        protocols = [Protocol(TRANSFER_ID, self._store.serve)]
        # The last is where the attacks by members come from, and a member like all others.
        self._members = [Member(world, number, protocols) for number in range(scenario.members + 1)]

    @property
    def pending(self) -> list[Sending]:
        """The transfers that are not through."""
        return [sending for sending in self.sendings if not sending.done]

    @property
    def _nodes(self) -> list[Node]:
        return [member.node for member in self._members if member.node is not None]

    async def run(self) -> None:
        """All of it. What must not be is in `violations` afterwards."""
        before = take_census()
        async with self._open_routers():
            await self._come_to_rest("the routers' start", lambda: disagreements(self._routers, []))
            start = take_census()
            async with self._open_members() as nursery:
                self.footprints.append(footprint())
                await self._let_it_happen(nursery)
                await self._come_to_rest("the mesh", lambda: disagreements(self._routers, self._nodes))
                self.violations += crowds(self._routers, self._nodes, take_census())
            await self._come_to_rest("the routers without members", lambda: take_census().left_over(start))
            self.violations += disagreements(self._routers, [])
            self.figures = figures_of(self._routers)
        await self._come_to_rest("the process", lambda: take_census().left_over(before))
        self.footprints = [before.footprint, *self.footprints, take_census().footprint]

    # ── up and down ──

    @asynccontextmanager
    async def _open_routers(self) -> AsyncGenerator[None]:
        async with AsyncExitStack() as stack:
            for number in range(self._scenario.routers):
                self._routers.append(await stack.enter_async_context(self._world.open_router(number)))
            yield
            self._routers.clear()

    @asynccontextmanager
    async def _open_members(self) -> AsyncGenerator[trio.Nursery]:
        """All members, and a nursery for those that will come back."""
        places = trio.CapacityLimiter(STARTING)

        async def start(member: Member) -> None:
            async with places:
                await nursery.start(member.run)

        async with trio.open_nursery() as nursery:
            async with trio.open_nursery() as starting:
                for member in self._members:
                    starting.start_soon(start, member)
            yield nursery
            async with trio.open_nursery() as stopping:
                for member in self._members:
                    if member.node is not None:
                        stopping.start_soon(member.leave)

    async def _come_to_rest(self, what: str, check: Callable[[], Sized]) -> None:
        """Look again and again, until there is nothing that should not be."""
        until = trio.current_time() + self._world.patience
        while left := check():
            if trio.current_time() >= until:
                self.violations.append(f"{what} did not come to rest: {left}")
                return
            await trio.sleep(self._world.interval)

    # ── what happens ──

    async def _let_it_happen(self, members: trio.Nursery) -> None:
        """From the first fault to the last byte; transfers that are not through in time are left."""
        scenario, began = self._scenario, trio.current_time()
        acts: list[tuple[float, Act]] = [
            *((injection.at, partial(self._inject, injection)) for injection in scenario.injections),
            *((restart.at, partial(self._restart, restart, members)) for restart in scenario.restarts),
            *((assault.at, partial(self._assault, assault)) for assault in scenario.assaults),
            *((sending.transfer.at, partial(self._send, sending)) for sending in self.sendings),
        ]
        async with trio.open_nursery() as nursery:
            nursery.cancel_scope.deadline = began + scenario.seconds + self._world.recovery
            for at, act in acts:
                nursery.start_soon(_act_at, began + at, act)
        over = began + scenario.seconds
        self.recovered_after = max(trio.current_time() - over, 0.0)
        self.violations += [f"not through: {sending}" for sending in self.pending]
        self.violations += [f"lost: {sending}" for sending in self.sendings if not self._store.has(sending)]

    async def _inject(self, injection: Injection) -> None:
        self._record(injection.fault.value, injection)
        node = self._members[injection.member].node
        ways = await self._world.inject(injection, self._routers, node)
        self.counts[f"{injection.fault.value}, ways"] += ways

    async def _restart(self, restart: Restart, members: trio.Nursery) -> None:
        member = self._members[restart.member]
        if member.node is None:
            return
        self._record("death" if restart.abrupt else "departure", restart)
        await (member.die() if restart.abrupt else member.leave())
        await trio.sleep(restart.lasts)
        await members.start(member.run)

    async def _assault(self, assault: Assault) -> None:
        self._record(assault.attack.value, assault)
        chance = random.Random(f"{self._scenario.seed}/{assault.at}")
        router = self._routers[assault.router]
        transport, address = self._world.stranger(chance, router)
        villain = await self._members[-1].wait_node()
        target = Target(
            transport=transport,
            address=address,
            router=router.peer,
            member=villain.host,
            victim=self._members[assault.victim].peer,
            identity=self._world.identity(f"stranger at {assault.at}"),
            security=self._world.security,
            chance=chance,
        )
        await attack(assault.attack, target, assault.lasts)

    # ── transfers ──

    async def _send(self, sending: Sending) -> None:
        """Send, in as many attempts as it takes."""
        transfer, wait = sending.transfer, FIRST_WAIT
        chance = random.Random(f"waits of {transfer.number}")
        receiver = self._members[transfer.receiver].peer
        while not sending.done:
            node = await self._members[transfer.sender].wait_node()
            try:
                await sending.attempt(partial(node.open_stream, receiver, TRANSFER_ID))
            except* BROKEN as group:
                sending.failures += [type(exc).__name__ for exc in leaves(group)]
            if not sending.done:
                self._record("attempt in vain", transfer.number)
                await trio.sleep(wait * (1 + chance.random()))
                wait = min(2 * wait, MAX_WAIT)
        self._record("transfer", transfer.number)
        if transfer.hangs_up:
            await _hang_up(self._members[transfer.sender].node, receiver)

    def _record(self, what: str, whom: object) -> None:
        self.counts[what] += 1
        self.happened.append((trio.current_time(), what, str(whom)))


async def _act_at(moment: float, act: Act) -> None:
    await trio.sleep_until(moment)
    await act()


async def _hang_up(node: Node | None, peer: PeerId) -> None:
    """Close a session that nothing is left to do for."""
    session = node.host.session(peer) if node else None
    if session is not None and not session.streams:
        await session.aclose()
