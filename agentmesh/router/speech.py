"""What a router passes on between members, and by whose word: the control plane's events, and topics of members."""

from functools import partial
from typing import NoReturn

import attrs
import trio

from agentmesh.membership import Membership
from agentmesh.membership.news import News
from agentmesh.membership.rulebook import Rulebook
from agentmesh.membership.shown import Admit, ShownCredentials
from agentmesh.membership.topics import TopicGate
from agentmesh.protocols.floodsub import Floodsub, Policy, Role
from agentmesh.router.federation import Federation
from agentmesh.router.links import RouterLinks


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


def make_speech(membership: Membership, rules: Rulebook, shown: ShownCredentials) -> Speech:
    """A router's floodsub, and what decides about it.

    Args:
        membership: the router's.
        rules: the mesh's policy.
        shown: lets peers in, and knows what they have shown.
    """
    news, topics = News(membership, rules), TopicGate(membership, rules, shown)
    policy = Policy(news.validate, topics.may_subscribe, topics.may_publish)
    floodsub = Floodsub(Role.ROUTER, policy=policy, wall_clock=membership.wall_clock)
    return Speech(floodsub, topics.watch(floodsub), membership, rules, news)
