"""Floodsub between hosts: links, what they carry, and how they end."""

import pytest
import trio
import trio.lowlevel
from trio.testing import MockClock, wait_all_tasks_blocked

from agentmesh.abc import Stream
from agentmesh.errors import DialError, ErrorCode, RejectedError, StreamResetError
from agentmesh.protocols.floodsub import (
    FLOODSUB_ID,
    CutReason,
    Floodsub,
    FloodsubLimits,
    PeerLimits,
    Policy,
    Role,
    Verdict,
)
from agentmesh.protocols.floodsub.wire import MAX_TOPIC_BYTES
from agentmesh.runtime.registry import Protocol
from agentmesh.runtime.yamux import Allowance
from agentmesh.testing import cancel_at_every_await
from agentmesh.wire.framing import encode_frame
from tests.protocols.floodsub.net import TOPIC, Net, Node, open_net, unread
from tests.runtime.hosts import admit, open_named


async def two_routers(net: Net) -> tuple[Node, Node]:
    one, other = await net.add(Role.ROUTER), await net.add(Role.ROUTER)
    await net.join(one, other)
    return one, other


async def test_what_one_publishes_all_subscribers_hear_once(autojump_clock: MockClock) -> None:
    async with open_net() as net:
        one, other = await two_routers(net)
        author, near, far = await net.add_leaf(one), await net.add_leaf(one, other), await net.add_leaf(other)
        await net.add_leaf(one)
        readers = [net.listen(node) for node in (near, far, one, other, author)]
        elsewhere = net.listen(near, "/elsewhere")
        await wait_all_tasks_blocked()
        assert await author.floodsub.publish(TOPIC, b"hello") == 1
        assert await unread(*readers, elsewhere) == [[b"hello"], [b"hello"], [b"hello"], [b"hello"], [], []]
        for n in range(100):
            await far.floodsub.publish(TOPIC, str(n).encode())
        everything = [str(n).encode() for n in range(100)]
        assert await unread(*readers) == [everything, [], everything, everything, everything]


async def test_a_reader_is_told_who_wrote_what(autojump_clock: MockClock) -> None:
    async with open_net() as net:
        router = await net.add(Role.ROUTER)
        author, listener = await net.add_leaf(router), await net.add_leaf(router)
        reader = net.listen(listener)
        await wait_all_tasks_blocked()
        await author.floodsub.publish(TOPIC, b"one")
        await author.floodsub.publish(TOPIC, b"two")
        async for message in reader:
            assert (message.author, message.topics) == (author.host.peer, (TOPIC,))
            if message.data == b"two":
                break


async def test_who_subscribes_no_more_hears_no_more(autojump_clock: MockClock) -> None:
    async with open_net() as net:
        router = await net.add(Role.ROUTER)
        author, listener = await net.add_leaf(router), await net.add_leaf(router)
        with listener.floodsub.subscribe(TOPIC) as first:
            with listener.floodsub.subscribe(TOPIC) as second:
                await wait_all_tasks_blocked()
                await author.floodsub.publish(TOPIC, b"1")
                assert await unread(first, second) == [[b"1"], [b"1"]]
            await author.floodsub.publish(TOPIC, b"2")
            assert await unread(first, second) == [[b"2"], []]
            assert router.floodsub.statistics().topics == 1
        await wait_all_tasks_blocked()
        assert router.floodsub.statistics().topics == 0
        await author.floodsub.publish(TOPIC, b"3")
        assert await unread(first) == [[]]
        assert router.fates() == {"accepted": 2, "unwanted": 1}


async def test_a_slow_reader_loses_the_oldest_and_is_told_how_many(autojump_clock: MockClock) -> None:
    async with open_net() as net:
        router = await net.add(Role.ROUTER)
        author, listener = await net.add_leaf(router), await net.add_leaf(router)
        reader = net.listen(listener, max_unread=3)
        await wait_all_tasks_blocked()
        for n in range(10):
            await author.floodsub.publish(TOPIC, str(n).encode())
        assert await unread(reader) == [[b"7", b"8", b"9"]]
        assert reader.missed == 7
        with pytest.raises(ValueError, match="room"), listener.floodsub.subscribe(TOPIC, max_unread=0):
            pass


async def test_a_subscription_may_come_before_the_host_and_before_the_link(autojump_clock: MockClock) -> None:
    async with open_net() as net:
        router, early = await net.add(Role.ROUTER), Floodsub(Role.LEAF)
        with early.subscribe(TOPIC) as reader:
            async with open_named(net.network, "early", [early.protocol()]) as host:
                node = Node("early", host, early)
                scope = await net.join(node, router)
                await router.floodsub.publish(TOPIC, b"hello")
                assert await unread(reader) == [[b"hello"]]
                scope.cancel()


async def test_what_cannot_be_published_is_our_callers_mistake(autojump_clock: MockClock) -> None:
    async with open_net() as net:
        leaf = await net.add_leaf()
        for topic, data in (("", b""), ("t" * (MAX_TOPIC_BYTES + 1), b""), (TOPIC, bytes(1 << 17))):
            with pytest.raises(ValueError, match="bytes"):
                await leaf.floodsub.publish(topic, data)
        assert await leaf.floodsub.publish(TOPIC, b"nobody there") == 0


async def test_what_was_published_can_be_waited_for(autojump_clock: MockClock) -> None:
    async with open_net() as net:
        router = await net.add(Role.ROUTER)
        reader = net.listen(router)
        async with open_named(net.network, "author", [(floodsub := Floodsub(Role.LEAF)).protocol()]) as host:
            scope = await net.join(Node("author", host, floodsub), router)
            for n in range(200):
                await floodsub.publish(TOPIC, str(n).encode())
            await floodsub.wait_sent()
            scope.cancel()
        assert len((await unread(reader))[0]) == 200


# ── who may ──


async def test_a_router_hears_nobody_before_admission(autojump_clock: MockClock) -> None:
    async with open_net() as net:
        router, leaf = await net.add(Role.ROUTER), await net.add(Role.LEAF)
        await leaf.host.connect(router.host.peer, router.host.addresses)
        with pytest.raises(RejectedError) as refused:
            await leaf.floodsub.attach(router.host.peer)
        assert refused.value.code == ErrorCode.GATED
        assert (leaf.floodsub.statistics().links, router.floodsub.statistics().links) == (0, 0)


async def test_a_leaf_hears_those_only_that_it_is_attached_to(autojump_clock: MockClock) -> None:
    async with open_net() as net:
        stranger, leaf = await net.add(Role.ROUTER), await net.add(Role.LEAF)
        await stranger.host.connect(leaf.host.peer, leaf.host.addresses)
        with pytest.raises(RejectedError) as refused:
            await stranger.floodsub.attach(leaf.host.peer)
        assert refused.value.code == ErrorCode.GATED
        assert leaf.floodsub.statistics().links == 0


async def test_without_a_session_there_is_no_link(autojump_clock: MockClock) -> None:
    async with open_net() as net:
        router, leaf = await net.add(Role.ROUTER), await net.add(Role.LEAF)
        with pytest.raises(DialError):
            await leaf.floodsub.attach(router.host.peer)
        assert leaf.floodsub.statistics().links == 0


async def test_when_admission_lapses_the_link_ends(autojump_clock: MockClock) -> None:
    async with open_net() as net:
        router = await net.add(Role.ROUTER)
        leaf = await net.add_leaf(router)
        router.host.admissions.revoke(leaf.host.peer)
        await wait_all_tasks_blocked()
        assert (leaf.floodsub.statistics().links, router.floodsub.statistics().links) == (0, 0)
        (failure,) = leaf.failed
        assert isinstance(failure, StreamResetError)
        assert failure.code == ErrorCode.GATED


# ── how links end ──


async def test_who_leaves_is_forgotten_and_may_come_again(autojump_clock: MockClock) -> None:
    async with open_net() as net:
        router = await net.add(Role.ROUTER)
        leaf, author = await net.add(Role.LEAF), await net.add_leaf(router)
        reader = net.listen(leaf)
        for n in range(3):
            scope = await net.join(leaf, router)
            await author.floodsub.publish(TOPIC, str(n).encode())
            assert await unread(reader) == [[str(n).encode()]]
            scope.cancel()
            await wait_all_tasks_blocked()
            assert router.floodsub.statistics().links == 1
            assert router.floodsub.statistics().topics == 0
        assert router.cuts() == {"ended": 3}
        await assert_nothing_left(router, leaf)


async def assert_nothing_left(*nodes: Node) -> None:
    await wait_all_tasks_blocked()
    for node in nodes:
        statistics = node.floodsub.statistics()
        streams = sum(len(session.streams) for session in node.host.connections)
        assert streams == 2 * statistics.links
        assert node.host.statistics().streams.serving == statistics.links
        assert statistics.waiting == 0


async def test_attaching_twice_waits_for_the_one_link(autojump_clock: MockClock) -> None:
    async with open_net() as net:
        router = await net.add(Role.ROUTER)
        leaf = await net.add_leaf(router)
        await net.join(leaf, router)
        assert router.floodsub.statistics().links == 1
        session = router.host.session(leaf.host.peer)
        assert session is not None
        await session.aclose()
        await wait_all_tasks_blocked()
        assert leaf.floodsub.statistics().links == 0
        assert leaf.ended == [CutReason.ENDED] * 2


async def test_two_routers_that_attach_to_each_other_at_once_have_one_link(autojump_clock: MockClock) -> None:
    async with open_net() as net:
        one, other = await two_routers(net)
        await net.join(other, one)
        assert (one.floodsub.statistics().links, other.floodsub.statistics().links) == (1, 1)
        reader = net.listen(other)
        await wait_all_tasks_blocked()
        await one.floodsub.publish(TOPIC, b"hello")
        assert await unread(reader) == [[b"hello"]]


async def test_a_peer_that_stops_reading_loses_itself_and_nobody_else(autojump_clock: MockClock) -> None:
    async with open_net() as net:
        limits = FloodsubLimits(send_timeout=5.0)
        router = await net.add(Role.ROUTER, limits)
        slow, fine, author = await net.add_leaf(router), await net.add_leaf(router), await net.add_leaf(router)
        readers = [net.listen(node) for node in (slow, fine)]
        await wait_all_tasks_blocked()
        net.network.freeze(slow.name)
        for n in range(30):
            await author.floodsub.publish(TOPIC, bytes(30_000) + str(n).encode())
            await trio.sleep(0.1)
        assert len((await unread(readers[1]))[0]) == 30
        await trio.sleep(5)
        assert router.cuts() == {"slow": 1}
        assert router.floodsub.statistics().links == 2


async def test_a_peer_that_cannot_even_be_told_what_we_want_is_no_peer(autojump_clock: MockClock) -> None:
    async with open_net() as net:
        tiny = FloodsubLimits(max_outbox_messages=0)
        router, leaf = await net.add(Role.ROUTER, tiny), await net.add(Role.LEAF, tiny)
        await net.introduce(leaf, router)
        assert await leaf.floodsub.attach(router.host.peer) is CutReason.SLOW
        async with await leaf.host.open_stream(router.host.peer, FLOODSUB_ID) as stream:
            await stream.send_all(encode_frame(b""))
            with pytest.raises(StreamResetError):
                await stream.receive_some()
        assert (leaf.cuts(), router.cuts()) == ({"slow": 1}, {"slow": 1})
        await assert_nothing_left(router, leaf)


async def test_more_than_may_wait_for_a_peer_cuts_it_off_at_once(autojump_clock: MockClock) -> None:
    async with open_net() as net:
        router = await net.add(Role.ROUTER, FloodsubLimits(max_outbox_bytes=300_000))
        slow, author = await net.add_leaf(router), await net.add_leaf(router)
        net.listen(slow)
        await wait_all_tasks_blocked()
        net.network.freeze(slow.name)
        for _ in range(40):
            await author.floodsub.publish(TOPIC, bytes(30_000))
            await wait_all_tasks_blocked()
        assert router.cuts() == {"slow": 1}
        assert router.floodsub.statistics().waiting == 0


async def test_a_flood_costs_its_sender_the_link_and_is_counted(autojump_clock: MockClock) -> None:
    async with open_net() as net:
        member = PeerLimits(max_messages=Allowance(burst=20, per_second=1))
        router = await net.add(Role.ROUTER, FloodsubLimits(member=member))
        flooder, honest = await net.add_leaf(router), await net.add_leaf(router)
        reader = net.listen(honest)
        await wait_all_tasks_blocked()
        for n in range(50):
            await flooder.floodsub.publish(TOPIC, str(n).encode())
        assert len((await unread(reader))[0]) == 19, "the link's first RPC was a message too"
        assert router.cuts() == {"max_messages": 1}
        (failure,) = flooder.failed
        assert isinstance(failure, StreamResetError)
        assert failure.code == ErrorCode.RESOURCE_LIMIT_EXCEEDED
        assert router.host.statistics().streams.outcomes["peer_failed"] == 1
        await honest.floodsub.publish(TOPIC, b"still here")
        assert router.fates()["accepted"] == 19


async def test_garbage_resets_both_streams(autojump_clock: MockClock) -> None:
    async with open_net() as net:
        router = await net.add(Role.ROUTER)
        mallory = await net.add_leaf(router)
        stream = await mallory.host.open_stream(router.host.peer, FLOODSUB_ID)
        await stream.send_all(encode_frame(b"\xff"))
        with pytest.raises(StreamResetError) as cut:
            await stream.receive_some()
        assert cut.value.code == ErrorCode.PROTOCOL_VIOLATION
        assert router.cuts() == {"replaced": 1, "broken": 1}
        await assert_nothing_left(router)


async def test_a_message_that_is_no_good_is_never_passed_on(autojump_clock: MockClock) -> None:
    verdicts = {b"stale": Verdict.IGNORE, b"bad": Verdict.REJECT}
    policy = Policy(validate=lambda message: verdicts.get(message.data, Verdict.ACCEPT))
    async with open_net() as net:
        router = await net.add(Role.ROUTER, policy=policy)
        author, listener = await net.add_leaf(router), await net.add_leaf(router)
        reader = net.listen(listener)
        await wait_all_tasks_blocked()
        for data in (b"stale", b"bad", b"good"):
            await author.floodsub.publish(TOPIC, data)
        assert await unread(reader) == [[b"good"]]
        assert router.fates() == {"accepted": 1, "ignored": 1, "rejected": 1}


@pytest.mark.parametrize("refuses", ["resets", "does not speak it"])
async def test_a_peer_that_will_not_be_told_is_no_use(refuses: str, autojump_clock: MockClock) -> None:
    async def reset(stream: Stream) -> None:
        stream.reset()
        await trio.lowlevel.checkpoint()

    async with open_net() as net:
        router = await net.add(Role.ROUTER)
        served = [Protocol(FLOODSUB_ID, reset)] if refuses == "resets" else []
        async with open_named(net.network, "odd", served) as odd:
            await odd.connect(router.host.peer, router.host.addresses)
            await wait_all_tasks_blocked()
            admit(router.host, odd.peer)
            stream = await odd.open_stream(router.host.peer, FLOODSUB_ID)
            await stream.send_all(encode_frame(b""))
            assert await stream.receive_some() == b""
            assert router.cuts() == {"ended": 1}
            await stream.aclose()


async def test_a_link_cancelled_anywhere_leaves_nothing(autojump_clock: MockClock) -> None:
    async with open_net() as net:
        router, leaf = await net.add(Role.ROUTER), await net.add(Role.LEAF)
        await net.introduce(leaf, router)

        async def operation() -> None:
            with trio.move_on_after(1), leaf.floodsub.subscribe(TOPIC):
                await leaf.floodsub.publish(TOPIC, b"data")
                await leaf.floodsub.attach(router.host.peer)

        async def check() -> None:
            await assert_nothing_left(router, leaf)
            assert leaf.floodsub.statistics().links == 0

        assert await cancel_at_every_await(operation, check=check) >= 3


async def test_hearing_a_peer_cancelled_anywhere_leaves_nothing(autojump_clock: MockClock) -> None:
    async with open_net() as net:
        router, leaf = await net.add(Role.ROUTER), await net.add(Role.LEAF)
        await net.introduce(leaf, router)

        async def operation() -> None:
            stream = await leaf.host.open_stream(router.host.peer, FLOODSUB_ID)
            async with stream:
                await stream.send_all(encode_frame(b""))
                with trio.move_on_after(1):
                    await stream.receive_some()

        async def check() -> None:
            await assert_nothing_left(router, leaf)
            assert router.floodsub.statistics().links == 0

        assert await cancel_at_every_await(operation, check=check) >= 3
