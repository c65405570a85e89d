"""Who subscribes to what: links by topic, and what each link has to be told of it.

A router takes part in what its members take part in. To a member it subscribes to what that member subscribes to, so
that a foreign leaf, which sends only where somebody subscribes, has somewhere to send; to another router, to what any
of its members does. What it subscribes to itself it tells everybody. A leaf tells its routers what it subscribes to.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator

from agentmesh.protocols.floodsub.events import Role, Subscription
from agentmesh.protocols.floodsub.link import Link


class Topics:
    """The subscriptions of all links, and our own.

    Args:
        role: how we take part.
    """

    def __init__(self, role: Role) -> None:
        self._role = role
        self._own: set[str] = set()
        self._links: dict[str, dict[Link, None]] = {}
        self._leaves: Counter[str] = Counter()  # how many leaves subscribe to each topic

    @property
    def own(self) -> Collection[str]:
        """What we subscribe to ourselves."""
        return self._own

    def subscribers(self, topic: str) -> Collection[Link]:
        return self._links.get(topic, {}).keys()

    def __contains__(self, topic: str) -> bool:
        """Whether any link subscribes to it."""
        return topic in self._links

    def __len__(self) -> int:
        """How many topics links subscribe to."""
        return len(self._links)

    def add_own(self, topic: str) -> None:
        self._own.add(topic)

    def discard_own(self, topic: str) -> None:
        self._own.discard(topic)

    def add(self, link: Link, topic: str) -> None:
        """A link subscribes, and did not before."""
        link.topics[topic] = None
        self._links.setdefault(topic, {})[link] = None
        if link.role is Role.LEAF:
            self._leaves[topic] += 1

    def discard(self, link: Link, topic: str) -> None:
        """A link, which did, subscribes no more."""
        del link.topics[topic]
        del self._links[topic][link]
        if not self._links[topic]:
            del self._links[topic]
        if link.role is Role.LEAF:
            self._leaves[topic] -= 1
            if not self._leaves[topic]:
                del self._leaves[topic]

    def wanted_from(self, link: Link) -> set[str]:
        """All that we subscribe to, towards this link."""
        if self._role is Role.LEAF:
            return set(self._own)
        return self._own.union(link.topics if link.role is Role.LEAF else self._leaves)

    def news_for(self, link: Link, topics: Iterable[str]) -> Iterator[Subscription]:
        """What a link has not been told yet of these topics; it counts as told from then on."""
        for topic in topics:
            wanted = self._is_wanted_from(link, topic)
            if wanted and topic not in link.told:
                link.told.add(topic)
                yield Subscription(topic)
            elif not wanted and topic in link.told:
                link.told.discard(topic)
                yield Subscription(topic, wanted=False)

    def _is_wanted_from(self, link: Link, topic: str) -> bool:
        if topic in self._own or self._role is Role.LEAF:
            return topic in self._own
        return topic in (link.topics if link.role is Role.LEAF else self._leaves)
