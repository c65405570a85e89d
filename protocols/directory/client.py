"""The side that asks, over streams: a member of its routers, or a router of another."""

from collections.abc import Callable, Sequence

import trio

from agentmesh.abc import OpenStream
from agentmesh.errors import DialError, ErrorCode, NotConnectedError, RejectedError, RemoteProtocolError
from agentmesh.protocols.directory.events import (
    DEFAULT_LIMIT,
    Announcement,
    Answer,
    Answered,
    FindPeer,
    FindProviders,
    Found,
    Provide,
    Request,
    Status,
)
from agentmesh.protocols.directory.figures import Figures, Observe, Result, operation_of, result_of
from agentmesh.protocols.directory.machine import ANSWER_TIMEOUT, Asker
from agentmesh.protocols.directory.wire import DIRECTORY_ID
from agentmesh.runtime.messages import wait_event
from agentmesh.types import PeerId

# What asking one router may raise; the next one may do better.
FAILURES = (DialError, RemoteProtocolError, trio.BrokenResourceError, trio.TooSlowError)


async def ask(open_stream: OpenStream, router: PeerId, request: Request, timeout: float = ANSWER_TIMEOUT) -> Answer:
    """Ask one router one thing, on a stream of its own over the standing session.

    Args:
        open_stream: `Host.open_stream`.
        router: whom to ask.
        request: what.
        timeout: seconds for the answer.
    Raises:
        DialError: no session to it.
        RejectedError: it does not admit us (GATED), or refuses one more stream.
        RemoteProtocolError: it broke the protocol.
        TooSlowError: no answer in time.
        BrokenResourceError: the stream broke.
    Cancellation: safe; whether a `Provide` was kept is then unknown.
    """
    asker = Asker(timeout)
    stream = await open_stream(router, DIRECTORY_ID)
    async with stream:
        asker.send_request(request, trio.current_time())
        match await wait_event(asker, stream):
            case Answered(answer):
                return answer
            case _:
                stream.reset()  # what is still under way is not to be done late
                raise trio.TooSlowError(f"no answer from {router} within {timeout} s")


class DirectoryClient:
    """Asks one of the routers that a member holds, and the next when that one fails.

    Args:
        open_stream: `Host.open_stream`.
        routers: those to ask, in this order.
        observe: told of each request to a router, its result and how long it took.
    """

    def __init__(
        self, open_stream: OpenStream, routers: Callable[[], Sequence[PeerId]], observe: Observe | None = None
    ) -> None:
        self.figures = Figures(observe)
        self._open_stream = open_stream
        self._routers = routers

    async def provide(self, announcement: Announcement) -> Answer:
        """Announce ourselves under a key, or withdraw.

        Returns:
            OK, with how many routers hold the record; or OUTDATED, with the sequence that has to be exceeded.
        Raises:
            NotConnectedError: no router to ask.
            DialError: none kept it; the cause says why for each, a RejectedError with `retry_after` among them.
        Cancellation: safe; whether it was kept is then unknown.
        """
        return await self._ask(Provide(announcement))

    async def find_providers(self, key: bytes, limit: int = DEFAULT_LIMIT) -> tuple[Found, ...]:
        """At most `limit` of those who are announced under a key; perhaps none.

        Raises:
            NotConnectedError, DialError: as `provide`.
        """
        return (await self._ask(FindProviders(key, limit))).found[:limit]

    async def find_peer(self, peer: PeerId) -> Found | None:
        """Where a peer is, or None when nobody knows.

        Raises:
            NotConnectedError, DialError: as `provide`.
        """
        answer = await self._ask(FindPeer(peer))
        return next((one for one in answer.found if one.peer == peer), None)

    async def _ask(self, request: Request) -> Answer:
        failures: list[Exception] = []
        for router in tuple(self._routers()):
            try:
                return await self._ask_one(router, request)
            except FAILURES as exc:
                failures.append(exc)
        if not failures:
            raise NotConnectedError("this node is attached to no router that it could ask")
        cause = failures[0] if len(failures) == 1 else ExceptionGroup("each router's failure", failures)
        raise DialError("no router answered for the directory") from cause

    async def _ask_one(self, router: PeerId, request: Request) -> Answer:
        started = trio.current_time()
        try:
            answer = await ask(self._open_stream, router, request)
        except FAILURES as exc:
            self._count(request, Result.MALFORMED if isinstance(exc, RemoteProtocolError) else Result.FAILED, started)
            raise
        self._count(request, result_of(request, answer), started)
        if answer.status is Status.LIMITED:
            code = ErrorCode.RESOURCE_LIMIT_EXCEEDED
            raise RejectedError(f"{router} has no room for more", code, answer.retry_after)
        if answer.status is Status.UNAVAILABLE:
            raise RejectedError(f"{router} could ask no other router", ErrorCode.NO_ERROR)
        return answer

    def _count(self, request: Request, result: Result, started: float) -> None:
        self.figures.count(operation_of(request), result, trio.current_time() - started)
