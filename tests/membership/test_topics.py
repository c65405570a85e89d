"""What a router lets its members say and hear."""

from random import Random

import attrs
import pytest
from trio.testing import MockClock

from agentmesh.abc import Admission
from agentmesh.credentials import ROLE_ROUTER, Credential
from agentmesh.errors import RejectedError
from agentmesh.events import EVENTS_TOPIC
from agentmesh.identity import Identity
from agentmesh.membership import Membership
from agentmesh.membership.rulebook import Rulebook
from agentmesh.membership.shown import ShownCredentials
from agentmesh.membership.topics import TopicGate
from agentmesh.protocols.floodsub import Floodsub, Message, Role
from agentmesh.runtime.admission import AdmissionBook
from agentmesh.runtime.nursery import open_background
from agentmesh.types import PeerId
from tests.membership.plane import Plane, membership_of, wall_clock

TALK = "talk"


async def begun(plane: Plane) -> Membership:
    membership = membership_of(plane, Identity.generate())
    await membership.begin()
    return membership


def said(author: PeerId, *topics: str) -> Message:
    return Message(author, b"1", topics, b"", b"signed")


async def test_a_member_speaks_for_itself_and_while_it_is_admitted(autojump_clock: MockClock) -> None:
    plane = Plane()
    router, alice, bob = [await begun(plane) for _ in range(3)]
    rules = Rulebook(lambda: router.client.rules(b""), Random(1))
    book = AdmissionBook(wall_clock)

    def admit(peer: PeerId, credential: Credential) -> None:
        if peer == bob.identity.peer:
            raise RejectedError("full")
        book.admit(peer, Admission.MEMBER, credential.expires_at)

    shown = ShownCredentials(book, admit)
    gate = TopicGate(router, rules, shown)
    let_in = gate.watch(Floodsub(Role.ROUTER))
    me, other = alice.identity.peer, bob.identity.peer
    let_in(me, alice.credential)
    with pytest.raises(RejectedError):
        let_in(other, bob.credential)
    assert (gate.may_subscribe(me, EVENTS_TOPIC), gate.may_subscribe(me, TALK)) == (True, False)  # no rules yet
    async with open_background() as nursery:
        nursery.start_soon(rules.run)
        await rules.wait_known()
    assert gate.may_subscribe(me, TALK)
    assert gate.may_publish(me, said(me, TALK, "more"))
    assert not gate.may_publish(me, said(other, TALK))
    assert gate.may_publish(me, said(other, EVENTS_TOPIC))  # its own signature counts there
    assert not gate.may_publish(me, said(other, EVENTS_TOPIC, TALK))
    assert not gate.may_subscribe(other, TALK)
    let_in(me, attrs.evolve(alice.credential, role=ROLE_ROUTER))
    assert len(shown) == 0  # what a router passes on was judged by the router that heard it first
    let_in(me, alice.credential)
    assert len(shown) == 1
    book.revoke(me)
    assert (len(shown), gate.may_publish(me, said(me, TALK))) == (0, False)
