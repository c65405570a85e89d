"""The life of one member: it joins, calls a service until it is answered, and stays."""

import math
from collections.abc import Callable, Mapping
from typing import Protocol, cast

import attrs
import httpx
import trio

from agentmesh.bench.tally import News
from agentmesh.errors import MeshError
from agentmesh.membership import Enrollment
from agentmesh.node import Node, NodeConfig, run_node
from agentmesh.protocols.http import ERROR_HEADER

CALL_TIMEOUT = 30.0  # seconds for one call
CALL_RETRY = 1.0  # seconds between two tries
SERVER_ERRORS = 500  # a lower status is the service's answer
MESH_ERROR = ERROR_HEADER.decode("ascii")


class Tell(Protocol):
    """Take down what a member says of itself. Nothing more of one that ended."""

    def __call__(self, news: News, took: float = 0.0, why: str = "") -> None: ...


@attrs.frozen
class Plan:
    """What the members of a run have in common.

    Attributes:
        control_plane: its URL.
        token: a bootstrap token that admits them all.
        routers, selector, prefer: as of a NodeConfig.
        service: TYPE/NAME of what each calls once it is ready; None: nothing.
        count: how many there are of all processes together.
        ramp: how many start in a second; 0 has all start at once.
        join_timeout: seconds that one has to become ready, and then to be answered.
        began: when the first starts, on the clock that all processes share.
        first, step: which of them are this process's.
    """

    control_plane: str
    token: str = attrs.field(repr=False)
    routers: int
    selector: Mapping[str, str]
    prefer: Mapping[str, str]
    service: str | None
    count: int
    ramp: float
    join_timeout: float
    began: float = 0.0
    first: int = 0
    step: int = 1

    @property
    def numbers(self) -> range:
        """Of this process's members."""
        return range(self.first, self.count, self.step)

    def starts_at(self, number: int) -> float:
        """When a member starts."""
        return self.began + (number / self.ramp if self.ramp else 0.0)

    def config(self) -> NodeConfig:
        enrollment = Enrollment(
            control_plane=self.control_plane, token=self.token, retry_budget=max(self.join_timeout, 1.0)
        )
        return NodeConfig(
            enrollment=enrollment,
            routers=self.routers,
            router_selector=self.selector,
            router_prefer=self.prefer,
            ready_timeout=0.0,
        )


async def live(plan: Plan, tell: Tell, clock: Callable[[], float]) -> None:
    """Join and stay, until cancelled; or until it cannot be ready, or stay, and that is told.

    Args:
        clock: seconds that all processes share.
    """
    started = clock()
    try:
        with trio.CancelScope(deadline=trio.current_time() + plan.join_timeout) as scope:
            async with run_node(plan.config()) as node:
                await node.wait_ready()
                tell(News.READY, clock() - started)
                scope.deadline = math.inf
                await _stay(node, plan, tell, clock)
        if scope.cancelled_caught:
            tell(News.ENDED, why=f"not ready in {plan.join_timeout:.0f} s")
    except* (MeshError, OSError, trio.BrokenResourceError, trio.ClosedResourceError) as group:
        tell(News.ENDED, why=describe(group))


async def _stay(node: Node, plan: Plan, tell: Tell, clock: Callable[[], float]) -> None:
    ready = True

    def look() -> None:
        nonlocal ready
        if bool(node.routers) is not ready:
            ready = not ready
            tell(News.BACK if ready else News.LOST)

    node.attachments.on_change(look)
    look()
    if plan.service is not None:
        since = clock()
        with trio.move_on_after(plan.join_timeout) as calling:
            await _call_until_answered(node, plan.service, tell)
            tell(News.CALLED, took=clock() - since)
        if calling.cancelled_caught:
            tell(News.ENDED, why=f"no answer in {plan.join_timeout:.0f} s")
            return
    await trio.sleep_forever()


async def _call_until_answered(node: Node, service: str, tell: Tell) -> None:
    kind, _, name = service.partition("/")
    async with node.http_client(timeout=CALL_TIMEOUT) as client:
        while (why := await _call(client, f"http://{name}.{kind}.mesh/")) is not None:
            tell(News.CALL_FAILED, why=why)
            await trio.sleep(CALL_RETRY)


async def _call(client: httpx.AsyncClient, url: str) -> str | None:
    """Why a call was not answered; None: it was, whatever follows the answer's head."""
    try:
        async with client.stream("GET", url) as answer:
            status, error = answer.status_code, answer.headers.get(MESH_ERROR)
    except (httpx.HTTPError, MeshError) as exc:
        return describe(exc)
    if error is not None:
        return f"{status} {error}"
    return str(status) if status >= SERVER_ERRORS else None


def describe(exc: BaseException) -> str:
    """The first error in it, in one line."""
    while isinstance(exc, BaseExceptionGroup):
        exc = cast("BaseExceptionGroup[BaseException]", exc).exceptions[0]
    return f"{type(exc).__name__}: {exc}"
