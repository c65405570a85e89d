"""Hours in which routers stop, die and come back, and members lose their connections: what is left behind by each?"""

import random
from contextlib import suppress

import attrs
import httpx
import trio

from agentmesh.node import Node
from agentmesh.types import PeerId
from tests.drill.drill import Drill
from tests.node.loopback import app, url_of
from tests.soak.census import Census, take_census
from tests.soak.rest import disagreements

INTERVAL = 600.0  # seconds between two things that happen
REST = 300.0  # seconds after the last of them until everything is looked at
CALL_TIMEOUT = 30.0  # seconds
SERVICES = ("odd", "even")  # the names under which members serve, by their number
# How many routers have members depends on where those are; a heap keeps what was renewed until its time has come.
UNEVEN = ("Topics._leaves", "RelayBook._expiries")
LABELS = {"X-Mesh-Required-Labels": "site=here"}


@attrs.define(slots=False)
class Churn(Drill):
    """Hours of it, in which members call each other. In the end every side sees the same, every gauge is the size of
    its set, and there is no more in any map than there was before the first event, when everybody had called everybody.
    """

    hours: float = 2.0

    async def _live(self, number: int, node: Node) -> None:
        async with node.serve("http", SERVICES[number % 2], app()):
            await trio.sleep_forever()

    def _labels(self, number: int) -> dict[str, str]:
        return {"site": "here" if number % 4 < 2 else "there"}

    async def _events(self) -> None:
        chance = random.Random(f"{self.seed}/churn")
        before = await self._rest()
        until = trio.current_time() + self.hours * 3600
        while trio.current_time() < until:
            number = chance.randrange(self.routers)
            match chance.choice(("stop", "kill", "reset", "block")):
                case "stop":
                    await self._stop(number)
                case "kill":
                    self._kill(number)
                case "reset":
                    self.network.reset(f"member-{chance.randrange(self.members)}", f"router-{number}")
                case _:
                    await self._block(f"member-{chance.randrange(self.members)}", f"router-{number}")
            await self._call(chance.choice(list(self.nodes.values())), chance.choice(self._urls()))
            if number not in self.posts:
                await trio.sleep(chance.random() * 60)
                await self._start(number)
            await trio.sleep(INTERVAL)
        after = await self._rest()
        self._look_for_what_is_left()
        grown = {name: more for name, more in after.left_over(before).items() if not name.endswith(UNEVEN)}
        if grown:
            self.violations.append(f"what there is more of, or less: {grown}")

    # ── calls ──

    def _urls(self) -> list[str]:
        return [*(f"http://{name}.http.mesh/" for name in SERVICES), *map(url_of, self.nodes.values())]

    async def _call(self, caller: Node, url: str) -> None:
        """With required labels. Nobody minds, for now, if it fails."""
        with suppress(httpx.HTTPError):
            async with caller.http_client(timeout=CALL_TIMEOUT) as client:
                await client.get(url, headers=LABELS)

    async def _rest(self) -> Census:
        """What there is when all is steady, everybody has called everybody, and has hung up."""
        await self._settle()
        await trio.sleep(REST)
        for url in self._urls():
            for node in self.nodes.values():
                await self._call(node, url)
        for node in self.nodes.values():
            for session in list(node.host.connections):
                if session.address is not None and session.address.circuit is not None:
                    await session.aclose()
        await trio.sleep(REST)
        return take_census()

    # ── what happens, and what is left of it ──

    async def _block(self, one: str, other: str) -> None:
        self.network.block(one, other)
        await trio.sleep(240)
        self.network.heal(one, other)

    def _look_for_what_is_left(self) -> None:
        routers = [post.router for post in self.posts.values()]
        self.violations += disagreements(routers, list(self.nodes.values()))
        for router in routers:
            members = set(router.members.present)
            tagged = {peer for peer in router.host.connections.peers if peer not in router.federation.peers}
            self._same("members and sessions", members, tagged)
            self._same("members that are leaving", set(router.members.leaving), set[PeerId]())
        for node in self.nodes.values():
            catalogue = node.attachments.catalogue
            self._same("routers in a catalogue", {len(catalogue)}, {self.routers})
            self._same("admissions", {len(node.attachments.admissions)}, {len(node.routers)})
        self._say(f"{self.hours:g} hours")

    def _same(self, what: str, mine: object, theirs: object) -> None:
        if mine != theirs:
            self.violations.append(f"{what}: {mine} and not {theirs}")
