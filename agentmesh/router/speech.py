"""What a router passes on between members, and by whose word: the control plane's events, and topics of members."""

from functools import partial
from random import Random
from typing import NoReturn

import attrs
import trio

from agentmesh.membership import Membership
from agentmesh.membership.news import News
from agentmesh.membership.rulebook import Rulebook
from agentmesh.membership.topics import Admit, TopicGate
from agentmesh.protocols.floodsub import Floodsub, Policy, Role
from agentmesh.router.federation import Federation
from agentmesh.router.links import RouterLinks
from agentmesh.runtime.admission import AdmissionBook


@attrs.frozen
class Speech:
    """Made by `make_speech`.

    Attributes:
        floodsub: what passes things on.
        admit: lets a peer in, and knows from then on what it may say and hear.
    """

    floodsub: Floodsub
    admit: Admit
    _membership: Membership
    _rules: Rulebook
    _news: News

    async def run(self, federation: Federation) -> NoReturn:
        """Follow the policy, do what events say, and be linked to the other routers, until cancelled."""
        links = RouterLinks(self._membership.identity.peer, self.floodsub, federation, self._rules)
        async with trio.open_nursery() as nursery:
            for work in (self._rules.run, partial(self._news.run, self.floodsub), links.run):
                nursery.start_soon(work)
        raise AssertionError("none of them ends")


def make_speech(membership: Membership, admissions: AdmissionBook, admit: Admit) -> Speech:
    """A router's floodsub, and what decides about it.

    Args:
        membership: the router's.
        admissions: whom it admits.
        admit: lets a peer in, or raises RejectedError.
    """
    rules = Rulebook(lambda: membership.client.rules(membership.token()), Random(str(membership.identity.peer)))
    news, topics = News(membership, rules), TopicGate(membership, rules)
    policy = Policy(news.validate, topics.may_subscribe, topics.may_publish)
    floodsub = Floodsub(Role.ROUTER, policy=policy, wall_clock=membership.wall_clock)
    return Speech(floodsub, topics.watch(floodsub, admissions, admit), membership, rules, news)
