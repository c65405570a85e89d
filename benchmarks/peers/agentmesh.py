"""agentmesh as a peer of a bench that has `benchlib`: put this file, or a link to it, into that bench's `peers/`.

    R  a router          A  a member that calls        M  many members in one process
    B  a member that serves

It needs agentmesh installed in the bench's environment. Members show credentials as in any mesh; each worker mints its
own with a key that all have, so that there is no control plane among the processes. Circuits are TLS 1.3 from end to
end. Events are floodsub's, signed by the one who publishes and verified at the router and at each member.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from contextlib import suppress
from functools import partial
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [
    os.path.dirname(HERE),
    *(folder for folder in sys.path if os.path.abspath(folder or ".") != HERE),  # this file is not the library
]

import trio  # noqa: E402
from benchlib import adriver  # noqa: E402
from benchlib.harness import Peer, pip_version  # noqa: E402

if "--role" in sys.argv:  # the runner itself may have no agentmesh
    from agentmesh.abc import StreamLimits
    from agentmesh.control_plane.client import Issued, MeshInfo
    from agentmesh.control_plane.routers import RouterRecord
    from agentmesh.credentials import ROLE_NODE, ROLE_ROUTER, SigningKey, TrustedKeys, mint
    from agentmesh.identity import Identity
    from agentmesh.membership import Enrollment, Membership
    from agentmesh.node import NodeConfig, run_node_as
    from agentmesh.router import RouterConfig, open_router_as
    from agentmesh.runtime.registry import Protocol
    from agentmesh.types import Address, PeerId, ProtocolId

    BENCH = ProtocolId("/bench/1.0.0")
    ENROLLMENT = Enrollment(control_plane="http://127.0.0.1", token="bench")

DAY = 86400.0
KEY = bytes(range(32)).hex()  # signs credentials that are worth nothing outside of a run
CHUNK = 262144
TOPIC = "bench"


class Plane:
    """What a member asks of a control plane, answered by itself."""

    def __init__(self, peer: Any, role: str, routers: tuple[Any, ...]) -> None:
        self.peer, self.role, self.routers = peer, role, routers
        self.key = SigningKey.from_bytes(bytes.fromhex(KEY))

    async def enroll(self, token: str, **_: Any) -> Any:
        return await self.refresh(b"")

    async def refresh(self, credential: bytes) -> Any:
        await trio.lowlevel.checkpoint()
        until = float(int(time.time() + DAY))
        return Issued(mint(self.key, peer=self.peer, role=self.role, labels={}, expires_at=until), until)

    async def keys(self, trusted: Any = None) -> Any:
        await trio.lowlevel.checkpoint()
        return TrustedKeys(frozenset({self.key.public}))

    async def info(self) -> Any:
        await trio.lowlevel.checkpoint()
        return MeshInfo(self.routers)

    async def rules(self, credential: bytes) -> Any:
        await trio.lowlevel.checkpoint()
        return ()  # no service is called

    async def renew_lease(self, credential: bytes, addresses: Any, **_: Any) -> float:
        await trio.lowlevel.checkpoint()
        return time.time() + DAY


async def membership(role: str, routers: tuple[Any, ...] = ()) -> Any:
    identity = Identity.generate()
    made = Membership(identity, Plane(identity.peer, role, routers), ENROLLMENT)
    await made.begin()
    return made


class Stream:
    __slots__ = ("recv", "s", "send", "undo")

    def __init__(self, stream: Any, undo: Any = None) -> None:
        self.s = stream
        self.send = stream.send_all
        self.recv = stream.receive_some
        self.undo = undo

    async def close(self) -> None:
        await self.s.aclose()
        if self.undo is not None:
            await self.undo()


async def serve_bench(stream: Any) -> None:
    with suppress(trio.BrokenResourceError):  # the caller leaves as it likes
        await adriver.serve_stream(Stream(stream))


class Node(adriver.Node):
    backend = "trio"

    async def run(self, serve: Any) -> None:
        logging.getLogger("agentmesh").setLevel(logging.ERROR)
        if self.role == "R":
            await self.run_router(serve)
        elif self.role == "M":
            async with trio.open_nursery() as self.nursery:
                await serve({})
        else:
            async with await self.open_member() as self.node:
                if self.role == "A":
                    self.peer = PeerId.parse(self.cfg["B"]["id"])
                await serve({"id": str(self.node.peer)})

    async def run_router(self, serve: Any) -> None:
        config = RouterConfig(enrollment=ENROLLMENT, listen=(Address.parse("/ip4/127.0.0.1/tcp/0"),))
        async with open_router_as(await membership(ROLE_ROUTER), config) as router:
            await serve({"addr": str(router.addresses[0])})

    async def open_member(self) -> Any:
        address = Address.parse(self.cfg["R"]["addr"])
        entered = await membership(ROLE_NODE, (RouterRecord(address.peer, (address,)),))
        config = NodeConfig(enrollment=ENROLLMENT, routers=1)
        protocol = Protocol(BENCH, serve_bench, limits=StreamLimits(4096))
        return run_node_as(entered, config, protocols=[protocol])

    async def open(self) -> Stream:
        return Stream(await self.node.open_stream(self.peer, BENCH))

    async def fresh(self) -> Stream:
        """The first one finds no session, the others close theirs."""
        await self.hang_up()
        return Stream(await self.node.open_stream(self.peer, BENCH), self.hang_up)

    async def hang_up(self) -> None:
        while (session := self.node.host.session(self.peer)) is not None:
            await session.aclose()
            await trio.lowlevel.checkpoint()

    async def attach(self, i: int) -> None:
        await self.nursery.start(self.stay)

    async def subscribe(self, i: int, on_event: Any) -> None:
        await self.nursery.start(self.listen, on_event)

    async def listen(self, on_event: Any, task_status: Any) -> None:
        async with await self.open_member() as node, node.subscribe(TOPIC) as messages:
            task_status.started()
            async for message in messages:
                on_event(message.data)

    async def publish(self, data: bytes) -> None:
        await self.node.publish(TOPIC, data)

    async def stay(self, task_status: Any) -> None:
        async with await self.open_member() as node:
            if not node.routers:
                raise RuntimeError("the router did not take this member in time")
            task_status.started()
            await trio.sleep_forever()


class P(Peer):
    name = "agentmesh"
    desc = "agentmesh on Trio: router, circuits, TLS 1.3 from end to end"
    e2e = "TLS 1.3"
    chunk = CHUNK
    worker_file = os.path.abspath(__file__)
    notes = {"S7": "floodsub, messages signed and verified; A publishes to R, all members in one process"}
    versions = staticmethod(partial(pip_version, "agentmesh", "trio", "pyOpenSSL", "cryptography"))


PEER = P()

if __name__ == "__main__":
    adriver.main(Node)
