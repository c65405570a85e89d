"""A control plane that bans whom nobody knows, routers that it tells, and members that hear of it: a worker."""

import itertools
import logging
import time
from collections.abc import Set
from functools import partial
from pathlib import Path

import attrs
import trio

from agentmesh.control_plane import publisher
from agentmesh.control_plane.config import Config
from agentmesh.control_plane.policy.open import OPEN_POLICY
from agentmesh.control_plane.server import open_control_plane
from agentmesh.credentials import ROLE_ROUTER
from agentmesh.errors import NotConnectedError
from agentmesh.identity import Identity
from agentmesh.membership import Enrollment
from agentmesh.node import NodeConfig, run_node_as
from agentmesh.router import RouterConfig, open_router
from agentmesh.types import PeerId
from benchmarks.commands import Answer, Serve, run_worker
from benchmarks.crowd import attach_many
from benchmarks.stacks.mesh import LOOPBACK
from benchmarks.stacks.plane import ENROLLMENT, enter

HEARING_TIMEOUT = 100.0  # seconds
LOOK_INTERVAL = 0.02  # seconds
MANY = 1_000_000.0  # enrollments a second


async def run_plane(settings: Answer, ready: Serve) -> None:
    folder = Path(settings["folder"])
    database = str(folder / "plane.db")
    config = Config(
        bind_address="127.0.0.1:0", db_dsn=database, enroll_rate=MANY, auto_approve_enrollment=True, policy=OPEN_POLICY
    )
    async with open_control_plane(config) as plane:

        async def ban() -> Answer:
            """Ban a peer: who, and when that was said."""
            peer, said = Identity.generate().peer, time.monotonic()
            await plane.herald.ban(peer)
            return {"peer": str(peer), "said": said}

        token = await plane.create_token(ROLE_ROUTER, max_usages=settings["routers"])
        key = plane.authority.signing_key.to_bytes().hex()
        await ready({"url": plane.url, "token": token, "key": key}, {"ban": ban})


async def run_router(settings: Answer, ready: Serve) -> None:
    enrollment = Enrollment(control_plane=settings["plane"]["url"], token=settings["plane"]["token"])
    state = Path(settings["folder"]) / f"router-{settings['number']}"
    async with open_router(RouterConfig(enrollment=enrollment, listen=(LOOPBACK,), state_dir=state)) as router:

        async def linked(links: int) -> Answer:
            """Wait for so many links, those to other routers and to the control plane among them, which listen."""
            with trio.fail_after(HEARING_TIMEOUT):
                while router.floodsub.statistics().links < links:  # noqa: ASYNC110 - seen from outside
                    await trio.sleep(LOOK_INTERVAL)
            return {}

        await ready({"address": str(router.addresses[0])}, {"linked": linked})


@attrs.define
class Ears:
    """The members of this process.

    Attributes:
        members: how many there are.
    """

    members: int = 0
    _heard: dict[PeerId, int] = attrs.Factory(dict[PeerId, int])
    _last: dict[PeerId, float] = attrs.Factory(dict[PeerId, float])
    _changed: trio.Event = attrs.Factory(trio.Event)

    def hear(self, peers: Set[PeerId]) -> None:
        """One of them honours bans."""
        for peer in peers:
            self._heard[peer] = self._heard.get(peer, 0) + 1
            if self._heard[peer] == self.members:
                self._last[peer] = time.monotonic()
                self._changed.set()
                self._changed = trio.Event()

    async def heard(self, peer: str) -> Answer:
        """Wait until all honour the ban of a peer: when the last began to."""
        wanted = PeerId.parse(peer)
        with trio.fail_after(HEARING_TIMEOUT):
            while wanted not in self._last:
                await self._changed.wait()
        return {"last": self._last[wanted]}


async def run_members(settings: Answer, ready: Serve) -> None:
    ears, turns = Ears(), itertools.cycle(settings["routers"])

    async def stay(router: str, task_status: trio.TaskStatus[None]) -> None:
        membership = await enter(settings["key"], router)
        async with run_node_as(membership, NodeConfig(enrollment=ENROLLMENT, routers=1)) as node:
            if not node.routers:
                raise NotConnectedError("the router did not take this member in time")
            membership.bans.on_ban(ears.hear)
            ears.members += 1
            task_status.started()
            await trio.sleep_forever()

    async with trio.open_nursery() as nursery:

        async def attach_one() -> None:
            await nursery.start(stay, next(turns))

        await ready({}, {"attach": partial(attach_many, attach_one), "heard": ears.heard})


if __name__ == "__main__":
    logging.getLogger("agentmesh").setLevel(logging.ERROR)
    publisher.LOOK_INTERVAL = LOOK_INTERVAL
    run_worker({"plane": run_plane, "router": run_router, "members": run_members})
