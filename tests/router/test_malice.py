"""What a member that was admitted can do to a whole router: lose its streams, be counted, and trouble nobody else."""

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, suppress

import attrs
import pytest
import trio
from trio.testing import MockClock

from agentmesh.abc import Stream
from agentmesh.errors import ErrorCode, StreamResetError
from agentmesh.events import EVENTS_TOPIC
from agentmesh.identity import Identity
from agentmesh.node import Node
from agentmesh.protocols.auth import AUTH_ID, authenticate
from agentmesh.protocols.directory import (
    DIRECTORY_ID,
    Announcement,
    FindProviders,
    Operation,
    Provide,
    Result,
    Status,
    ask,
    service_key,
)
from agentmesh.protocols.directory.wire import encode_request
from agentmesh.protocols.floodsub import FLOODSUB_ID, CutReason, Fate
from agentmesh.protocols.floodsub.events import Subscription
from agentmesh.protocols.floodsub.signing import MIN_NUMBER, sign_message
from agentmesh.protocols.floodsub.wire import encode_publish, encode_subscriptions
from agentmesh.router import Router
from agentmesh.runtime.host import Host
from agentmesh.runtime.registry import Protocol
from agentmesh.types import Address, ProtocolId
from agentmesh.wire.framing import encode_frame, encode_varint
from tests.membership.plane import membership_of
from tests.node.fleet import open_fleet
from tests.runtime.hosts import open_named

MIB = 1024 * 1024
TOPIC, KEY = "builds", service_key("mcp", "files")
PLACE = Address.parse("/memory/5")


async def ignore(stream: Stream) -> None:
    """Take what a router says."""
    async for _ in stream:
        pass


@attrs.frozen
class Scene:
    """A router, a member that behaves and one that does not.

    Attributes:
        mallory: admitted by the router's handshake, and bound by nothing else of ours.
    """

    router: Router
    alice: Node
    identity: Identity
    mallory: Host

    async def say(self, protocol: ProtocolId, pieces: Iterable[bytes]) -> StreamResetError:
        """Send pieces on a stream of its own until it is cut; how it was."""
        stream = await self.mallory.open_stream(self.router.peer, protocol)
        try:
            with trio.fail_after(60):
                for piece in pieces:
                    await stream.send_all(piece)
                assert await stream.receive_some() == b"", "it is cut"
        except StreamResetError as exc:
            return exc
        raise AssertionError("it was not cut")

    async def trouble_nobody(self) -> None:
        """The session lasts, and so does what others do."""
        assert self.mallory.session(self.router.peer) is not None
        assert self.router.host.session(self.mallory.peer) is not None
        assert await self.alice.find_peer(self.alice.peer)
        assert self.router.floodsub.statistics().links == 1


@asynccontextmanager
async def open_scene() -> AsyncGenerator[Scene]:
    identity = Identity.generate()
    async with open_fleet() as fleet:
        router, alice = await fleet.router("router"), await fleet.node("alice")
        membership = membership_of(fleet.plane, identity)
        await membership.begin()
        async with open_named(fleet.network, "mallory", [Protocol(FLOODSUB_ID, ignore)], identity=identity) as mallory:
            await mallory.connect(router.peer, router.host.addresses)
            async with await mallory.open_stream(router.peer, AUTH_ID) as stream:
                await authenticate(stream, token=membership.token(), verify=membership.verify)
            await trio.sleep(5)
            yield Scene(router, alice, identity, mallory)


def signed(scene: Scene, count: int, topic: str, data: bytes = b"x") -> Iterator[bytes]:
    """So many messages of its own, well signed, each in an RPC."""
    for number in range(count):
        yield encode_frame(encode_publish(sign_message(scene.identity, topic, data, MIN_NUMBER + number)))


def wanted(count: int) -> Iterator[bytes]:
    """Subscriptions to so many topics, a hundred in an RPC."""
    for first in range(0, count, 100):
        topics = (Subscription(f"topic {first + number}") for number in range(100))
        yield encode_frame(encode_subscriptions(topics))


Attack = Callable[[Scene], Iterable[bytes]]


FLOODS: dict[str, tuple[Attack, CutReason]] = {
    "messages": (lambda scene: signed(scene, 1000, TOPIC), CutReason.MESSAGES),
    "bytes": (lambda scene: signed(scene, 100, TOPIC, bytes(60_000)), CutReason.BYTES),
    "events that nobody signed": (lambda scene: signed(scene, 100, EVENTS_TOPIC), CutReason.REJECTED),
    "nothing": (lambda scene: [encode_frame(b"") * 2000], CutReason.MESSAGES),
    "a million topics": (lambda scene: wanted(1_000_000), CutReason.SUBSCRIPTIONS),
    "10 MiB": (lambda scene: [encode_varint(10 * MIB)], CutReason.BROKEN),
    "garbage": (lambda scene: [b"\xff" * 1000], CutReason.BROKEN),
}


@pytest.mark.parametrize("name", FLOODS)
async def test_a_flood_costs_a_member_its_link(name: str, autojump_clock: MockClock) -> None:
    attack, reason = FLOODS[name]
    async with open_scene() as scene, scene.alice.subscribe(TOPIC):
        await trio.sleep(1)
        cut = await scene.say(FLOODSUB_ID, attack(scene))
        assert cut.code != ErrorCode.NO_ERROR
        found = scene.router.floodsub.statistics()
        assert {why: count for why, count in found.cuts.items() if count} == {reason: 1}
        assert (found.messages[Fate.REJECTED] > 0) is (reason is CutReason.REJECTED)
        await scene.trouble_nobody()


async def test_debts_outlive_the_stream(autojump_clock: MockClock) -> None:
    """A new stream gives a flood nothing that the last one had not."""
    async with open_scene() as scene, scene.alice.subscribe(TOPIC):
        await trio.sleep(1)
        for _ in range(3):
            await scene.say(FLOODSUB_ID, signed(scene, 1000, TOPIC))
        found = scene.router.floodsub.statistics()
        assert found.cuts[CutReason.MESSAGES] == 3
        assert found.messages[Fate.ACCEPTED] < 700


def announced(scene: Scene, *places: Address, key: bytes = KEY) -> Announcement:
    return Announcement(key, places, 1)


def request(scene: Scene, asked: Provide) -> bytes:
    return encode_frame(encode_request(asked))


FORGERIES: dict[str, tuple[Callable[[Scene], bytes], Operation, Result]] = {
    "a provider that it is not": (
        lambda scene: request(scene, Provide(announced(scene), scene.alice.peer)),
        Operation.PLACE,
        Result.FORGED,
    ),
    "itself as a router would": (
        lambda scene: request(scene, Provide(announced(scene), scene.mallory.peer)),
        Operation.PLACE,
        Result.FORGED,
    ),
    "addresses of another": (
        lambda scene: request(scene, Provide(announced(scene, PLACE.with_peer(scene.alice.peer)))),
        Operation.UNKNOWN,
        Result.MALFORMED,
    ),
    "addresses of nobody": (
        lambda scene: request(scene, Provide(announced(scene, PLACE))),
        Operation.UNKNOWN,
        Result.MALFORMED,
    ),
    "more addresses than a record has": (
        lambda scene: request(scene, Provide(announced(scene, *[PLACE.with_peer(scene.mallory.peer)] * 33))),
        Operation.UNKNOWN,
        Result.MALFORMED,
    ),
    "a record of 10 MiB": (
        lambda scene: encode_varint(10 * MIB) + bytes(10 * MIB),
        Operation.UNKNOWN,
        Result.MALFORMED,
    ),
    "garbage": (lambda scene: b"\xff" * 1000, Operation.UNKNOWN, Result.MALFORMED),
}


@pytest.mark.parametrize("name", FORGERIES)
async def test_a_forgery_costs_a_member_its_stream(name: str, autojump_clock: MockClock) -> None:
    forge, operation, result = FORGERIES[name]
    async with open_scene() as scene:
        before = scene.router.directory.statistics()
        cut = await scene.say(DIRECTORY_ID, [forge(scene)])
        assert cut.code != ErrorCode.NO_ERROR
        after = scene.router.directory.statistics()
        assert after.requests[operation, result] == before.requests[operation, result] + 1
        assert (after.records, after.providers) == (before.records, before.providers)
        await scene.trouble_nobody()


async def test_a_flood_of_requests_is_told_to_come_later(autojump_clock: MockClock) -> None:
    """So is one of records: nobody else finds the directory full or busy."""
    async with open_scene() as scene:
        statuses = list[Status]()

        async def flood(number: int) -> None:
            key = service_key("mcp", f"service {number}")
            with suppress(StreamResetError):  # more at once than a peer may have
                own = announced(scene, PLACE.with_peer(scene.mallory.peer), key=key)
                answer = await ask(scene.mallory.open_stream, scene.router.peer, Provide(own))
                statuses.append(answer.status)

        for _ in range(5):
            async with trio.open_nursery() as nursery:
                for number in range(250):
                    nursery.start_soon(flood, number)
        for number in range(1000, 1010):
            await flood(number)
        assert {Status.OK, Status.LIMITED} == set(statuses)
        found = scene.router.directory.statistics()
        assert found.requests[Operation.PROVIDE, Result.LIMITED] == statuses.count(Status.LIMITED) > 0
        assert len([one for one in scene.router.directory.store if one.provider == scene.mallory.peer]) <= 256
        assert (await scene.alice.directory.find_providers(KEY)) == ()
        answer = await ask(scene.mallory.open_stream, scene.router.peer, FindProviders(KEY))
        assert (answer.status, answer.retry_after > 0) == (Status.LIMITED, True)
        await scene.trouble_nobody()
