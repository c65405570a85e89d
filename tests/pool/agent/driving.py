"""A controller and the world around it, for tests: dials succeed or not, connections carry what the test says."""

import itertools
from collections.abc import Callable

import attrs

from agentmesh.pool.agent.config import ConnectionsConfig
from agentmesh.pool.agent.controller import Controller
from agentmesh.pool.agent.orders import Close, CloseReason, Dial, Drain, Order
from agentmesh.pool.agent.scaling import Decision, Record, Report
from agentmesh.protocols.pool import Ack

POOL = Ack("agent", connection_pool_supported=True, max_connections_per_agent=64)
NO_POOL = Ack("agent")


@attrs.define
class World:
    """Carries out what a controller orders.

    Attributes:
        ack: what the next dial is answered.
        load: the report of a connection, by its ID.
    """

    config: ConnectionsConfig = ConnectionsConfig(max=8)
    ack: Ack | None = POOL
    load: Callable[[str], Report] = lambda _: Report()
    chance: Callable[[], float] = lambda: 0.5
    now: float = 0.0
    orders: list[tuple[float, Order]] = attrs.Factory(list[tuple[float, Order]])
    controller: Controller = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        ids = itertools.count(1)
        self.controller = Controller(self.config, lambda: f"c{next(ids)}", self.chance)

    def start(self) -> "World":
        self.controller.start(self.now)
        self.obey()
        return self

    def obey(self) -> None:
        while (order := self.controller.next_order()) is not None:
            self.orders.append((self.now, order))
            if isinstance(order, Dial) and self.ack is not None:
                self.controller.joined(order.connection_id, self.ack, self.now)
            if isinstance(order, Drain) and not self.load(order.connection_id).active_streams:
                self.controller.drained(order.connection_id, self.now)

    def run(self, seconds: float) -> None:
        """Let time pass: at each deadline, report and go on."""
        end = self.now + seconds
        while self.controller.deadline <= end:
            self.now = max(self.controller.deadline, self.now)
            for connection_id in self.controller.active:
                self.controller.report(connection_id, self.load(connection_id))
            self.controller.handle_timeout(self.now)
            self.obey()
        self.now = end

    @property
    def records(self) -> list[Record]:
        return list(self.controller.scaler.records)

    @property
    def last(self) -> Record:
        return self.controller.scaler.records[-1]

    def made(self, decision: Decision) -> list[float]:
        return [record.at for record in self.records if record.decision is decision]

    def of(self, kind: type[Order]) -> list[Order]:
        return [order for _, order in self.orders if isinstance(order, kind)]

    @property
    def closes(self) -> list[tuple[str, CloseReason]]:
        return [(order.connection_id, order.reason) for _, order in self.orders if isinstance(order, Close)]
