"""Members that talk on topics: over routers, by what the policy grants, and with readers that are slow."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from agentmesh.errors import CredentialError, NotConnectedError
from agentmesh.events import EVENTS_TOPIC
from agentmesh.node import Node
from agentmesh.protocols.floodsub import Fate, TopicReader
from agentmesh.router import Router
from tests.membership.plane import OPEN_RULES
from tests.node.fleet import Fleet, open_fleet

TOPIC = "builds.nightly"


async def take(reader: TopicReader, count: int, within: float = 1.0) -> list[bytes]:
    taken = list[bytes]()
    with trio.fail_after(within):
        async for message in reader:
            taken.append(message.data)
            if len(taken) == count:
                break
    return taken


def granted(*services: str, verb: str | None = None, to: Node | None = None) -> tuple[str, ...]:
    """Rules that grant topics to everybody, or to one; and one of the two verbs only, if one is given."""
    holder = "node($anybody)" if to is None else f'node("{to.peer}")'
    role = f'role("r{len(services)}{verb}") <- {holder}'
    name = f"r{len(services)}{verb}"
    if verb is None:
        facts = [f'granted_service_exact("{name}", "system", "topic.{one}")' for one in services]
    else:
        facts = [f'http_granted_service_exact("{name}", "system", "topic.{one}", "e")' for one in services]
        facts += [f'granted_method("e", {{"{verb}"}})', 'granted_path_any("e")']
    return (role, *(f'{fact} <- role("{name}")' for fact in facts))


async def set_rules(fleet: Fleet, *rules: str) -> None:
    """Put rules in force, and wait until everybody has them."""
    fleet.plane.rules = rules
    await trio.sleep(1000)


@asynccontextmanager
async def open_pair() -> AsyncGenerator[tuple[Fleet, Node, Node, list[Router]]]:
    """Two members, each held by a router of its own."""
    async with open_fleet() as fleet:
        first = await fleet.router("r1")
        alice = await fleet.node("alice", routers=1)
        second = await fleet.router("r2")
        await trio.sleep(60)
        everybody = dict(fleet.plane.routers)
        fleet.plane.routers = {second.peer: everybody[second.peer]}
        bob = await fleet.node("bob", routers=1)
        fleet.plane.routers = everybody
        await trio.sleep(5)
        assert (alice.routers, bob.routers) == ((first.peer,), (second.peer,))
        yield fleet, alice, bob, [first, second]


async def test_members_of_different_routers_hear_each_other(autojump_clock: MockClock) -> None:
    async with open_pair() as (_, alice, bob, _), bob.subscribe(TOPIC) as heard, alice.subscribe(TOPIC) as own:
        await trio.sleep(1)
        await alice.publish(TOPIC, b"green")
        with trio.fail_after(1):
            message = await anext(aiter(heard))
        assert (message.author, message.topics, message.data) == (alice.peer, (TOPIC,), b"green")
        await bob.publish(TOPIC, b"red")
        assert await take(own, 1) == [b"red"]  # and not what it said itself


async def test_who_has_no_grant_is_told_at_once(autojump_clock: MockClock) -> None:
    async with open_pair() as (fleet, alice, bob, _):
        await set_rules(fleet, *granted(TOPIC, to=alice))
        async with alice.subscribe(TOPIC):
            await alice.publish(TOPIC, b"x")
        for topic, node in ((TOPIC, bob), ("builds.weekly", alice)):
            with pytest.raises(CredentialError, match=f"grants this call of system://topic.{topic}"):
                await node.publish(topic, b"x")
            with pytest.raises(CredentialError, match="grants this call"):
                async with node.subscribe(topic):
                    raise AssertionError("unreachable")


async def test_a_grant_may_be_to_hear_only(autojump_clock: MockClock) -> None:
    async with open_pair() as (fleet, alice, bob, _):
        await set_rules(fleet, *granted(TOPIC, to=alice), *granted(TOPIC, verb="SUBSCRIBE"))
        async with bob.subscribe(TOPIC) as heard:
            await trio.sleep(1)
            await alice.publish(TOPIC, b"x")
            assert await take(heard, 1) == [b"x"]
            with pytest.raises(CredentialError):
                await bob.publish(TOPIC, b"y")


async def test_a_router_takes_nobodys_word_for_it(autojump_clock: MockClock) -> None:
    """Whoever does not ask first is neither heard nor told; and keeps its link, over which bans come."""
    async with open_pair() as (fleet, alice, bob, routers):
        await set_rules(fleet, *granted(TOPIC, to=alice))
        with bob.floodsub.subscribe(TOPIC) as stolen, alice.floodsub.subscribe(TOPIC) as heard:
            await trio.sleep(1)
            await alice.publish(TOPIC, b"secret")
            for n in range(50):
                await bob.floodsub.publish(TOPIC, str(n).encode())
            await trio.sleep(1)
            assert (len(stolen), len(heard)) == (0, 0)
        statistics = routers[1].floodsub.statistics()
        assert statistics.messages[Fate.DENIED] == 50
        assert sum(statistics.cuts.values()) == 0


async def test_a_grant_that_comes_or_goes_is_felt_by_who_subscribes_already(autojump_clock: MockClock) -> None:
    async with open_pair() as (fleet, alice, bob, _):
        with bob.floodsub.subscribe(TOPIC) as heard:
            for rules, expected in ((OPEN_RULES, 1), (granted(TOPIC, to=alice), 1), (OPEN_RULES, 2)):
                await set_rules(fleet, *rules)
                await alice.publish(TOPIC, b"x")
                await trio.sleep(1)
                assert len(heard) == expected


async def test_a_slow_reader_loses_the_oldest_and_nobody_waits(autojump_clock: MockClock) -> None:
    async with open_pair() as (_, alice, bob, _), bob.subscribe(TOPIC, max_unread=3) as slow:
        await trio.sleep(1)
        for n in range(10):
            await alice.publish(TOPIC, str(n).encode())
        await trio.sleep(1)
        assert (await take(slow, 3), slow.missed) == ([b"7", b"8", b"9"], 7)


async def test_what_is_the_meshs_own_is_not_for_members(autojump_clock: MockClock) -> None:
    async with open_pair() as (_, alice, _, _):
        with pytest.raises(ValueError, match="the mesh's own"):
            await alice.publish(EVENTS_TOPIC, b"x")
        with pytest.raises(ValueError, match="the mesh's own"):
            async with alice.subscribe("/mesh/anything"):
                raise AssertionError("unreachable")
        for topic in ("", "x" * 257):
            with pytest.raises(ValueError, match="1 to 256 bytes"):
                await alice.publish(topic, b"x")
        with pytest.raises(ValueError, match="message of more than"):
            await alice.publish(TOPIC, bytes(70_000))


async def test_without_a_router_nothing_is_said(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        node = await fleet.node("alice", ready_timeout=1.0)
        with pytest.raises(NotConnectedError):
            await node.publish(TOPIC, b"x")
