"""A network of named hosts in one process, in virtual time, the same every time.

    network = MemoryNetwork(seed=7, conditions=Conditions(latency=0.05, bandwidth=10e6))
    async with open_host(transports=[network.transport("a")], listen=[Address.parse("/memory/0")], …) as a:
        network.set_conditions("a", "b", Conditions(latency=0.3, jitter=0.1))
        network.block("a", "b")
        network.freeze("b")

Everything is given by the seed and by what the hosts do. Under `agentmesh.testing.run`, which also settles the order in
which tasks run, the same program leaves the same trace.
"""

import itertools
import random
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import attrs
import trio

from agentmesh.abc import Transport
from agentmesh.errors import DialError
from agentmesh.testing.link_pipes import LinkPipe
from agentmesh.testing.links import Conditions, Lane, SimulatedHost
from agentmesh.testing.network_transport import NetworkTransport
from agentmesh.transports.memory import MemoryHub, MemoryListener
from agentmesh.transports.pipes import PipeStream
from agentmesh.types import Address

DIAL_TIMEOUT = 127.0  # seconds until a dial that nothing answers fails: what Linux does by default
MAX_TRACE = 100_000  # entries kept, the latest


@attrs.frozen
class TraceEntry:
    """One thing that happened on the network."""

    at: float  # on Trio's clock
    what: str  # dial, refuse, accept, send, end, reset, block, heal, freeze, thaw, half-close, drop, forget, garble
    source: str
    target: str
    connection: int  # counted from 1 in the order of dialling; 0 when it is about hosts
    size: int  # bytes


class MemoryNetwork:
    """Hosts by name, the links between them, and all that can go wrong on the way.

    Args:
        seed: of jitter and of resets by probability.
        conditions: of links that no others are set for; by default perfect ones.
        dial_timeout: seconds until a dial without an answer fails.
    """

    def __init__(
        self, *, seed: int = 0, conditions: Conditions | None = None, dial_timeout: float = DIAL_TIMEOUT
    ) -> None:
        self.hub = MemoryHub()
        self.dial_timeout = dial_timeout
        self._seed = seed
        self._conditions = conditions or Conditions()
        self._hosts: dict[str, SimulatedHost] = {}
        self._lanes: dict[tuple[str, str], Lane] = {}
        self._places: dict[int, SimulatedHost] = {}  # who listens, or listened, on a number
        self._pipes: list[LinkPipe] = []  # the open ones, and as many again at most that are not
        self._most_pipes = 0
        self._dials = itertools.count(1)
        self._trace: deque[TraceEntry] = deque(maxlen=MAX_TRACE)
        self._healed = trio.lowlevel.ParkingLot()

    @property
    def trace(self) -> Sequence[TraceEntry]:
        """What has happened, oldest first."""
        return tuple(self._trace)

    def transport(self, host: str) -> Transport:
        """The way host `host` dials and listens: on `/memory/<number>`, numbers being those of the whole network."""
        return NetworkTransport(self, self._host(host))

    def ip(self, host: str) -> str:
        """Where connections of a host come from, as whoever accepts them sees it."""
        return self._host(host).ip

    # ── what can be done to it ──

    def set_conditions(self, one: str, other: str, conditions: Conditions) -> None:
        """From now on the link between the two, both ways, is like this."""
        for lane in self._both(one, other):
            lane.conditions = conditions

    def block(self, one: str, *others: str) -> None:
        """Lose everything between `one` and `others`, by default all other hosts that there are.

        Nobody is told. What was under way is lost and sent again when the link is healed; dials wait for that too.
        """
        for other in others or self._all_but(one):
            self._record("block", one, other)
            for lane in self._both(one, other):
                lane.blocked = True
                lane.losses += 1
        for pipe in self._open_pipes():
            if pipe.lane.blocked:
                pipe.lose()

    def heal(self, one: str, *others: str) -> None:
        """End `block`."""
        for other in others or self._all_but(one):
            self._record("heal", one, other)
            for lane in self._both(one, other):
                lane.blocked = False
        self._resume()

    def freeze(self, host: str) -> None:
        """Stop a host: it reads nothing, writes nothing, accepts nothing, and its closings reach nobody.

        Its connections stay as they are, as those of a stopped process do. Its tasks go on running as far as they can
        without the network.
        """
        self._record("freeze", host, host)
        self._host(host).freeze()

    def thaw(self, host: str) -> None:
        """End `freeze`: what the host wanted to say meanwhile is said now."""
        self._record("thaw", host, host)
        self._host(host).thaw()
        self._resume()

    def reset(self, one: str, other: str) -> None:
        """Break every connection between the two, at both ends at once."""
        for pipe in (*self._between(one, other), *self._between(other, one)):
            self._record("reset", pipe.lane.source.name, pipe.lane.target.name)
            pipe.cut()

    def half_close(self, source: str, target: str) -> None:
        """End one direction of every connection between the two, as a middle box does that gives up half of one.

        `target` gets what was sent so far and then the end; `source` is not told, and what it sends vanishes.
        """
        for pipe in self._between(source, target):
            pipe.end()

    def forget(self, one: str, other: str) -> None:
        """Lose every connection between the two for good, as a NAT does that was started again.

        Nobody is told. Other than with `block` there is no healing; new connections are not concerned.
        """
        for pipe in (*self._between(one, other), *self._between(other, one)):
            pipe.forget()

    def garble(self, source: str, target: str) -> None:
        """Damage a few bytes of what `source` sends to `target` next, on every connection between them."""
        for pipe in self._between(source, target):
            pipe.garble()

    # ── what the transports use ──

    @asynccontextmanager
    async def dial(self, host: SimulatedHost, number: int) -> AsyncGenerator[PipeStream]:
        """A connection from `host` to whoever listens on `number`, after one round trip."""
        connection = next(self._dials)
        await host.wait_thawed()
        await trio.lowlevel.checkpoint()
        target = self._places.get(number)
        if target is None:
            raise DialError(f"nobody ever listened on /memory/{number}")
        there, back = self._lane(host, target), self._lane(target, host)
        chance = random.Random(f"{self._seed}/{connection}")
        self._record("dial", host.name, target.name, connection)
        with trio.move_on_after(self.dial_timeout) as scope:
            await self._travel(there, chance)
        if scope.cancelled_caught:
            raise DialError(f"no answer from /memory/{number} within {self.dial_timeout} s")
        listener = self.hub.listener(number)
        if listener is None:
            self._record("refuse", target.name, host.name, connection)
            await self._travel(back, chance)
            raise DialError(f"nobody listens on /memory/{number}")
        async with self._connect(there, back, connection, listener) as stream:
            await self._travel(back, chance)
            await host.wait_thawed()
            yield stream

    def listen(self, host: SimulatedHost, number: int) -> MemoryListener:
        """Raises OSError when the number is taken."""
        listener = self.hub.bind(number)
        self._places[listener.number] = host
        return listener

    def _connect(self, there: Lane, back: Lane, connection: int, listener: MemoryListener) -> PipeStream:
        """A connection as the listener's host makes it; raises DialError when its backlog is full."""
        out, home = (self._pipe(lane, other, connection) for lane, other in ((there, back), (back, there)))
        out.twin, home.twin = home, out
        listener.offer(PipeStream(out, home), Address.parse(f"/ip4/{there.source.ip}/tcp/{1023 + connection % 64512}"))
        self._pipes += (out, home)
        if len(self._pipes) > self._most_pipes:  # so that many connections cost each no more than few
            self._most_pipes = 2 * len(self._open_pipes())
        self._record("accept", there.target.name, there.source.name, connection)
        return PipeStream(home, out)

    def _pipe(self, lane: Lane, back: Lane, connection: int) -> LinkPipe:
        def record(what: str, size: int) -> None:
            self._record(what, lane.source.name, lane.target.name, connection, size)

        chance = random.Random(f"{self._seed}/{connection}/{lane.source.name}")
        return LinkPipe(lane, back, chance, record)

    async def _travel(self, lane: Lane, chance: random.Random) -> None:
        """One small packet, sent again for as often as it is lost."""
        losses = None
        while losses != lane.losses:
            while lane.blocked:
                await self._healed.park()
            losses = lane.losses
            await trio.sleep(lane.conditions.delay(chance))

    def _resume(self) -> None:
        for pipe in self._open_pipes():
            pipe.resume()
        self._healed.unpark_all()

    def _open_pipes(self) -> Sequence[LinkPipe]:
        self._pipes = [pipe for pipe in self._pipes if not pipe.finished]
        return self._pipes

    def _between(self, source: str, target: str) -> Sequence[LinkPipe]:
        """This direction of every connection between the two, whoever dialled it."""
        ends = (source, target)
        return [pipe for pipe in self._open_pipes() if (pipe.lane.source.name, pipe.lane.target.name) == ends]

    def _host(self, name: str) -> SimulatedHost:
        if name not in self._hosts:
            number = len(self._hosts) + 1
            self._hosts[name] = SimulatedHost(name, f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
        return self._hosts[name]

    def _all_but(self, name: str) -> Sequence[str]:
        return [other for other in self._hosts if other != name]

    def _lane(self, source: SimulatedHost, target: SimulatedHost) -> Lane:
        key = (source.name, target.name)
        if key not in self._lanes:
            self._lanes[key] = Lane(source, target, self._conditions)
        return self._lanes[key]

    def _both(self, one: str, other: str) -> Sequence[Lane]:
        hosts = self._host(one), self._host(other)
        return self._lane(*hosts), self._lane(*reversed(hosts))

    def _record(self, what: str, source: str, target: str, connection: int = 0, size: int = 0) -> None:
        self._trace.append(TraceEntry(trio.current_time(), what, source, target, connection, size))
