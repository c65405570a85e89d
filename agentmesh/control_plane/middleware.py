"""What every request passes: the clock in the Date header, browsers, the count."""

from collections.abc import Callable, Collection, Mapping
from email.utils import formatdate

import trio
from starlette.datastructures import MutableHeaders
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agentmesh.control_plane.metrics import OTHER_ROUTE, Metrics


class Dated:
    """Says our own clock in the Date header: a member whose clock is off corrects it by that.

    Args:
        wall_clock: gives the seconds since 1970.
    """

    def __init__(self, app: ASGIApp, wall_clock: Callable[[], float]) -> None:
        self._app, self._wall_clock = app, wall_clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_dated(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["Date"] = formatdate(self._wall_clock(), usegmt=True)
            await send(message)

        await self._app(scope, receive, send_dated)


class OpenToBrowsers:
    """Lets pages of any origin call `paths`, and read the Date of the answer."""

    def __init__(self, app: ASGIApp, paths: Collection[str]) -> None:
        self._app, self._paths = app, frozenset(paths)
        self._open = CORSMiddleware(
            app, allow_origins=["*"], allow_methods=["GET", "POST"], allow_headers=["*"], expose_headers=["Date"]
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self._open if scope.get("path") in self._paths else self._app)(scope, receive, send)


class Counted:
    """Counts requests by route and status.

    Args:
        routes: the path of each endpoint.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, routes: Mapping[object, str]) -> None:
        self._app, self._metrics, self._routes = app, metrics, routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        began, code = trio.current_time(), 500  # if it raises before it answers

        async def send_noted(message: Message) -> None:
            nonlocal code
            if message["type"] == "http.response.start":
                code = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, send_noted)
        finally:
            route = self._routes.get(scope.get("endpoint"), OTHER_ROUTE)
            self._metrics.answered(route, code, trio.current_time() - began)
