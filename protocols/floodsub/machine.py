"""Floodsub, sans-IO: all links of a host, what comes over them, and who is given what.

Call order for a driver: after any call, act on `next_event()` until it is None, and have whatever `take_ready()` names
written to its stream (`Link.outbox`). A call that takes a peer's bytes raises RemoteProtocolError, or RejectedError,
when they cost the peer its link.
"""

from collections import deque
from collections.abc import Collection, Iterable

from agentmesh.errors import ErrorCode, LimitExceededError, RejectedError, RemoteProtocolError
from agentmesh.protocols.floodsub.charges import Charges, reason_of
from agentmesh.protocols.floodsub.events import (
    CutReason,
    Fate,
    FloodsubEvent,
    LinkCut,
    Message,
    MessageReceived,
    Role,
    Subscription,
    Verdict,
)
from agentmesh.protocols.floodsub.forwarding import REACHES, SOURCES, Source
from agentmesh.protocols.floodsub.limits import FloodsubLimits
from agentmesh.protocols.floodsub.link import Input, Link, State
from agentmesh.protocols.floodsub.links import Links
from agentmesh.protocols.floodsub.policy import Policy
from agentmesh.protocols.floodsub.seen import SeenCache
from agentmesh.protocols.floodsub.signing import verify_message
from agentmesh.protocols.floodsub.topics import Topics
from agentmesh.protocols.floodsub.wire import decode_rpc, encode_publish, encode_subscriptions, news_frames
from agentmesh.types import PeerId
from agentmesh.wire.framing import encode_frame


class Switch:
    """All links of a host.

    Args:
        me: who we are.
        role: how we take part.
        limits: the bounds.
        policy: what may pass.

    Attributes:
        fates: how many messages met each fate.
        cuts: how many links ended for each reason.
    """

    def __init__(
        self, me: PeerId, role: Role, limits: FloodsubLimits | None = None, policy: Policy | None = None
    ) -> None:
        self.fates = dict.fromkeys(Fate, 0)
        self.cuts = dict.fromkeys(CutReason, 0)
        self._me = me
        self._role = role
        self._limits = limits or FloodsubLimits()
        self._policy = policy or Policy()
        self._topics = Topics(role)
        self._seen = SeenCache(self._limits.max_seen, self._limits.seen_ttl)
        self._links = Links(self._limits)
        self._charges = {role: Charges(self._limits.of(role)) for role in Role}
        self._ready: dict[Link, None] = {}
        self._events: deque[FloodsubEvent] = deque()

    # ── links ──

    def link(self, peer: PeerId) -> Link | None:
        """The link to a peer, if there is one."""
        return self._links.get(peer)

    def hear(self, peer: PeerId, role: Role) -> Link:
        """A peer has opened its stream. A link on which it had one already gives way: it knows best which is good.

        Raises:
            RejectedError: there are `max_links` others.
        """
        link = self._links.get(peer)
        if link is not None and link.state is not State.TELLING:
            self._cut(link, CutReason.REPLACED, ErrorCode.SUPPLANTED)
            link = None
        return self._begin(link or self._make_link(peer, role), Input.HEAR)

    def tell(self, peer: PeerId, role: Role) -> Link:
        """We are opening our stream to a peer.

        Raises:
            LocalProtocolError: there is one.
            RejectedError: there are `max_links` others.
        """
        return self._begin(self._links.get(peer) or self._make_link(peer, role), Input.TELL)

    def end(self, link: Link) -> None:
        """One of a link's streams has ended, or could not be opened. Does nothing on a link that is gone."""
        self._cut(link, CutReason.ENDED, ErrorCode.NO_ERROR)

    def lose(self, link: Link) -> None:
        """A peer takes nothing of what is sent to it."""
        self._cut(link, CutReason.SLOW, ErrorCode.RESOURCE_LIMIT_EXCEEDED)

    def receive_data(self, link: Link, data: bytes, now: float) -> None:
        """Take a peer's bytes; b"" when it has ended its stream. What comes over a link that is gone is not looked at.

        Raises:
            LimitExceededError: it crossed a bound, which `limit` names. The link is gone.
            RemoteProtocolError: it broke the protocol. The link is gone.
            RejectedError: it asked for more than there is. The link is gone.
        """
        if not data or link.is_gone:
            self.end(link)
            return
        try:
            self._charges[link.role].bytes(link.peer, now, len(data))
            link.reader.receive_data(data)
            while not link.is_gone and (frame := link.reader.next_frame()) is not None:
                link.step(Input.RPC)
                self._take(link, frame, now)
        except (RemoteProtocolError, RejectedError) as exc:
            self._cut(link, reason_of(exc), exc.code)
            raise

    # ── our own ──

    def subscribe(self, topic: str) -> None:
        """Want a topic's messages: MessageReceived follows for each. Saying so twice changes nothing."""
        self._topics.add_own(topic)
        self._announce(self._links.all, (topic,))

    def unsubscribe(self, topic: str) -> None:
        self._topics.discard_own(topic)
        self._announce(self._links.all, (topic,))

    def publish(self, message: Message, now: float) -> int:
        """Send a message of ours. Returns to how many peers."""
        self._seen.add(message.id, now)
        self.fates[Fate.PUBLISHED] += 1
        return self._forward(message, self._targets(message, Source.SELF))

    def recheck(self, link: Link) -> None:
        """Ask the policy again what a leaf may subscribe to: of what it wants, topics come and go."""
        may = self._policy.may_subscribe
        lost = [topic for topic in link.topics if not may(link.peer, topic)]
        won = [topic for topic in link.refused if may(link.peer, topic)]
        self._change(link, [Subscription(topic, wanted=False) for topic in lost])
        link.refused.update(dict.fromkeys(lost))
        for topic in won:
            if not link.is_gone and (topic in self._topics or len(self._topics) < self._limits.max_topics):
                self._change(link, [Subscription(topic)])

    # ── for the driver ──

    def next_event(self) -> FloodsubEvent | None:
        return self._events.popleft() if self._events else None

    def take_ready(self) -> Iterable[Link]:
        """The links that have something to send and had nothing before."""
        ready, self._ready = self._ready, {}
        return ready

    # ── gauges ──

    @property
    def links(self) -> Collection[Link]:
        return self._links.all

    @property
    def topics(self) -> int:
        """How many topics peers subscribe to."""
        return len(self._topics)

    @property
    def seen(self) -> int:
        """How many messages would be known again."""
        return len(self._seen)

    # ── what comes ──

    def _take(self, link: Link, frame: bytes, now: float) -> None:
        rpc = decode_rpc(frame, self._limits.max_message_bytes)
        charges = self._charges[link.role]
        charges.messages(link.peer, now, max(len(rpc.messages), 1))
        if rpc.subscriptions:
            charges.changes(link.peer, now, len(rpc.subscriptions))
            self._change(link, rpc.subscriptions)
        for message in rpc.messages:
            fate = self._receive(link, message, now)
            self.fates[fate] += 1
            if fate is Fate.REJECTED:
                charges.rejected(link.peer, now)

    def _receive(self, link: Link, message: Message, now: float) -> Fate:
        name = message.id
        if self._seen.has(name, now) or message.author == self._me:
            return Fate.DUPLICATE
        if link.role is Role.LEAF and not self._policy.may_publish(link.peer, message):
            return Fate.DENIED
        targets = self._targets(message, SOURCES[link.role], link)
        wanted = any(topic in self._topics.own for topic in message.topics)
        if not targets and not wanted:
            return Fate.UNWANTED
        verify_message(message)
        self._seen.add(name, now)  # not before: a forged one must not stand in the way of the real one
        verdict = self._policy.validate(message)
        if verdict is not Verdict.ACCEPT:
            return Fate.REJECTED if verdict is Verdict.REJECT else Fate.IGNORED
        if wanted:
            self._events.append(MessageReceived(message, link.peer))
        self._forward(message, targets)
        return Fate.ACCEPTED

    def _change(self, link: Link, subscriptions: Iterable[Subscription]) -> None:
        changed: dict[str, None] = {}
        for one in subscriptions:
            link.refused.pop(one.topic, None)
            if one.wanted and one.topic not in link.topics and self._may_add(link, one.topic):
                self._topics.add(link, one.topic)
                changed[one.topic] = None
            elif not one.wanted and one.topic in link.topics:
                self._topics.discard(link, one.topic)
                changed[one.topic] = None
        self._spread(link, changed)

    def _may_add(self, link: Link, topic: str) -> bool:
        bound = self._limits.of(link.role).max_subscriptions
        if len(link.topics) + len(link.refused) >= bound:
            raise LimitExceededError(f"more than {bound} topics", limit=CutReason.SUBSCRIPTIONS)
        if link.role is Role.LEAF and not self._policy.may_subscribe(link.peer, topic):
            link.refused[topic] = None
            return False
        if topic not in self._topics and len(self._topics) >= self._limits.max_topics:
            raise RejectedError("there are max_topics topics already")
        return True

    # ── what goes ──

    def _targets(self, message: Message, source: Source, link: Link | None = None) -> list[Link]:
        to_all, to_subscribers = REACHES[self._role, source]
        found = {one: None for role in to_all for one in self._links.of(role)}
        for topic in message.topics if to_subscribers else ():
            found.update((one, None) for one in self._topics.subscribers(topic) if one.role in to_subscribers)
        author = self._links.get(message.author)
        return [one for one in found if one is not link and one is not author]

    def _forward(self, message: Message, targets: Collection[Link]) -> int:
        """Encoded once, whoever it goes to."""
        frame = encode_frame(encode_publish(message)) if targets else b""
        return sum(self._push(link, frame) for link in targets)

    def _announce(self, links: Iterable[Link], topics: Collection[str]) -> None:
        """Tell links what has changed in what we subscribe to."""
        for link in tuple(links):
            for frame in news_frames(list(self._topics.news_for(link, topics))):
                self._push(link, frame)

    def _spread(self, link: Link, topics: Collection[str]) -> None:
        """What a leaf subscribes to changes what we subscribe to, towards it and towards routers."""
        if topics and self._role is Role.ROUTER and link.role is Role.LEAF:
            self._announce((*self._links.of(Role.ROUTER), *(() if link.is_gone else (link,))), topics)

    def _push(self, link: Link, frame: bytes) -> bool:
        if link.is_gone:
            return False
        if not len(link.outbox):
            self._ready[link] = None
        if link.outbox.push(frame):
            return True
        self.lose(link)
        return False

    # ── beginning and end ──

    def _begin(self, link: Link, got: Input) -> Link:
        """A stream of a link is there. A peer that could not even be told what we want is lost already."""
        if not link.is_gone:
            link.step(got)
        return link

    def _make_link(self, peer: PeerId, role: Role) -> Link:
        link = self._links.make(peer, role)
        wanted = self._topics.wanted_from(link)
        if not wanted:
            self._push(link, encode_frame(encode_subscriptions()))  # or the peer would not see our stream
        self._announce((link,), wanted)
        return link

    def _cut(self, link: Link, reason: CutReason, code: int) -> None:
        if link.is_gone:
            return
        link.step(Input.END if reason is CutReason.ENDED else Input.CUT)
        link.reason, link.code = reason, code
        link.outbox.clear()
        self.cuts[reason] += 1
        self._events.append(LinkCut(link.number, link.peer, reason, code))
        self._links.remove(link)
        self._ready.pop(link, None)
        topics = tuple(link.topics)
        for topic in topics:
            self._topics.discard(link, topic)
        self._spread(link, topics)
