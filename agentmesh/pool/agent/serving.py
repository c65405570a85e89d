"""What is opened on the connections of an agent's process, served: connected to its target, and copied both ways."""

from collections.abc import Mapping

import attrs
import trio

from agentmesh.abc import Session, Stream
from agentmesh.errors import ErrorCode, RejectedError
from agentmesh.pool.agent.link import AgentLink
from agentmesh.pool.agent.targets import Connector, cut
from agentmesh.pool.copying import accept_and_copy
from agentmesh.protocols.pool import Code, Open, OpenResult, Stage, answer_open, receive_open

JOIN_TIMEOUT = 5.0  # seconds that an open may be ahead of the ack

_BUSY = OpenResult(Stage.QUEUE, Code.QUEUE_FULL, retryable=True, retry_after_ms=1000)
_LEAVING = OpenResult(Stage.SELECTION, Code.AGENT_OFFLINE, retryable=True)
_FORBIDDEN = OpenResult(Stage.AUTHORIZATION, Code.FORBIDDEN)


@attrs.frozen(kw_only=True)
class ServingLimits:
    """What an agent's process takes on.

    Attributes:
        max_streams: over all its connections; 0 for no limit.
        max_dials, max_pending_dials: targets that are being connected to, and opens that wait for one of them.
    """

    max_streams: int = 1024
    max_dials: int = attrs.field(default=32, validator=attrs.validators.ge(1))
    max_pending_dials: int = attrs.field(default=128, validator=attrs.validators.ge(1))


class OpenServer:
    """Serves opens.

    Args:
        agent_id: opens for others are forbidden.
        links: the connections, by their sessions; opens on other sessions are refused.
        connector: leads to targets.
    """

    def __init__(
        self, agent_id: str, links: Mapping[Session, AgentLink], connector: Connector, limits: ServingLimits
    ) -> None:
        self._agent_id = agent_id
        self._links = links
        self._connector = connector
        self._limits = limits
        self._dials = trio.CapacityLimiter(limits.max_dials)

    async def serve(self, stream: Stream) -> None:
        """Serve one open: answer it, and copy until it ends.

        Raises:
            RejectedError: it came on no connection of the pool.
            RemoteProtocolError, BrokenResourceError, TooSlowError: as `receive_open`.
        """
        link = self._links.get(stream.session)
        if link is None:
            raise RejectedError("no connection of the pool", ErrorCode.GATED)
        request = await receive_open(stream)
        with trio.fail_after(JOIN_TIMEOUT):
            await link.joined.wait()
        if (refusal := self._refusal(link, request)) is not None:
            await answer_open(stream, refusal)
            return
        link.opens[request.stream_id] = stream
        try:
            await self._serve_open(link, stream, request)
        finally:
            del link.opens[request.stream_id]
            link.control.tell(lambda machine: machine.end_open(request.stream_id))

    def _refusal(self, link: AgentLink, request: Open) -> OpenResult | None:
        if request.agent_id != self._agent_id:
            return _FORBIDDEN
        limit = self._limits.max_streams
        if 0 < limit <= sum(len(one.opens) for one in self._links.values()):
            return _BUSY
        return None if link.control.machine.accept_open(request.stream_id) else _LEAVING

    async def _serve_open(self, link: AgentLink, stream: Stream, request: Open) -> None:
        if self._dials.statistics().tasks_waiting >= self._limits.max_pending_dials:
            await answer_open(stream, _BUSY)
            return
        began = trio.current_time()
        async with self._dials:
            target = await self._connector.connect(request)
        link.note_open(trio.current_time() - began, isinstance(target, OpenResult))
        if isinstance(target, OpenResult):
            await answer_open(stream, target)
            return
        await accept_and_copy(stream, target, cut)
