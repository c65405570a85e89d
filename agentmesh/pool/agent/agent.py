"""An agent's process: it holds connections to its router, as many as are needed, and serves what is opened on them."""

import logging
import math
import random
from collections.abc import Awaitable, Callable, Mapping

import attrs
import trio

from agentmesh.abc import Admission, Session
from agentmesh.errors import CredentialError, DialError, ErrorCode, RejectedError, RemoteProtocolError
from agentmesh.pool.agent.config import ConnectionsConfig
from agentmesh.pool.agent.controller import Controller
from agentmesh.pool.agent.dials import Failure
from agentmesh.pool.agent.instance import Instance, make_connection_id
from agentmesh.pool.agent.link import AgentLink
from agentmesh.pool.agent.orders import Close, Dial, Drain, Order
from agentmesh.pool.agent.scaling import Decision
from agentmesh.pool.agent.serving import OpenServer, ServingLimits
from agentmesh.pool.agent.targets import Connector
from agentmesh.protocols.pool import (
    CAPABILITIES,
    POOL_ID,
    Ack,
    AgentSide,
    ConnEpoch,
    ErrorName,
    Hello,
    Item,
    Scaling,
    open_control,
    open_protocol,
)
from agentmesh.protocols.pool.beat import HEARTBEAT_INTERVAL
from agentmesh.protocols.pool.events import (
    Drained,
    DrainExpired,
    DrainReceived,
    Event,
    Joined,
    MetadataAcknowledged,
    PeerLeft,
    PeerSilent,
    Refused,
)
from agentmesh.runtime.registry import Protocol
from agentmesh.runtime.session import MuxSession

logger = logging.getLogger(__name__)

LOOK_INTERVAL = 1.0  # seconds between two looks at what waits to be sent
CLOSE_TIMEOUT = 3.0  # seconds

DialSession = Callable[[], Awaitable[MuxSession]]

_CREDENTIAL_CODES = (ErrorName.UNAUTHORIZED, ErrorName.FORBIDDEN)


@attrs.frozen(kw_only=True)
class AgentSettings:
    """What an agent is, and what it takes.

    Attributes:
        agent_id: as its credential says.
        node_id: of this process, for routers that know no instances.
        items: what it tells of itself.
        serving: what it takes on.
    """

    agent_id: str
    instance: Instance
    connections: ConnectionsConfig = ConnectionsConfig()
    node_id: str = ""
    items: tuple[Item, ...] = ()
    capabilities: tuple[str, ...] = CAPABILITIES
    serving: ServingLimits = ServingLimits()


class AgentPool:
    """The connections of one process.

    Args:
        settings: what it is.
        dial: makes one more session to the one router address, authenticated by itself; raises DialError, or
            CredentialError and RejectedError when we are not let in.
        connector: leads to targets.
        chance: a number from 0 to 1, another each time.
    """

    def __init__(
        self,
        settings: AgentSettings,
        dial: DialSession,
        connector: Connector,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.settings = settings
        self.controller = Controller(settings.connections, make_connection_id, chance)
        self._dial = dial
        self._links: dict[Session, AgentLink] = {}
        self._server = OpenServer(settings.agent_id, self._links, connector, settings.serving)
        self._scopes: dict[str, trio.CancelScope] = {}
        self._closing: set[str] = set()
        self._news = trio.Event()

    def protocol(self, admission: Admission = Admission.ROUTER) -> Protocol:
        """What serves opens; list it where the host is built."""
        return open_protocol(self._server.serve, admission)

    @property
    def links(self) -> Mapping[Session, AgentLink]:
        return self._links

    async def run(self) -> None:
        """Hold connections, until cancelled, or until `drain` was called and everything has ended.

        Cancellation: everything is cut.
        """
        async with trio.open_nursery() as nursery:
            self.controller.start(trio.current_time())
            stats_at = trio.current_time() + HEARTBEAT_INTERVAL
            while not self.controller.is_over:
                self._news = trio.Event()
                while (order := self.controller.next_order()) is not None:
                    self._obey(order, nursery)
                next_look = trio.current_time() + LOOK_INTERVAL if self._links else math.inf
                with trio.move_on_at(min(self.controller.deadline, next_look)):
                    await self._news.wait()
                now = trio.current_time()
                self._look(now)
                self.controller.handle_timeout(now)
                if now >= stats_at:
                    stats_at = now + HEARTBEAT_INTERVAL
                    self._send_stats()
            while (order := self.controller.next_order()) is not None:
                self._obey(order, nursery)

    def drain(self) -> None:
        """Take no more streams, let those open end, and have `run` return then."""
        self.controller.stop(trio.current_time())
        self._news.set()

    # ── connections ──

    def _obey(self, order: Order, nursery: trio.Nursery) -> None:
        match order:
            case Dial(connection_id):
                nursery.start_soon(self._run_connection, connection_id)
            case Drain(connection_id, reason, timeout):
                if (link := self._link(connection_id)) is not None:
                    link.drain(reason, timeout, trio.current_time())
            case Close(connection_id):
                self._closing.add(connection_id)
                if (scope := self._scopes.get(connection_id)) is not None:
                    scope.cancel()

    async def _run_connection(self, connection_id: str) -> None:
        """From the dial to the end. Whatever ends a connection ends it alone."""
        with trio.CancelScope() as scope:
            self._scopes[connection_id] = scope
            if connection_id in self._closing:
                scope.cancel()
            try:
                await self._connect(connection_id)
            except (DialError, RemoteProtocolError, trio.BrokenResourceError, trio.TooSlowError) as exc:
                self._say_ended(connection_id, exc)
                self._fail(connection_id, _failure_of(exc))
            except CredentialError as exc:
                logger.warning("credential refused", extra={"connection": connection_id, "reason": exc.reason})
                self._fail(connection_id, Failure.AUTH)
        del self._scopes[connection_id]
        self._closing.discard(connection_id)
        self._fail(connection_id, Failure.NETWORK)

    def _fail(self, connection_id: str, failure: Failure, retry_after: float = 0.0) -> None:
        """Tell the controller of the end; it knows whether there was more than a dial."""
        now = trio.current_time()
        self.controller.dial_failed(connection_id, failure, now, retry_after)
        self.controller.lost(connection_id, now)
        self._news.set()

    async def _connect(self, connection_id: str) -> None:
        session = await self._dial()
        try:
            async with (
                await session.open_stream(POOL_ID) as stream,
                open_control(AgentSide(trio.current_time()), stream) as control,
            ):
                link = self._links[session] = AgentLink(connection_id, session, control, trio.current_time())
                try:
                    control.tell(lambda machine: machine.send_hello(self._hello(connection_id), trio.current_time()))
                    await self._follow(link)
                finally:
                    link.reset()
        finally:
            self._links.pop(session, None)
            with trio.move_on_after(CLOSE_TIMEOUT) as scope:
                scope.shield = True
                await session.aclose()

    async def _follow(self, link: AgentLink) -> None:
        while True:
            event = await link.control.next_event()
            if isinstance(event, PeerLeft | PeerSilent | Refused):
                match event:
                    case Refused(ack):
                        self._refused(link.connection_id, ack)
                    case PeerLeft():
                        self._say_ended(link.connection_id, "the router let it go")
                    case PeerSilent():
                        self._say_ended(link.connection_id, "nothing was heard of the router")
                return
            self._hear(link, event, trio.current_time())
            self._news.set()

    def _say_ended(self, connection_id: str, reason: object) -> None:
        """Nothing to worry about, as long as there are others."""
        others = [link for link in self._links.values() if link.joined.is_set() and link.connection_id != connection_id]
        level = logging.INFO if others else logging.WARNING
        logger.log(level, "connection ended", extra={"connection": connection_id, "reason": reason})

    def _refused(self, connection_id: str, ack: Ack) -> None:
        codes = [problem.code for problem in ack.errors]
        reasons = " ".join(f"{problem.name}={problem.code}" for problem in ack.errors)
        logger.warning("connection refused", extra={"connection": connection_id, "reason": reasons or "not said"})
        failure = Failure.AUTH if any(code in _CREDENTIAL_CODES for code in codes) else Failure.REFUSED
        self._fail(connection_id, failure, ack.retry_after_ms / 1000)

    def _hear(self, link: AgentLink, event: Event, now: float) -> None:
        match event:
            case Joined(ack):
                logger.info("connected", extra={"connection": link.connection_id, "router": ack.server_node_id})
                self.controller.joined(link.connection_id, ack, now)
                link.ack = ack
                link.joined.set()
            case MetadataAcknowledged(ack):
                link.ack = ack
                self.controller.acknowledged(link.connection_id, ack, now)
            case DrainReceived(drain):
                timeout, retry_after = drain.deadline_ms / 1000, drain.retry_after_ms / 1000
                extra = {"connection": link.connection_id, "reason": drain.reason, "retry_after": retry_after}
                if link.connection_id in self.controller.active:  # it says so twice
                    logger.info("the router lets a connection go", extra=extra)
                self.controller.goaway(link.connection_id, drain.reason, now, timeout, retry_after)
            case Drained():
                self.controller.drained(link.connection_id, now)
            case DrainExpired(stream_ids):
                link.reset(stream_ids)
            case _:
                pass

    def _hello(self, connection_id: str) -> Hello:
        settings = self.settings
        return Hello(
            agent_id=settings.agent_id,
            instance_id=settings.instance.instance_id,
            connection_id=connection_id,
            node_id=settings.node_id,
            epoch=ConnEpoch(1),  # of a connection that nobody has heard of
            revision=1,
            boot=settings.instance.boot,
            items=settings.items,
            capabilities=settings.capabilities,
        )

    def _link(self, connection_id: str) -> AgentLink | None:
        return next((link for link in self._links.values() if link.connection_id == connection_id), None)

    def _look(self, now: float) -> None:
        for link in self._links.values():
            link.look(now)
            if now >= self.controller.deadline:
                self.controller.report(link.connection_id, link.report(now))

    def _send_stats(self) -> None:
        scaling = self._scaling()
        for link in self._links.values():
            if link.joined.is_set() and not link.control.machine.is_finished:
                link.tell_stats(scaling)

    def _scaling(self) -> Scaling | None:
        """The last decision that was one, or the last evaluation; None before the first."""
        records, counts = self.controller.scaler.records, self.controller.scaler.counts
        if not records:
            return None
        last = next((one for one in reversed(records) if one.decision is not Decision.HOLD), records[-1])
        so_far = counts[Decision.SCALE_UP], counts[Decision.SCALE_DOWN], counts[Decision.REJECTED]
        return Scaling(last.decision, last.reason, self.controller.count, self.controller.ceiling, *so_far)


def _failure_of(exc: Exception) -> Failure:
    match exc:
        case RejectedError(code=ErrorCode.GATED):
            return Failure.AUTH
        case RejectedError():
            return Failure.REFUSED
        case _:
            return Failure.NETWORK
