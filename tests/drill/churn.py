"""Hours in which routers stop, die and come back, and members lose their connections: what is left behind by each?"""

import random

import attrs
import trio

from agentmesh.types import PeerId
from tests.drill.drill import Drill
from tests.soak.rest import disagreements

INTERVAL = 600.0  # seconds between two things that happen
REST = 300.0  # seconds after the last of them until everything is looked at


@attrs.define(slots=False)
class Churn(Drill):
    """Hours of it. In the end every side sees the same, every gauge is the size of its set, and no map has grown."""

    hours: float = 2.0

    async def _events(self) -> None:
        chance = random.Random(f"{self.seed}/churn")
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
            if number not in self.posts:
                await trio.sleep(chance.random() * 60)
                await self._start(number)
            await trio.sleep(INTERVAL)
        await self._settle()
        await trio.sleep(REST)
        self._look_for_what_is_left()

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
