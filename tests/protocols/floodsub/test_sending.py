"""What fan-out costs: few tasks a link, one signature and one encoding an event, and a turn for others meanwhile."""

from collections import Counter

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from agentmesh.identity import Identity, PublicKey, verify
from agentmesh.protocols.floodsub import Message, Role, sending
from agentmesh.protocols.floodsub.wire import encode_publish
from agentmesh.runtime.telling import Telling
from tests.protocols.floodsub.net import TOPIC, Net, Node, open_net, unread

LEAVES = 8


def living() -> int:
    return trio.lowlevel.current_statistics().tasks_living


async def crowd(net: Net, router: Node) -> list[Node]:
    return [await net.add_leaf(router) for _ in range(LEAVES)]


async def test_a_link_costs_each_side_the_task_that_hears(autojump_clock: MockClock) -> None:
    async with open_net() as net:
        router, leaves = await net.add(Role.ROUTER), [await net.add(Role.LEAF) for _ in range(LEAVES)]
        for leaf in leaves:
            await net.introduce(leaf, router)
        await wait_all_tasks_blocked()
        before = living()
        for leaf in leaves:
            await net.join(leaf, router)
        hearing, keeping = 2, 1  # at both ends; and the test's own, which keeps the link
        assert living() - before == LEAVES * (hearing + keeping)


async def test_an_event_is_signed_once_encoded_once_and_verified_once_by_each(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = {"sign": 0, "encode": 0, "verify": 0}
    sign = Identity.sign

    def counted_sign(self: Identity, data: bytes) -> bytes:
        counts["sign"] += 1
        return sign(self, data)

    def counted_encode(message: Message) -> bytes:
        counts["encode"] += 1
        return encode_publish(message)

    def counted_verify(key: PublicKey, data: bytes, signature: bytes) -> bool:
        counts["verify"] += 1
        return verify(key, data, signature)

    async with open_net() as net:
        one, other = await net.add(Role.ROUTER), await net.add(Role.ROUTER)
        await net.join(one, other)
        readers = [net.listen(leaf) for router in (one, other) for leaf in await crowd(net, router)]
        author = await net.add_leaf(one, other)
        await wait_all_tasks_blocked()
        monkeypatch.setattr(Identity, "sign", counted_sign)
        monkeypatch.setattr("agentmesh.protocols.floodsub.machine.encode_publish", counted_encode)
        monkeypatch.setattr("agentmesh.protocols.floodsub.signing.verify", counted_verify)
        await author.floodsub.publish(TOPIC, b"to all")
        assert await unread(*readers) == [[b"to all"]] * (2 * LEAVES)
    assert counts == {"sign": 1, "encode": 3, "verify": 2 * LEAVES + 2}  # by the author and both routers; by all others


async def test_others_have_their_turn_while_very_many_are_told(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns, pushed_at, push = 0, list[int](), Telling.push

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    def counted_push(self: Telling, data: bytes) -> bool:
        pushed_at.append(turns)
        return push(self, data)

    async with open_net() as net:
        router = await net.add(Role.ROUTER)
        readers = [net.listen(leaf) for leaf in await crowd(net, router)]
        await wait_all_tasks_blocked()
        monkeypatch.setattr(sending, "LINKS_AT_ONCE", 2)
        monkeypatch.setattr(Telling, "push", counted_push)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(take_turns)
            await router.floodsub.publish(TOPIC, b"to all")
            await router.floodsub.wait_sent()
            nursery.cancel_scope.cancel()
        told = list(pushed_at)
        assert await unread(*readers) == [[b"to all"]] * LEAVES
    assert len(told) == LEAVES
    assert max(Counter(told).values()) <= 2 * 2, "in one round of the scheduler it may be last, and first in the next"
