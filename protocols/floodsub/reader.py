"""Subscribers in this process: the messages of a topic that each has not taken yet."""

from collections import deque
from collections.abc import Collection

from agentmesh.protocols.floodsub.events import Message
from agentmesh.runtime.guard import Signal

MAX_UNREAD = 256  # messages


class TopicReader:
    """An endless async iterator over a topic's messages, oldest first.

    A reader that is too slow loses the oldest messages, and nobody waits for it; `missed` says how many.

    Args:
        topic: what it is about.
        max_unread: how many messages wait for the reader at most.

    Attributes:
        missed: how many were lost.
    """

    def __init__(self, topic: str, max_unread: int = MAX_UNREAD) -> None:
        if max_unread < 1:
            raise ValueError("a reader needs room for a message")
        self.topic = topic
        self.missed = 0
        self._unread: deque[Message] = deque(maxlen=max_unread)
        self._arrived = Signal()

    def __aiter__(self) -> "TopicReader":
        return self

    async def __anext__(self) -> Message:
        """The next message. Cancellation: safe, nothing is lost."""
        await self._arrived.wait()
        message = self._unread.popleft()
        if self._unread:
            self._arrived.set()
        return message

    def deliver(self, message: Message) -> None:
        """For the driver: a message has come."""
        self.missed += len(self._unread) == self._unread.maxlen
        self._unread.append(message)
        self._arrived.set()

    def __len__(self) -> int:
        """How many messages wait."""
        return len(self._unread)


class Readers:
    """All subscribers, by topic."""

    def __init__(self) -> None:
        self._by_topic: dict[str, list[TopicReader]] = {}

    @property
    def topics(self) -> Collection[str]:
        return self._by_topic.keys()

    def add(self, reader: TopicReader) -> bool:
        """Whether it is the first of its topic."""
        readers = self._by_topic.setdefault(reader.topic, [])
        readers.append(reader)
        return len(readers) == 1

    def remove(self, reader: TopicReader) -> bool:
        """Whether it was the last of its topic."""
        readers = self._by_topic[reader.topic]
        readers.remove(reader)
        if not readers:
            del self._by_topic[reader.topic]
        return not readers

    def deliver(self, message: Message) -> None:
        for topic in message.topics:
            for reader in self._by_topic.get(topic, ()):
                reader.deliver(message)
