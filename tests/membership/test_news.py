"""Events: which pass, what each changes, and that it does so once."""

from random import Random

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from agentmesh.credentials import SigningKey, TrustedKeys
from agentmesh.events import (
    EVENT_WINDOW,
    EVENTS_TOPIC,
    Banned,
    Event,
    KeyRotated,
    PolicyUpdated,
    UnknownEvent,
    read_event,
    sign_event,
)
from agentmesh.identity import Identity
from agentmesh.membership import Membership
from agentmesh.membership import news as module
from agentmesh.membership.membership import ROTATION_SPREAD
from agentmesh.membership.news import News
from agentmesh.membership.rulebook import HURRY_JITTER, Rulebook
from agentmesh.protocols.floodsub import Message, Policy, Role, Verdict
from agentmesh.runtime.nursery import open_background
from agentmesh.types import PeerId
from agentmesh.wire.messages.mesh import v1 as pb
from tests.membership.plane import OPEN_RULES, START, Plane, membership_of, running, wall_clock
from tests.protocols.floodsub.net import open_net

PEER = PeerId.from_ed25519(bytes(32))


def message(data: bytes, topic: str = EVENTS_TOPIC) -> Message:
    return Message(PEER, b"1", (topic,), data, b"verified already")


async def begun(plane: Plane) -> Membership:
    membership = membership_of(plane, Identity.generate())
    await membership.begin()
    return membership


def told(key: SigningKey, event: Banned | KeyRotated | PolicyUpdated) -> Message:
    return message(sign_event(key, event))


@pytest.mark.parametrize(
    ("age", "verdict"),
    [
        (0.0, Verdict.ACCEPT),
        (EVENT_WINDOW - 1, Verdict.ACCEPT),
        (1 - EVENT_WINDOW, Verdict.ACCEPT),
        (EVENT_WINDOW + 1, Verdict.IGNORE),
        (-EVENT_WINDOW - 1, Verdict.IGNORE),
    ],
)
async def test_an_event_passes_while_it_is_fresh(autojump_clock: MockClock, age: float, verdict: Verdict) -> None:
    plane = Plane()
    news = News(await begun(plane))
    assert news.validate(told(plane.keys[0], PolicyUpdated(wall_clock() - age))) is verdict


async def test_what_no_trusted_key_signed_is_rejected(autojump_clock: MockClock) -> None:
    plane = Plane()
    news = News(await begun(plane))
    assert news.validate(told(SigningKey.generate(), Banned(PEER, wall_clock()))) is Verdict.REJECT
    assert news.validate(message(b"no event")) is Verdict.REJECT
    assert news.validate(message(b"no event", "/another/topic")) is Verdict.ACCEPT


async def test_an_event_of_an_unknown_type_is_passed_on_and_ignored(autojump_clock: MockClock) -> None:
    plane = Plane()
    membership = await begun(plane)
    news, before = News(membership), membership.trusted
    event = pb.MeshEvent.parse(sign_event(plane.keys[0], PolicyUpdated(START)))
    event.type, event.signature = pb.MeshEventType(77), b""
    event.signature = plane.keys[0].sign(bytes(event))
    assert news.validate(message(bytes(event))) is Verdict.ACCEPT
    news.apply(UnknownEvent(77, START))
    assert (membership.trusted, len(membership.bans)) == (before, 0)


async def test_a_ban_is_applied_once(autojump_clock: MockClock) -> None:
    """Who was banned, and is not any more, is not banned again by the same word."""
    membership = await begun(Plane())
    news, event = News(membership), Banned(PEER, START)
    news.apply(event)
    assert PEER in membership.bans
    await trio.sleep(1)
    await membership.info()
    news.apply(event)
    assert PEER not in membership.bans
    news.apply(Banned(PEER, START + 1))
    assert PEER in membership.bans


async def test_what_was_applied_is_known_within_a_bound(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_APPLIED_EVENTS", 2)
    membership, told_at = await begun(Plane()), list[float]()
    news = News(membership)
    monkeypatch.setattr(membership.bans, "tell", lambda peer, at, now: told_at.append(at))  # pyright: ignore
    for at in (1.0, 2.0, 1.0, 3.0, 1.0):
        news.apply(Banned(PEER, at))
    assert told_at == [1.0, 2.0, 3.0, 1.0]


async def test_a_key_that_takes_over_is_honoured_at_once_and_brings_a_new_credential(autojump_clock: MockClock) -> None:
    plane = Plane()
    async with running(membership_of(plane, Identity.generate())) as membership:
        old, new, first = plane.keys[0], SigningKey.generate(), membership.credential
        plane.keys.append(new)
        News(membership).apply(KeyRotated(new.public, wall_clock()))
        assert membership.trusted == plane.trusted
        await trio.sleep(ROTATION_SPREAD + 6)
        assert membership.credential is not first
        assert membership.trusted.keys == {old.public, new.public}


async def test_a_key_that_the_control_plane_does_not_know_is_dropped_again(autojump_clock: MockClock) -> None:
    plane, stray = Plane(), SigningKey.generate().public
    async with running(membership_of(plane, Identity.generate())) as membership:
        News(membership).apply(KeyRotated(stray, wall_clock()))
        assert stray in membership.trusted.keys
        await trio.sleep(ROTATION_SPREAD + 6)
        assert membership.trusted == plane.trusted


async def test_a_new_policy_is_read_within_two_seconds(autojump_clock: MockClock) -> None:
    plane = Plane()
    membership = await begun(plane)
    rules = Rulebook(lambda: membership.client.rules(membership.token()), Random(1))
    event: Event = PolicyUpdated(START)
    async with open_background() as nursery:
        nursery.start_soon(rules.run)
        await wait_all_tasks_blocked()
        plane.rules = OPEN_RULES[:1]
        News(membership, rules).apply(event)
        News(membership).apply(event)  # who serves nothing has no rules to read
        await trio.sleep(HURRY_JITTER)
        assert plane.calls["rules"] == 2


async def test_an_event_is_verified_once(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = list[bytes]()

    def counted(data: bytes, trusted: TrustedKeys) -> Event:
        looks.append(data)
        return read_event(data, trusted)

    monkeypatch.setattr(module, "read_event", counted)
    plane = Plane()
    membership = await begun(plane)
    news = News(membership)
    async with open_net() as net:
        router = await net.add(Role.ROUTER)
        leaf = await net.add(Role.LEAF, policy=Policy(news.validate))
        net.nursery.start_soon(news.run, leaf.floodsub)
        await net.join(leaf, router)
        for number, expected in ((1.0, 1), (2.0, 2)):
            await router.floodsub.publish(EVENTS_TOPIC, sign_event(plane.keys[0], Banned(PEER, wall_clock() + number)))
            await wait_all_tasks_blocked()
            assert len(looks) == expected
        net.nursery.cancel_scope.cancel()
    assert PEER in membership.bans
