"""A node's attachments in every order of lists, losses, go-aways and clock: real routers, the real driver."""

import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import ExitStack, asynccontextmanager, closing
from functools import partial
from typing import cast

import attrs
import trio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agentmesh.identity import Identity
from agentmesh.node.attachments import MONITOR_INTERVAL
from agentmesh.node.catalogue import MAX_SHUN_TIME
from agentmesh.node.standing import LAST_RESORT_TIME, SHUN_TIME, TAKEN, State
from agentmesh.protocols.goaway import GoAway, Reason
from agentmesh.router import Router
from agentmesh.runtime.config import HostConfig, SessionConfig
from agentmesh.testing import Conditions
from agentmesh.testing.clock import deterministic_schedule
from agentmesh.types import PeerId
from tests.membership.plane import Plane
from tests.node.fleet import open_fleet
from tests.node.machine import Loop
from tests.soak.census import CONTAINERS, attributes

WANTED = 2
NAMES = ["r0", "r1", "r2", "r3", "r4"]
QUIET = HostConfig(session=SessionConfig(ping_interval=200.0))
REST_LOOKS = 50
REST = 1.5 * SHUN_TIME + 2 * MONITOR_INTERVAL  # seconds within which whoever can be attached to is
MOST = 16  # in any map of a node with so few routers
some = st.sampled_from(NAMES)
later = st.sampled_from([0.0, 0.01, 0.3, 2.0, 6.0, 20.0, 61.0])  # seconds until the next thing happens
which = st.sampled_from([slice(0, 1), slice(-1, None), slice(None)])  # of the routers that are attached: one or all


def identity_of(name: str) -> Identity:
    return Identity(Ed25519PrivateKey.from_private_bytes(random.Random(name).randbytes(32)))


class Member(RuleBasedStateMachine):
    """One node and five routers. What must never be is looked at whenever the node's attachments change."""

    def __init__(self) -> None:
        super().__init__()
        self.schedule = ExitStack()
        self.schedule.enter_context(deterministic_schedule(0))
        self.routers = dict[str, Router]()
        self.told = dict[PeerId, float]()  # for how long at least each is about to say that it is to be left alone
        self.shunned = dict[PeerId, tuple[float, float]]()  # since when, and until when
        self.order: Sequence[PeerId] = ()
        self.wrong = list[str]()
        self.loop = Loop(self.world())

    @asynccontextmanager
    async def world(self) -> AsyncGenerator[None]:
        async with open_fleet(Plane(ttl=30 * 86400.0)) as self.fleet:
            await self.open()
            yield

    async def open(self) -> None:
        for number, name in enumerate(NAMES):
            self.fleet.network.set_conditions("node", name, Conditions(latency=0.01 * 3**number))
            self.routers[name] = await self.fleet.router(name, identity=identity_of(name), host=QUIET)
        self.plane = self.fleet.plane
        self.records = {name: self.plane.routers[router.peer] for name, router in self.routers.items()}
        self.names = {router.peer: name for name, router in self.routers.items()}
        self.node = await self.fleet.node("node", routers=WANTED, host=QUIET)
        self.attachments, self.catalogue = self.node.attachments, self.node.attachments.catalogue
        self.attachments.on_change(self.look)
        self.attachments.goaways.on_sent_away(self.sent_away)
        self.look()

    def teardown(self) -> None:
        with self.schedule, closing(self.loop):
            self.rest()

    # ── what happens ──

    @rule(names=st.sets(some, min_size=1, max_size=3) | st.just(set(NAMES)), banned=st.none() | some)
    def publish(self, names: set[str], banned: str | None) -> None:
        """The control plane names other routers. The node hears of it when it asks next."""
        self.plane.routers = {self.records[name].peer: self.records[name] for name in sorted(names)}
        self.plane.banned = {self.records[banned].peer} if banned else set()

    @rule(name=some, load=st.integers(0, 9))
    def fill(self, name: str, load: int) -> None:
        self.records[name] = attrs.evolve(self.records[name], connections=load, connection_limit=10)
        if self.records[name].peer in self.plane.routers:
            self.plane.routers[self.records[name].peer] = self.records[name]

    @rule(which=which, then=later)
    def drop(self, which: slice, then: float) -> None:
        for name in self.attached[which]:
            self.fleet.network.reset("node", name)
        self.wait(then)

    @rule(name=some, blocked=st.booleans(), then=later)
    def cut(self, name: str, blocked: bool, then: float) -> None:
        (self.fleet.network.block if blocked else self.fleet.network.heal)("node", name)
        self.wait(then)

    @property
    def attached(self) -> list[str]:
        return [self.names[record.peer] for record in self.catalogue.attached]

    @rule(
        which=which,
        reason=st.sampled_from([Reason.DRAINING, Reason.OVERLOADED]),
        retry_after=st.sampled_from([0.0, 5.0, 30.0, 300.0, 1e5]),
        then=later,
    )
    def send_away(self, which: slice, reason: Reason, retry_after: float, then: float) -> None:
        async def tell() -> None:
            for name in self.attached[which]:
                router = self.routers[name]
                retry = min(retry_after or SHUN_TIME, MAX_SHUN_TIME)
                self.told[router.peer] = min(retry, self.told.get(router.peer, retry))
                goaway = GoAway(reason, retry_after)
                sending = partial(router.departures.send_away, router.host, [self.node.peer])
                self.fleet.nursery.start_soon(sending, goaway)
            await trio.sleep(then)

        self.loop.do(tell)

    @precondition(lambda self: sum(not router.members.is_closed for router in self.routers.values()) > WANTED)
    @rule(name=some)
    def close(self, name: str) -> None:
        """It takes nobody in any more."""
        self.routers[name].members.close()

    @rule(seconds=later)
    def wait(self, seconds: float) -> None:
        self.loop.do(partial(trio.sleep, seconds))

    def rest(self) -> None:
        """Nothing is in the way any more: the node holds as many routers as it can."""
        for name in NAMES:
            self.fleet.network.heal("node", name)
        for _ in range(REST_LOOKS):
            self.loop.do(partial(trio.sleep, REST / REST_LOOKS))
            if len(self.attachments.routers) >= min(WANTED, len(self.usable())):
                return
        raise AssertionError(f"attached to {self.attachments.routers}, and there are {self.usable()}")

    def usable(self) -> set[PeerId]:
        """The routers that take the node in, as far as it knows."""
        now = self.loop.do(self.now)
        takes_in = {router.peer for router in self.routers.values() if not router.members.is_closed}
        usable = {peer for peer in takes_in.intersection(self.plane.routers) if not self.is_banned(peer)}
        return usable - {peer for peer, (_, until) in self.shunned.items() if until >= now - 2 * MONITOR_INTERVAL}

    async def now(self) -> float:
        return trio.current_time()

    # ── what must be ──

    def sent_away(self, router: PeerId, reason: Reason) -> None:
        now = trio.current_time()
        self.shunned[router] = (now, now + self.told.pop(router))

    def look(self) -> None:
        """Called by the driver whenever something changed."""
        now = trio.current_time()
        attached = [record.peer for record in self.catalogue.attached]
        kept = [peer for peer in self.order if peer in attached]
        self.expect(attached[: len(kept)] == kept, f"the order was {self.order} and is {attached}")
        self.order = attached
        self.expect(sum(self.catalogue.state(peer) in TAKEN for peer in self.names) <= WANTED, "too many are taken")
        for peer, (since, until) in self.shunned.items():
            taken = self.catalogue.state(peer) in TAKEN
            self.expect(not taken or now >= min(until, since + LAST_RESORT_TIME), f"{self.names[peer]} is shunned")

    def expect(self, what: bool, text: str) -> None:
        if not what:
            self.wrong.append(text)

    @invariant()
    def nothing_was_wrong(self) -> None:
        assert not self.wrong

    @invariant()
    def it_holds_no_more_than_it_wants_and_those_it_is_leaving(self) -> None:
        states = [self.catalogue.state(peer) for peer in self.names]
        held = [s.peer for s in self.node.host.connections if s.peer in self.names and s.accepts_streams]
        assert len(set(held)) <= WANTED + states.count(State.LEAVING)
        assert set(self.attachments.routers) <= {record.peer for record in self.catalogue.attached}

    @invariant()
    def it_is_not_attached_to_whom_it_knows_to_be_banned(self) -> None:
        assert not any(map(self.is_banned, self.attachments.routers))

    def is_banned(self, peer: PeerId) -> bool:
        return peer in self.node.membership.bans

    @invariant()
    def maps_are_small(self) -> None:
        parts = (self.attachments, self.catalogue, self.attachments.admissions, self.attachments.goaways)
        for part in cast("Sequence[object]", parts):
            for name, value in attributes(part):
                if isinstance(value, CONTAINERS):
                    assert len(cast("Sequence[object]", value)) <= MOST, name


TestMemberInEveryOrder = Member.TestCase
TestMemberInEveryOrder.settings = settings(max_examples=15, stateful_step_count=15)
