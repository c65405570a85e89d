"""What a policy lets leaves hear and say, and that it may change its mind."""

from typing import Any

import attrs
import pytest

from agentmesh.errors import LimitExceededError
from agentmesh.protocols.floodsub.events import CutReason, Fate, Message, Role, Subscription
from agentmesh.protocols.floodsub.limits import FloodsubLimits, PeerLimits
from agentmesh.protocols.floodsub.policy import Policy
from agentmesh.protocols.floodsub.wire import encode_publish, encode_subscriptions
from agentmesh.types import PeerId
from tests.protocols.floodsub.test_limits import LIMIT, MALLORY, Siege, mallorys

TOPICS = ("a", "b", "c")


@attrs.define
class Changeable:
    """A policy that allows leaves certain topics."""

    allowed: set[str] = attrs.Factory(set[str])

    def may_subscribe(self, peer: PeerId, topic: str) -> bool:
        return peer != MALLORY or topic in self.allowed

    def may_publish(self, peer: PeerId, message: Message) -> bool:
        return peer != MALLORY or self.allowed.issuperset(message.topics)

    def siege(self, **limits: Any) -> Siege:
        return Siege(FloodsubLimits(**limits), Policy(may_subscribe=self.may_subscribe, may_publish=self.may_publish))


def wants(*topics: str, wanted: bool = True) -> bytes:
    return encode_subscriptions([Subscription(topic, wanted) for topic in topics])


def test_topics_come_and_go_with_what_the_policy_says() -> None:
    policy = Changeable({"a"})
    siege = policy.siege()
    siege.send(wants(*TOPICS))
    assert (list(siege.link.topics), list(siege.link.refused)) == (["a"], ["b", "c"])
    policy.allowed = {"b"}
    siege.router.switch.recheck(siege.link)
    assert (list(siege.link.topics), list(siege.link.refused)) == (["b"], ["c", "a"])
    assert (siege.link.told, siege.router.switch.topics) == ({"b"}, 2)  # with the one of Alice
    siege.send(wants("c", wanted=False))
    policy.allowed = set(TOPICS)
    siege.router.switch.recheck(siege.link)
    assert (list(siege.link.topics), list(siege.link.refused)) == (["b", "a"], [])


def test_a_topic_that_is_refused_counts_against_the_bound() -> None:
    siege = Changeable().siege(member=PeerLimits(max_subscriptions=3))
    siege.send(wants(*TOPICS), wants(*TOPICS))
    with pytest.raises(LimitExceededError, match="more than 3 topics"):
        siege.send(wants("d"))
    siege.assert_cut(CutReason.SUBSCRIPTIONS, LIMIT)


def test_a_topic_for_which_there_is_no_room_waits_on() -> None:
    policy = Changeable()
    siege = policy.siege(max_topics=2)
    siege.send(wants(*TOPICS))
    policy.allowed = set(TOPICS)
    siege.router.switch.recheck(siege.link)
    assert (list(siege.link.topics), list(siege.link.refused)) == (["a"], ["b", "c"])
    assert not siege.link.is_gone


def test_a_leaf_that_is_lost_while_it_is_asked_about_leaves_nothing() -> None:
    policy = Changeable({"a"})
    siege = policy.siege(max_outbox_messages=2)
    siege.send(wants(*TOPICS))  # it takes nothing of what it is told, and now its outbox is full
    policy.allowed = {"b", "c"}
    siege.router.switch.recheck(siege.link)
    siege.assert_cut(CutReason.SLOW, LIMIT)
    assert siege.router.switch.topics == 1


def test_what_a_leaf_may_not_say_goes_nowhere_and_costs_it_nothing() -> None:
    policy = Changeable({"b"})
    siege = policy.siege(member=PeerLimits(max_rejected=FloodsubLimits().member.max_rejected))
    siege.alice.switch.subscribe("b")
    siege.mesh.carry()
    siege.send(*(encode_publish(mallorys(number)) for number in range(50)))
    siege.send(encode_publish(mallorys(50, b"good", "b")))
    siege.mesh.carry()
    assert siege.router.switch.fates[Fate.DENIED] == 50
    assert siege.alice.heard == [b"good"]
    assert not siege.link.is_gone


def test_routers_are_asked_for_nothing() -> None:
    policy = Changeable()
    siege = Siege(policy=Policy(may_subscribe=policy.may_subscribe, may_publish=policy.may_publish), role=Role.ROUTER)
    siege.send(wants("a"), encode_publish(mallorys()))
    assert list(siege.link.topics) == ["a"]
    assert siege.router.switch.fates[Fate.ACCEPTED] == 1
