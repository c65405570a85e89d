"""Three routers, processes of an agent at two of them, a client at each, and streams from clients to targets."""

from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import attrs
import trio
from trio.testing import wait_all_tasks_blocked

from agentmesh.abc import Stream
from agentmesh.node import Node
from agentmesh.pool.agent.config import ConnectionsConfig
from agentmesh.pool.router.claims import ConnectionKey
from agentmesh.pool.router.connection import Connection
from agentmesh.pool.router.invariants import violations
from agentmesh.protocols.pool import Code, OpenResult
from agentmesh.router import Router
from tests.pool.scripts import FarEnd
from tests.pool.worlds import HELD
from tests.router.agents.agency import AGENT, Agency, dial, open_agency, wait_joined

TWO = ConnectionsConfig(min=2, max=2)


@attrs.define(eq=False)
class Through:
    """A stream through one router or two.

    Attributes:
        ingress: the number of its client's router.
        key: the connection that it is on, to the router `owner`.
        forth, back: whether the client, and the target, have more to say.
        is_doomed: its connection drains, and may be gone.
    """

    client: Stream
    target: FarEnd
    ingress: int
    owner: int
    key: ConnectionKey
    forth: bool = True
    back: bool = True
    is_doomed: bool = False

    async def say(self, data: bytes, *, forth: bool) -> bytes:
        """One side says something, and what the other hears of it."""
        source, sink = (self.client, self.target) if forth else (self.target, self.client)
        heard = bytearray()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(source.send_all, data)
            while len(heard) < len(data) and (piece := await sink.receive_some()):
                heard += piece
        return bytes(heard)

    async def ends_broken(self, within: float) -> None:
        """Both sides hear that it is broken, and neither takes that for an end."""
        for side, may_come in ((self.client, self.back), (self.target, self.forth)):
            with trio.fail_after(within):
                try:
                    while await side.receive_some():
                        pass
                    assert not may_come, "an end, where there was none"
                except trio.BrokenResourceError:
                    pass


@attrs.define
class Relays:
    """Attributes:
    routers, clients: by number; a client is attached to the router of its number alone.
    dead: routers that nobody reaches any more.
    """

    agency: Agency
    routers: list[Router]
    clients: list[Node]
    dead: set[int] = attrs.Factory(set[int])

    def connections(self, number: int) -> list[Connection]:
        pool = self.routers[number].agents.service.table.get(AGENT)
        return list(pool.connections) if pool else []

    def load(self) -> Counter[tuple[int, ConnectionKey]]:
        """How many streams each connection has."""
        return Counter(
            {
                (number, one.key): one.active_streams
                for number, _ in enumerate(self.routers)
                for one in self.connections(number)
            }
        )

    def relayed(self, code: Code) -> int:
        return sum(router.agents.streams.relayed[code] for router in self.routers)

    async def open(self, ingress: int) -> Through | OpenResult:
        """A client asks for a stream. It is on one connection, the one that was chosen, and on no other."""
        before, held, relayed = self.load(), len(self.agency.targets.held), self.relayed(Code.OK)
        with trio.fail_after(20):
            opening = await dial(self.clients[ingress], host=HELD)
        if opening.stream is None:
            assert len(self.agency.targets.held) == held, "refused, and connected"
            return opening.result
        assert len(self.agency.targets.held) == held + 1, "connected twice"
        await wait_all_tasks_blocked()
        grown = self.load() - before
        [((owner, key), count)] = grown.items()
        assert count == 1
        assert self.relayed(Code.OK) == relayed + (owner != ingress), "not relayed just once"
        [*_, trace] = self.routers[ingress].agents.service.table.traces.of(AGENT).latest()
        assert trace.chosen == key.connection_id, "not the one that was chosen"
        assert any((one.connection_id, one.epoch) == (key.connection_id, key.epoch) for one in trace.considered)
        return Through(opening.stream, self.agency.targets.held[-1], ingress, owner, key)

    def complaints(self) -> list[str]:
        """What does not hold at the routers that are alive."""
        now = trio.current_time()
        return [
            text
            for number, router in enumerate(self.routers)
            if number not in self.dead
            for text in violations(router.agents.service.table, now)
        ]


@asynccontextmanager
async def open_relays() -> AsyncGenerator[Relays]:
    async with open_agency() as agency:
        routers = [await agency.router(f"r{number}") for number in range(3)]
        await wait_joined(*routers)
        for number in (1, 2):
            await agency.agent(f"i{number}", routers[number], connections=TWO)
        clients = [await agency.client(f"c{number}", router) for number, router in enumerate(routers)]
        yield Relays(agency, routers, clients)
