"""A router's side over streams: what it answers to whom."""

from collections.abc import Callable, Iterator, Sequence

import attrs
import trio

from agentmesh.abc import Admission, Stream, StreamLimits
from agentmesh.errors import RemoteProtocolError
from agentmesh.protocols.directory.events import (
    Answer,
    FindProviders,
    Found,
    Provide,
    Request,
    Requested,
    Status,
)
from agentmesh.protocols.directory.figures import (
    DirectoryStatistics,
    Figures,
    Observe,
    Operation,
    Result,
    operation_of,
    result_of,
)
from agentmesh.protocols.directory.keys import peer_key
from agentmesh.protocols.directory.lookup import LOOKUP_PATIENCE, LOOKUP_TIMEOUT, Lookup
from agentmesh.protocols.directory.machine import Answerer
from agentmesh.protocols.directory.moving import Mover
from agentmesh.protocols.directory.neighbours import REPLICATION, Alone, Federation, Neighbours
from agentmesh.protocols.directory.store import Outcome, Record, RecordStore, StoreLimits
from agentmesh.protocols.directory.wire import DIRECTORY_ID
from agentmesh.runtime.host import Host
from agentmesh.runtime.messages import flush, wait_event
from agentmesh.runtime.meters import Meter
from agentmesh.runtime.registry import Protocol
from agentmesh.runtime.yamux import Allowance
from agentmesh.types import Address, PeerId

MAX_STREAMS_PER_PEER = 256  # requests of one peer at once; another router's lookups are among them
MIN_RETRY_AFTER = 1.0  # seconds


@attrs.frozen
class DirectoryConfig:
    """Settings of a router's directory.

    Attributes:
        store: how many records.
        max_requests: how often one member may ask; other routers are not counted.
        lookup_timeout: seconds that other routers have to answer.
        lookup_patience: seconds that the slow among them are waited for with something in hand.
    """

    store: StoreLimits = StoreLimits()
    max_requests: Allowance = Allowance(burst=1024, per_second=64)
    lookup_timeout: float = LOOKUP_TIMEOUT
    lookup_patience: float = LOOKUP_PATIENCE


class Directory:
    """A router's directory. List `protocol()` where the host is built.

    Args:
        config: the bounds.
        federation: the other routers; none when it is None.
        replication: how many routers hold a record, as the control plane says it now.
        reach: where a peer that this router holds a session with can be dialled, as the router itself knows; nothing
            of a peer that it does not hold.
        observe: told of each request, its result and how long it took.
    """

    def __init__(
        self,
        config: DirectoryConfig | None = None,
        *,
        federation: Federation | None = None,
        replication: Callable[[], int] = lambda: REPLICATION,
        reach: Callable[[PeerId], Sequence[Address]] = lambda peer: (),
        observe: Observe | None = None,
    ) -> None:
        self.config = config or DirectoryConfig()
        self.store = RecordStore(self.config.store)
        self._figures = Figures(observe)
        self._federation = federation or Alone()
        self._replication = replication
        self._reach = reach
        self._meter = Meter(self.config.max_requests)
        self._opened = trio.Event()
        self._host: Host
        self._neighbours: Neighbours
        self._mover: Mover

    def protocol(self) -> Protocol:
        """The protocol, for whoever the host has admitted."""
        limits = StreamLimits(MAX_STREAMS_PER_PEER)
        return Protocol(DIRECTORY_ID, self.serve, Admission.MEMBER, limits, self.run)

    def statistics(self) -> DirectoryStatistics:
        self.store.expire(trio.current_time())
        return DirectoryStatistics(
            records=len(self.store),
            keys=self.store.keys,
            providers=self.store.providers,
            requests=dict(self._figures.requests),
            placements=dict(self._figures.placements),
            seconds={operation: taken.copy() for operation, taken in self._figures.seconds.items()},
        )

    def forget(self, peer: PeerId) -> None:
        """Drop the records of a peer that is out of the mesh."""
        self.store.forget(peer)

    async def leave(self) -> None:
        """Hand the records over to the routers that stay, which takes some seconds at the most. Lookups are answered
        meanwhile, and afterwards.

        Cancellation: safe; the rest is not handed over.
        """
        await self._opened.wait()
        await self._mover.leave()

    async def run(self, host: Host) -> None:
        """Learn which host this is; move records as routers come and go, and drop those whose time is over."""
        self._host = host
        self._neighbours = Neighbours(
            me=host.peer,
            open_stream=host.open_stream,
            federation=self._federation,
            replication=self._replication,
            figures=self._figures,
            timeout=self.config.lookup_timeout,
            patience=self.config.lookup_patience,
        )
        self._mover = Mover(self.store, self._neighbours)
        self._opened.set()
        await self._mover.run()

    async def serve(self, stream: Stream) -> None:
        """Answer one request. What is the peer's fault is raised: the runtime resets the stream with its code."""
        await self._opened.wait()
        started = trio.current_time()
        answerer = Answerer(stream.peer, started)
        request = await self._read(answerer, stream)
        try:
            answer = await self._answer(stream.peer, request)
        except RemoteProtocolError:
            self._figures.count(operation_of(request), Result.FORGED, trio.current_time() - started)
            raise
        self._figures.count(operation_of(request), result_of(request, answer), trio.current_time() - started)
        answerer.send_answer(answer)
        await flush(answerer, stream)

    async def _read(self, answerer: Answerer, stream: Stream) -> Request:
        started = trio.current_time()
        try:
            event = await wait_event(answerer, stream)
        except (RemoteProtocolError, trio.BrokenResourceError, trio.TooSlowError) as exc:
            result = Result.MALFORMED if isinstance(exc, RemoteProtocolError) else Result.FAILED
            self._figures.count(Operation.UNKNOWN, result, trio.current_time() - started)
            raise
        if not isinstance(event, Requested):
            self._figures.count(Operation.UNKNOWN, Result.FAILED, trio.current_time() - started)
            raise RemoteProtocolError("no request came")
        return event.request

    async def _answer(self, asker: PeerId, request: Request) -> Answer:
        is_router = self._host.admissions.level(asker) >= Admission.ROUTER
        if isinstance(request, Provide) and request.provider is not None and not is_router:
            raise RemoteProtocolError("a record of somebody else, and not from a router")
        wait = 0.0 if is_router else self._meter.spend(asker, trio.current_time())
        if wait:
            return Answer(Status.LIMITED, retry_after=max(wait, MIN_RETRY_AFTER))
        if isinstance(request, Provide):
            return await self._provide(asker, request)
        if isinstance(request, FindProviders):
            return await self._find(request, request.key, request.limit, is_router)
        if addresses := tuple(self._reach(request.peer)):
            return Answer(found=(Found(request.peer, addresses),))
        return await self._find(request, peer_key(request.peer), 1, is_router)

    # ── provide ──

    async def _provide(self, asker: PeerId, request: Provide) -> Answer:
        now, said = trio.current_time(), request.announcement
        record = Record(
            key=said.key,
            provider=request.provider or asker,
            addresses=said.addresses,
            sequence=said.sequence,
            expires_at=now + (said.ttl or self.store.limits.record_ttl),
            withdrawn=not said.ttl,
            direct=request.provider is None,
        )
        if request.provider is not None and record.withdrawn and self._knows_nothing_of(record):
            return Answer(placed=1)
        outcome = self.store.put(record, now)
        if outcome is not Outcome.STORED:
            return self._refusal(record, outcome, now)
        if request.provider is not None:
            self._mover.receive(record)
            return Answer(Status.UNAVAILABLE if self._mover.is_leaving else Status.OK, placed=1)
        await self._neighbours.reach_all()
        return Answer(placed=1 + await self._mover.place(record))

    def _knows_nothing_of(self, record: Record) -> bool:
        """Whether that a provider withdraws is no news here: there is no record, and none belongs here."""
        held = self.store.get(record.key, record.provider, trio.current_time())
        return held is None and not self._mover.belongs(record)

    def _refusal(self, record: Record, outcome: Outcome, now: float) -> Answer:
        if outcome is Outcome.OUTDATED:
            held = self.store.get(record.key, record.provider, now)
            return Answer(Status.OUTDATED, sequence=held.sequence if held else record.sequence)
        room_at = self.store.next_expiry(record.provider if outcome is Outcome.PROVIDER_FULL else None)
        return Answer(Status.LIMITED, retry_after=max(room_at - now, MIN_RETRY_AFTER))

    # ── find ──

    async def _find(self, request: Request, key: bytes, limit: int, is_router: bool) -> Answer:
        """Another router is told what this one holds: it asks all that would know itself."""
        if is_router:
            return Answer(found=tuple(self._own(key, limit)))
        await self._neighbours.reach_all()
        time_is_up = trio.current_time() + self.config.lookup_timeout
        lookup = await self._look(request, key, limit)
        if not lookup.found and trio.current_time() < time_is_up and await self._neighbours.refresh():
            lookup = await self._look(request, key, limit)
        good = lookup.good(trio.current_time())
        found = tuple(one for one in good if not self._has_withdrawn(key, one))
        return Answer(Status.UNAVAILABLE if not found and lookup.is_in_vain else Status.OK, found)

    async def _look(self, request: Request, key: bytes, limit: int) -> Lookup:
        return await self._neighbours.look(request, key, self._own(key, limit), limit)

    def _own(self, key: bytes, limit: int) -> Iterator[Found]:
        now = trio.current_time()
        for record in self.store.find(key, limit, now):
            yield Found(record.provider, record.addresses, record.sequence, record.expires_at - now)

    def _has_withdrawn(self, key: bytes, one: Found) -> bool:
        """Whether the provider has told this router since that it is there no more."""
        held = self.store.get(key, one.peer, trio.current_time())
        return held is not None and held.withdrawn and held.sequence > one.sequence
