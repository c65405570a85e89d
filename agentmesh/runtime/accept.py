"""From an inbound stream to the protocol that serves it: negotiation, the gate, the limits, and what failures cost."""

import logging
from typing import cast

import attrs
import trio

from agentmesh.errors import ErrorCode, MeshError, ProtocolError, RejectedError, RemoteProtocolError
from agentmesh.runtime.admission import AdmissionBook
from agentmesh.runtime.multistream import Responder
from agentmesh.runtime.naming import hear_name, wait_name
from agentmesh.runtime.registry import Protocol, ProtocolRegistry
from agentmesh.runtime.stream import MuxStream
from agentmesh.types import PeerId, ProtocolId

logger = logging.getLogger(__name__)

OUTCOMES: tuple[str, ...] = ("served", "peer_failed", "failed", "gated", "limited", "unknown", "unnamed")


@attrs.frozen
class AcceptStatistics:
    """How inbound streams ended, by outcome (all of OUTCOMES, from 0), and how many are being served."""

    outcomes: dict[str, int]
    serving: int


class StreamAcceptor:
    """Serves the inbound streams of all sessions of a host.

    Args:
        registry: the protocols spoken.
        admissions: who is admitted; gated protocols ask it.
        negotiation_timeout: seconds a stream has to name its protocol.
    """

    def __init__(self, registry: ProtocolRegistry, admissions: AdmissionBook, negotiation_timeout: float) -> None:
        self._registry = registry
        self._admissions = admissions
        self._negotiation_timeout = negotiation_timeout
        self._open: dict[tuple[PeerId, ProtocolId], int] = {}
        self._outcomes = dict.fromkeys(OUTCOMES, 0)
        admissions.on_lapse(self._reset_gated)
        self._gated: dict[PeerId, set[MuxStream]] = {}

    async def __call__(self, stream: MuxStream) -> None:
        """Serve one stream to its end. Never raises but for cancellation."""
        protocol = await self._negotiate(stream)
        if protocol is not None and self._may_open(stream, protocol):
            await self._serve(stream, protocol)

    def statistics(self) -> AcceptStatistics:
        return AcceptStatistics(dict(self._outcomes), sum(self._open.values()))

    async def _negotiate(self, stream: MuxStream) -> Protocol | None:
        protocol, early = hear_name(stream, self._registry)
        if protocol is not None:
            return protocol
        responder = Responder(self._speaks)
        try:
            with trio.fail_after(self._negotiation_timeout):
                await wait_name(stream, responder, early)
            return self._registry.get(stream.protocol)
        except (trio.BrokenResourceError, trio.TooSlowError, RemoteProtocolError):
            self._outcomes["unnamed" if responder.unanswered else "unknown"] += 1
            stream.give_up_negotiation()
            return None

    def _speaks(self, name: str) -> bool:
        return self._registry.get(name) is not None

    def _may_open(self, stream: MuxStream, protocol: Protocol) -> bool:
        if self._admissions.level(stream.peer) < protocol.admission:
            self._refuse(stream, "gated", ErrorCode.GATED)
            return False
        if self._open.get((stream.peer, protocol.id), 0) >= protocol.limits.max_streams_per_peer:
            self._refuse(stream, "limited", ErrorCode.RESOURCE_LIMIT_EXCEEDED)
            return False
        return True

    def _refuse(self, stream: MuxStream, outcome: str, code: ErrorCode) -> None:
        self._outcomes[outcome] += 1
        logger.info("stream refused", extra={"peer": stream.peer, "protocol": stream.protocol, "reason": outcome})
        stream.reset(code)

    async def _serve(self, stream: MuxStream, protocol: Protocol) -> None:
        key = (stream.peer, protocol.id)
        self._open[key] = self._open.get(key, 0) + 1
        if protocol.admission:
            self._gated.setdefault(stream.peer, set()).add(stream)
        try:
            self._outcomes[await self._run(stream, protocol)] += 1
        finally:
            if left := self._open.pop(key) - 1:
                self._open[key] = left
            if protocol.admission:
                self._forget_gated(stream)

    async def _run(self, stream: MuxStream, protocol: Protocol) -> str:
        """Returns the outcome. The one place where whatever a protocol raises is caught: it costs the stream only."""
        try:
            await protocol.serve(stream)
        except Exception as exc:
            return self._fail(stream, exc)
        except BaseExceptionGroup as group:  # cancelled, and what it did then failed: that stays here
            failures, rest = group.split(Exception)
            if failures is not None:
                self._outcomes[self._fail(stream, failures)] += 1
            raise rest or group from None
        await stream.aclose()
        return "served"

    def _fail(self, stream: MuxStream, exc: Exception) -> str:
        code, peers_fault = _verdict(exc)
        stream.reset(code)
        where = {"peer": stream.peer, "protocol": stream.protocol}
        if peers_fault:
            logger.info("stream failed", extra={**where, "reason": _said(exc)})
            return "peer_failed"
        logger.error("protocol failed", exc_info=exc, extra=where)
        return "failed"

    def _forget_gated(self, stream: MuxStream) -> None:
        streams = self._gated.get(stream.peer)
        if streams is not None:
            streams.discard(stream)
            if not streams:
                del self._gated[stream.peer]

    def _reset_gated(self, peer: PeerId) -> None:
        """An admission ended: what it let in goes with it."""
        for stream in self._gated.get(peer, ()):
            stream.reset(ErrorCode.GATED)


def _said(exc: Exception) -> str:
    """In words; of a group, what its errors say."""
    if isinstance(exc, ExceptionGroup):
        return "; ".join(_said(inner) for inner in cast("ExceptionGroup[Exception]", exc).exceptions)
    return str(exc) or type(exc).__name__


def _verdict(exc: Exception) -> tuple[int, bool]:
    """The code that tells the peer, and whether the failure is its own (or the network's) rather than a bug of ours."""
    if isinstance(exc, ExceptionGroup):
        verdicts = [_verdict(inner) for inner in cast("ExceptionGroup[Exception]", exc).exceptions]
        return next((verdict for verdict in verdicts if not verdict[1]), verdicts[0])
    if isinstance(exc, RejectedError):
        return exc.code, True
    if isinstance(exc, ProtocolError):
        return exc.code, isinstance(exc, RemoteProtocolError)
    expected = isinstance(exc, (MeshError, trio.BrokenResourceError, trio.TooSlowError, trio.ClosedResourceError))
    return ErrorCode.NO_ERROR, expected
