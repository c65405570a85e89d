"""A fleet of members and its routers, through what happens to routers: one stops, one is killed, all are started again
in turn, one fills up. On a simulated network and in virtual time; a seed does the same every time.
"""

import gc
import hashlib
import math
import random
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial

import attrs
import trio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from agentmesh.abc import ByteStream, Listener, Transport
from agentmesh.identity import Identity
from agentmesh.membership import Enrollment, Membership
from agentmesh.node import Node, NodeConfig, run_node_as
from agentmesh.protocols.goaway import Reason
from agentmesh.router import Router, RouterConfig, open_router_as
from agentmesh.runtime.config import ConnectionLimits, HostConfig, SessionConfig
from agentmesh.testing import Conditions, MemoryNetwork, SteadyTlsContext
from agentmesh.types import Address, PeerId
from tests.membership.plane import NODE_TOKEN, ROUTER_TOKEN, URL, Plane, wall_clock

EVENTS = ("drain", "kill", "restart", "fill")
HELD = 2  # routers a member
RAMP = 50.0  # members that start in a second
PAUSE = 65.0  # seconds between two routers that are started again, so that attachments are steady
PATIENCE = 900.0  # seconds for every member to hold as many routers as it should; one that sent it away is left for 300
SESSIONS = SessionConfig(ping_interval=240.0)  # whoever is killed here is known to be dead; pings cost time
MAX_MOVES = 2
MAX_REDIALS = 0.05  # of the fleet, in a second
FEW = 150  # that may dial in one second whatever they are of a fleet: a router tells as many all at once
FEW_LOST = 10  # the same of those whom nobody told
ENROLLMENT = Enrollment(control_plane=URL)


class Dials(Transport):
    """A member's way to dial, which keeps account."""

    def __init__(self, transport: Transport, note: Callable[[Address], None]) -> None:
        self._transport = transport
        self._note = note

    def can_dial(self, address: Address) -> bool:
        return self._transport.can_dial(address)

    def can_listen(self, address: Address) -> bool:
        return self._transport.can_listen(address)

    def dial(self, address: Address) -> AbstractAsyncContextManager[ByteStream]:
        self._note(address)
        return self._transport.dial(address)

    def listen(self, address: Address) -> AbstractAsyncContextManager[Listener]:
        return self._transport.listen(address)


def busiest_second(times: Sequence[float]) -> int:
    """How many of these instants, in their order, lie within one second at most."""
    most, first = 0, 0
    for last, at in enumerate(times):
        while at - times[first] >= 1.0:
            first += 1
        most = max(most, last - first + 1)
    return most


@attrs.frozen
class Post:
    """A router that is up, and how it goes down."""

    router: Router
    stop: trio.Event
    scope: trio.CancelScope
    gone: trio.Event


@attrs.define(slots=False)
class Drill:
    """One run. What must not be is in `violations` afterwards, what was done in `log`.

    Attributes:
        seed: of everything.
        members, routers: how many.
        events: what happens to them.
    """

    seed: int
    members: int
    routers: int = 6
    events: Sequence[str] = EVENTS
    violations: list[str] = attrs.Factory(list[str])
    log: list[str] = attrs.Factory(list[str])
    nodes: dict[int, Node] = attrs.Factory(dict[int, Node])
    posts: dict[int, Post] = attrs.Factory(dict[int, Post])
    dials: list[tuple[float, int]] = attrs.Factory(list[tuple[float, int]])
    seen: dict[int, frozenset[PeerId]] = attrs.Factory(dict[int, frozenset[PeerId]])
    changed: dict[int, None] = attrs.Factory(dict[int, None])
    moves: Counter[int] = attrs.Factory(Counter[int])

    def __attrs_post_init__(self) -> None:
        self.plane = Plane(now=wall_clock, ttl=30 * 86400.0)
        self.network = MemoryNetwork(seed=self.seed, conditions=Conditions(latency=0.02, jitter=0.01))
        self.nursery: trio.Nursery
        self.rested_at = 0.0
        # so that the members of one that is away find a place at the others, which hold sessions to each other too
        self.high = math.ceil(1.2 * 1.25 * self.members * HELD / (self.routers - 1)) + self.routers

    async def run(self) -> str:
        """All of it. Returns a fingerprint of what happened."""
        async with trio.open_nursery() as self.nursery:
            for number in range(self.routers):
                await self._start(number)
            for number in range(self.members):
                self.nursery.start_soon(self._member, number)
                await trio.sleep(1 / RAMP)
            await self._settle()
            await self._events()
            self.nursery.cancel_scope.cancel()
        return hashlib.sha256(repr((self.log, self.dials)).encode()).hexdigest()[:16]

    async def _events(self) -> None:
        gc.freeze()  # what there is stays, and is much
        happen = {"drain": self._drain, "kill": self._lose, "restart": self._restart, "fill": self._fill_up}
        for event in self.events:
            await happen[event]()

    async def _drain(self) -> None:
        async with self._event("one drains"):
            await self._stop(0)
        await self._start(0)
        await trio.sleep(PAUSE)

    async def _lose(self) -> None:
        async with self._event("one is killed", few=FEW_LOST):
            self._kill(1)
        await self._start(1)
        await trio.sleep(PAUSE)

    async def _restart(self) -> None:
        for number in range(self.routers):
            async with self._event(f"{number} is started again"):
                await self._stop(number)
                await self._start(number)
                await trio.sleep(PAUSE)

    async def _fill_up(self) -> None:
        extra = self.members // 4
        await self._stop(2)
        await self._start(2, high=extra // 2 + self.routers)
        await self._settle()
        await trio.sleep(PAUSE)
        async with self._event("one fills up"):
            await self._fill(self.posts[2].router, extra)

    async def _fill(self, router: Router, extra: int) -> None:
        """There is little room at a router, and new members would all have it."""
        listed = self.plane.routers[router.peer]
        self.plane.routers[router.peer] = attrs.evolve(listed, labels={"site": "new"})
        for newcomer in range(self.members, self.members + extra):
            self.nursery.start_soon(self._member, newcomer, {"site": "new"})
            await trio.sleep(1 / RAMP)
        self.members += extra
        await trio.sleep(PAUSE)
        sent = sum(count for (reason, _), count in router.departures.sent.items() if reason is Reason.OVERLOADED)
        self._say(f"{sent} of {extra} were sent away again")
        if not sent:
            self.violations.append("nobody was sent away by a router that is full")

    # ── routers and members ──

    async def _start(self, number: int, high: int | None = None) -> None:
        self.posts[number] = await self.nursery.start(self._router, number, high or self.high)

    async def _router(self, number: int, high: int, task_status: trio.TaskStatus[Post]) -> None:
        name = f"router-{number}"
        limits = ConnectionLimits(high_watermark=high, max_per_source=high)
        where = (Address.parse(f"/memory/{number + 1}"),)
        config = RouterConfig(
            enrollment=ENROLLMENT, listen=where, host=HostConfig(session=SESSIONS, connections=limits)
        )
        opening = partial(open_router_as, rng=random.Random(f"{self.seed}/{name}"), security=SteadyTlsContext)
        transports, post = [self.network.transport(name)], None
        with trio.CancelScope() as scope:
            async with opening(await self._enroll(name, ROUTER_TOKEN), config, transports=transports) as router:
                post = Post(router, trio.Event(), scope, trio.Event())
                task_status.started(post)
                await post.stop.wait()
        if post is not None:
            post.gone.set()

    async def _stop(self, number: int) -> None:
        """As SIGTERM does."""
        post = self.posts.pop(number)
        post.stop.set()
        await post.gone.wait()

    def _kill(self, number: int) -> None:
        """As SIGKILL does. It stays on the control plane's list."""
        post = self.posts.pop(number)
        for session in post.router.host.connections:
            session.abort("killed")
        post.scope.cancel()

    async def _member(self, number: int, prefer: Mapping[str, str] | None = None) -> None:
        name = f"member-{number}"
        transport = Dials(self.network.transport(name), lambda _: self._dialed(number))
        config = NodeConfig(
            enrollment=ENROLLMENT, routers=HELD, router_prefer=prefer or {}, host=HostConfig(session=SESSIONS)
        )
        rng = random.Random(f"{self.seed}/{name}")
        membership = await self._enroll(name, NODE_TOKEN, self._labels(number))
        async with run_node_as(membership, config, transports=[transport], rng=rng, security=SteadyTlsContext) as node:
            node.attachments.on_change(lambda: self._noticed(number))
            self.nodes[number] = node
            self._noticed(number)
            await self._live(number, node)

    async def _live(self, number: int, node: Node) -> None:
        """What a member does."""
        await trio.sleep_forever()

    def _labels(self, number: int) -> dict[str, str]:
        """What a member is attested."""
        return {}

    async def _enroll(self, name: str, token: str, labels: Mapping[str, str] | None = None) -> Membership:
        secret = random.Random(f"{self.seed}/{name}").randbytes(32)
        identity = Identity(Ed25519PrivateKey.from_private_bytes(secret))
        enrollment = Enrollment(control_plane=URL, token=token, labels=labels or {})
        membership = Membership(identity, self.plane.client(identity), enrollment, None, wall_clock)
        await membership.begin()
        return membership

    # ── what is looked at ──

    def _say(self, text: str) -> None:
        self.log.append(text)
        print(text, flush=True)

    def _dialed(self, number: int) -> None:
        """A member dials, and has held a router before."""
        if number in self.seen:
            self.dials.append((trio.current_time(), number))

    def _noticed(self, number: int) -> None:
        """A member's routers may be others."""
        self.changed[number] = None
        self.rested_at = trio.current_time()

    @asynccontextmanager
    async def _event(self, what: str, *, few: int = FEW) -> AsyncGenerator[None]:
        """Something happens to routers; then all come to rest, and nobody has had more trouble than needs be.

        Args:
            few: how many may dial in one second, however small the fleet is.
        """
        began, dials = trio.current_time(), len(self.dials)
        held = [len(self.posts[number].router.members.present) for number in sorted(self.posts)]
        self._look()
        self.moves.clear()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch)
            yield
            await self._settle()
            nursery.cancel_scope.cancel()
        self._look()
        times = Counter(self.moves.values())
        busiest = busiest_second([at for at, _ in self.dials[dials:]])
        took = max(self.rested_at - began, 0.0)
        self._say(
            f"{what}, of {held}: {self.moves.total()} moves, by members with 1, 2, ... {[times[1], times[2]]};"
            f" {len(self.dials) - dials} dials, {busiest} in one second; at rest after {took:.1f} s"
        )
        if (most := max(times, default=0)) > MAX_MOVES:
            self.violations.append(f"{what}: a member moved {most} times")
        if busiest > max(MAX_REDIALS * self.members, few):
            self.violations.append(f"{what}: {busiest} dials in one second")

    async def _watch(self) -> None:
        while True:
            self._look()
            await trio.sleep(0.5)

    def _look(self) -> None:
        changed, self.changed = self.changed, {}
        for number in changed:
            held = frozenset(record.peer for record in self.nodes[number].attachments.catalogue.attached)
            if held - self.seen.get(number, held):
                self.moves[number] += len(held - self.seen[number])
            self.seen[number] = held
        for number, post in self.posts.items():
            most = post.router.host.config.connections.high_watermark
            if (count := sum(session.accepts_streams for session in post.router.host.connections)) > most:
                self.violations.append(f"router {number} has {count} sessions; {most} are its high watermark")

    async def _settle(self) -> None:
        """Until every member holds as many routers as it should, and routers only that are up."""
        with trio.move_on_after(PATIENCE):
            while not self._is_at_rest():  # noqa: ASYNC110 - only looking tells
                await trio.sleep(1.0)
            return
        missing = [number for number, node in self.nodes.items() if len(node.routers) != HELD]
        self.violations.append(f"after {PATIENCE} s {len(missing)} members hold no {HELD} routers: {missing[:10]}")

    def _is_at_rest(self) -> bool:
        up = {post.router.peer for post in self.posts.values()}
        nodes = self.nodes.values()
        return len(nodes) == self.members and all(len(n.routers) == HELD and up.issuperset(n.routers) for n in nodes)
