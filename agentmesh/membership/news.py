"""What the control plane says to every member at once: which of it is believed, and what it changes here.

Whatever is missed is caught up with in a while: bans are read from /info, keys from /keys and rules from /policies.
"""

import logging
from collections import OrderedDict
from random import Random
from typing import NoReturn

import trio

from agentmesh.credentials import TrustedKeys
from agentmesh.errors import DialError, RemoteProtocolError
from agentmesh.events import EVENTS_TOPIC, Banned, Event, KeyRotated, PolicyUpdated, UnknownEvent, is_fresh, read_event
from agentmesh.membership.membership import Membership
from agentmesh.membership.rulebook import Rulebook
from agentmesh.protocols.floodsub import Floodsub, Message, Verdict
from agentmesh.types import PeerId

logger = logging.getLogger(__name__)

FIRST_LINK_WAIT = 1.0  # seconds until a link that ended, or did not come about, is made again; doubling …
MAX_LINK_WAIT = 60.0  # … up to this
STEADY_TIME = 60.0  # seconds that a link lasts before its failures are forgotten
MAX_UNREAD_EVENTS = 10_000
MAX_VERIFIED_EVENTS = 256  # that have passed and were not applied yet, and need not be verified again
MAX_APPLIED_EVENTS = 10_000  # that are known again; all that are fresh, unless somebody bans members by the thousand


class News:
    """The events of one member.

    Args:
        membership: whose keys are trusted, and whom events change.
        rules: who is told of a new policy; None when nothing is served here.
    """

    def __init__(self, membership: Membership, rules: Rulebook | None = None) -> None:
        self._membership = membership
        self._rules = rules
        self._applied: OrderedDict[Event, None] = OrderedDict()
        self._verified: OrderedDict[bytes, tuple[TrustedKeys, Event]] = OrderedDict()  # and by which keys

    def validate(self, message: Message) -> Verdict:
        """For floodsub's policy: whether a message may be delivered and passed on."""
        if EVENTS_TOPIC not in message.topics:
            return Verdict.ACCEPT
        try:
            event = self._verify(message.data)
        except RemoteProtocolError as exc:
            logger.info("no event", extra={"author": message.author, "reason": exc})
            return Verdict.REJECT
        return Verdict.ACCEPT if is_fresh(event, self._membership.wall_clock()) else Verdict.IGNORE

    async def run(self, floodsub: Floodsub) -> NoReturn:
        """Apply events as they come, until cancelled."""
        with floodsub.subscribe(EVENTS_TOPIC, MAX_UNREAD_EVENTS) as reader:
            async for message in reader:
                try:
                    self.apply(self._verified_before(message.data) or self._verify(message.data))
                except RemoteProtocolError:  # a key that was trusted when it came is not any more
                    continue
        raise AssertionError("a reader has no end")

    def _verify(self, data: bytes) -> Event:
        """Raises RemoteProtocolError when it is no event of a key that is trusted now."""
        trusted = self._membership.trusted
        event = read_event(data, trusted)
        self._verified[data] = trusted, event
        if len(self._verified) > MAX_VERIFIED_EVENTS:
            self._verified.popitem(last=False)
        return event

    def _verified_before(self, data: bytes) -> Event | None:
        """What `validate` found a moment ago, if the same keys are trusted still."""
        trusted, event = self._verified.pop(data, (None, None))
        return event if trusted == self._membership.trusted else None

    def apply(self, event: Event) -> None:
        """Do what an event says, unless that is done already."""
        if event in self._applied:
            return
        self._applied[event] = None
        if len(self._applied) > MAX_APPLIED_EVENTS:
            self._applied.popitem(last=False)
        logger.info("event", extra={"what": event})
        match event:
            case Banned(peer, at):
                self._membership.bans.tell(peer, at, self._membership.wall_clock())
            case KeyRotated(key):
                self._membership.adopt(key)
            case PolicyUpdated():
                if self._rules is not None:
                    self._rules.hurry()
            case UnknownEvent():
                pass


async def keep_linked(floodsub: Floodsub, rng: Random, rules: Rulebook | None, router: PeerId) -> NoReturn:
    """Be linked to a router, over the standing session to it, until cancelled.

    Args:
        floodsub: ours.
        rng: spreads the attempts of a fleet.
        rules: told to catch up when nobody was there to say that they have changed; None when nothing is served here.
        router: one that has admitted us.
    """
    wait = FIRST_LINK_WAIT
    while True:
        began = trio.current_time()
        if rules is not None and not floodsub.statistics().links:
            rules.catch_up()
        try:
            reason = str(await floodsub.attach(router))
        except (DialError, trio.BrokenResourceError) as exc:
            reason = str(exc)  # kept until the next link ends: the exception itself would keep what it came from
        wait = FIRST_LINK_WAIT if trio.current_time() - began > STEADY_TIME else min(2 * wait, MAX_LINK_WAIT)
        logger.info("no link for events", extra={"router": router, "reason": reason, "retry_in": wait})
        await trio.sleep(wait * (1 + rng.random() / 2))
