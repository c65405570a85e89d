"""Floodsub over streams: one task for each stream of a peer, which reads it. Ours are written to without one."""

import itertools
import math
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

import attrs
import trio

from agentmesh.abc import Admission, Stream, StreamLimits
from agentmesh.errors import DialError, ErrorCode, RejectedError
from agentmesh.protocols.floodsub.ends import Ends, close
from agentmesh.protocols.floodsub.events import CutReason, Fate, MessageReceived, Role
from agentmesh.protocols.floodsub.limits import FloodsubLimits
from agentmesh.protocols.floodsub.link import Link
from agentmesh.protocols.floodsub.machine import Switch
from agentmesh.protocols.floodsub.policy import Policy
from agentmesh.protocols.floodsub.reader import MAX_UNREAD, Readers, TopicReader
from agentmesh.protocols.floodsub.sending import Sender
from agentmesh.protocols.floodsub.signing import MIN_NUMBER, sign_message
from agentmesh.protocols.floodsub.wire import FLOODSUB_ID, MAX_TOPIC_BYTES
from agentmesh.runtime.host import Host
from agentmesh.runtime.registry import Protocol
from agentmesh.runtime.telling import Telling
from agentmesh.types import PeerId

MAX_STREAMS_PER_PEER = 2  # inbound: one, and the next that takes its place
PARTING_TIME = 10.0  # seconds after a link's end in which the other router may answer it
ANSWER_WAIT = 0.25  # seconds that the stream of such a one is to last until it is answered
READ_BYTES = 16 * 1024  # of a peer at once: a few dozen signatures, and then the others have their turn


@attrs.frozen
class FloodsubStatistics:
    """A snapshot of a host's floodsub. The first four are sizes, the others count up."""

    links: int
    topics: int  # that peers subscribe to
    seen: int
    waiting: int  # bytes that peers have not taken yet
    messages: dict[Fate, int]
    cuts: dict[CutReason, int]


class Floodsub:
    """A host's part in floodsub. List `protocol()` where the host is built.

    A leaf takes streams of those peers only that it is attached to (`attach`): its routers. A router takes those of
    whoever the host has admitted, and opens one of its own in return.

    Args:
        role: how the host takes part.
        limits: the bounds.
        policy: what may pass.
        wall_clock: seconds since 1970; messages are numbered from it, so that no two of an author have one number.
    """

    def __init__(
        self,
        role: Role,
        limits: FloodsubLimits | None = None,
        policy: Policy | None = None,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.role = role
        self.limits = limits or FloodsubLimits()
        self._policy = policy
        self._numbers = itertools.count(max(int(wall_clock() * 1e9), MIN_NUMBER))
        self._ends: dict[int, Ends] = {}
        self._parted: dict[PeerId, float] = {}  # routers to which a link has just ended, and when
        self._readers = Readers()
        self._sender = Sender(self._ends, self.limits.send_timeout, self._lost)
        self._opened = trio.Event()
        self._host: Host
        self._switch: Switch

    def protocol(self) -> Protocol:
        """The protocol; of a leaf it is `attach` that opens its gate."""
        admission = Admission.MEMBER if self.role is Role.ROUTER else Admission.ANYONE
        return Protocol(FLOODSUB_ID, self.serve, admission, StreamLimits(MAX_STREAMS_PER_PEER), self.run)

    async def run(self, host: Host) -> None:
        """Learn which host this is, and send what is to be sent."""
        self._host = host
        self._switch = Switch(host.peer, self.role, self.limits, self._policy)
        for topic in self._readers.topics:
            self._switch.subscribe(topic)
        self._opened.set()
        await self._sender.run()

    def statistics(self) -> FloodsubStatistics:
        """For an open host."""
        return FloodsubStatistics(
            links=len(self._switch.links),
            topics=self._switch.topics,
            seen=self._switch.seen,
            waiting=sum(link.outbox.bytes for link in self._switch.links),
            messages=dict(self._switch.fates),
            cuts=dict(self._switch.cuts),
        )

    # ── for applications ──

    async def publish(self, topic: str, data: bytes) -> int:
        """Sign a message and send it on its way: a leaf's to its routers, a router's to whoever subscribes.

        It does not wait for anybody to take it (`wait_sent` does).

        Returns:
            To how many peers. 0 is no error: nobody may be there to hear it.
        Raises:
            ValueError: the topic has no name or too long a one, or the message is longer than `max_message_bytes`.
        Cancellation: safe; nothing is sent then.
        """
        await self._opened.wait()
        if not 0 < len(topic.encode()) <= MAX_TOPIC_BYTES:
            raise ValueError(f"a topic's name has 1 to {MAX_TOPIC_BYTES} bytes")
        message = sign_message(self._host.identity, topic, data, next(self._numbers))
        if len(message.signed) + len(message.signature) > self.limits.max_message_bytes:
            raise ValueError(f"a message of more than {self.limits.max_message_bytes} bytes")
        count = self._switch.publish(message, trio.current_time())
        self._act()
        return count

    async def wait_sent(self) -> None:
        """Wait until all that was published so far has been handed to the peers' streams, or the peers are gone."""
        await self._opened.wait()
        await self._sender.wait_sent(self._switch.links)

    @contextmanager
    def subscribe(self, topic: str, max_unread: int = MAX_UNREAD) -> Generator[TopicReader]:
        """Hear what others publish on a topic, for as long as the block lasts: `async for message in reader`.

        Args:
            topic: its name.
            max_unread: how many messages may wait; beyond it the oldest are lost, and counted.
        """
        reader = TopicReader(topic, max_unread)
        if self._readers.add(reader) and self._opened.is_set():
            self._switch.subscribe(topic)
            self._act()
        try:
            yield reader
        finally:
            if self._readers.remove(reader) and self._opened.is_set():
                self._switch.unsubscribe(topic)
                self._act()

    def recheck(self, peer: PeerId | None = None) -> None:
        """Have the policy asked again what leaves may subscribe to.

        Args:
            peer: one of them; all when it is None.
        """
        if self._opened.is_set():
            links = tuple(self._switch.links) if peer is None else (self._switch.link(peer),)
            for link in links:
                if link is not None and link.role is Role.LEAF:
                    self._switch.recheck(link)
            self._act()

    # ── links ──

    async def attach(self, peer: PeerId) -> CutReason:
        """Be linked to a peer, over the standing session to it, until the link ends.

        Returns:
            Why it ended.
        Raises:
            DialError: no session to it.
            StreamResetError: the peer cut the link, and `code` says why.
            RejectedError: it does not speak floodsub, or not with us; or there are too many links.
        Cancellation: ends the link.
        """
        await self._opened.wait()
        link = self._switch.link(peer)
        if link is None or not link.is_telling:
            link = self._switch.tell(peer, self._role_of(peer))
            self._act()
            with self._part_of(link) as ends:
                telling = await self._tell(link)
                try:
                    await trio.sleep_forever()
                finally:
                    await close(telling, link.code)
        else:
            ends = self._ends[link.number]
            await ends.ended.wait()
        if ends.failure is not None:
            raise ends.failure
        return link.reason

    async def serve(self, stream: Stream) -> None:
        """Hear a peer, until its stream or the link ends; tell it in return what we want, and what is published."""
        await self._opened.wait()
        if self.role is Role.LEAF and self._switch.link(stream.peer) is None:
            raise RejectedError(f"not attached to {stream.peer}", ErrorCode.GATED)
        link = self._switch.hear(stream.peer, self._role_of(stream.peer))
        self._act()
        with self._part_of(link):
            telling = None
            await self._heed_parting(link, stream)
            if not link.is_telling and not link.is_gone:
                self._switch.tell(stream.peer, link.role)
                telling = await self._answer(link)
            try:
                await self._hear(link, stream)
            finally:
                if telling is not None:
                    await close(telling, link.code)
        if link.code:
            raise RejectedError(f"{stream.peer}: {link.reason}", link.code)

    async def _heed_parting(self, link: Link, stream: Stream) -> None:
        """A router to which a link has just ended may be answering that one. Then its stream ends soon, and whoever
        answered it would be answered in turn, for ever.
        """
        if trio.current_time() < self._parted.get(link.peer, -math.inf) + PARTING_TIME:
            with trio.move_on_after(ANSWER_WAIT):
                await self._hear(link, stream)

    async def _hear(self, link: Link, stream: Stream) -> None:
        while not link.is_gone:
            try:
                data = await stream.receive_some(READ_BYTES)
            except trio.BrokenResourceError as exc:
                self._ends[link.number].note(exc)
                raise
            try:
                self._switch.receive_data(link, bytes(data), trio.current_time())
            finally:
                self._act()

    async def _answer(self, link: Link) -> Telling | None:
        """Tell a peer that came to us. One that will not hear us is no use to us either."""
        try:
            return await self._tell(link)
        except (DialError, trio.BrokenResourceError):
            self._switch.end(link)
            self._act()
            return None

    async def _tell(self, link: Link) -> Telling:
        """Open our stream to a peer; what waits for it goes there from now on."""
        stream, ends = await self._host.open_stream(link.peer, FLOODSUB_ID), self._ends[link.number]

        def over(exc: trio.BrokenResourceError) -> None:
            ends.note(exc)
            self._switch.end(link)
            self._act()

        ends.telling = Telling(stream, over)
        self._sender.add((link,))
        return ends.telling

    @contextmanager
    def _part_of(self, link: Link) -> Generator[Ends]:
        """A block that ends with the link, and the link with it."""
        ends = self._ends.setdefault(link.number, Ends())
        scope = trio.CancelScope()
        ends.scopes.append(scope)
        if link.is_gone:
            scope.cancel()
        try:
            with scope:
                yield ends
        finally:
            self._switch.end(link)
            self._act()
            ends.scopes.remove(scope)
            if not ends.scopes:
                del self._ends[link.number]
                self._part(link)
                self._sender.looked()

    def _part(self, link: Link) -> None:
        now = trio.current_time()
        self._parted = {peer: at for peer, at in self._parted.items() if now < at + PARTING_TIME}
        if self.role is link.role is Role.ROUTER:
            self._parted[link.peer] = now

    def _act(self) -> None:
        """Do what the machine wants done. Synchronous: nothing comes between its decision and this."""
        while (event := self._switch.next_event()) is not None:
            if isinstance(event, MessageReceived):
                self._readers.deliver(event.message)
            elif (ends := self._ends.get(event.number)) is not None:
                ends.cancel()
        self._sender.add(self._switch.take_ready())

    def _lost(self, link: Link) -> None:
        self._switch.lose(link)
        self._act()

    def _role_of(self, peer: PeerId) -> Role:
        """A leaf is attached to routers only; a router asks who was admitted as what."""
        is_router = self.role is Role.LEAF or self._host.admissions.level(peer) >= Admission.ROUTER
        return Role.ROUTER if is_router else Role.LEAF
