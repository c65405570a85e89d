"""How long requests of the local API take, by route; how many are under way, and of whom."""

from collections.abc import Generator
from contextlib import contextmanager

import attrs
import trio

from agentmesh.local.discover import PATH as DISCOVER_PATH
from agentmesh.local.proxy import PREFIX
from agentmesh.node.figures import OTHER_ROUTE, ApiFigures
from agentmesh.protocols.http import ASGIApp, Message, Receive, Scope, Send

ROUTES = {
    b"/healthz": "health",
    b"/readyz": "health",
    b"/mcp": "mcp",
    b"/v1/models": "models",
    b"/v1/chat/completions": "completions",
    b"/v1/completions": "completions",
    DISCOVER_PATH.encode(): "service-registry",
}
BROKEN = 500  # counted for a request that ended without an answer
MAX_AGENT_CHARACTERS = 100


def route_of(path: bytes) -> str:
    """What a path is counted by."""
    return ROUTES.get(path, "egress" if path.startswith(PREFIX) else OTHER_ROUTE)


def agent_of(scope: Scope) -> str:
    """The first word of the User-Agent: which program that is; "" when it does not say."""
    said: list[bytes] = [value for name, value in scope["headers"] if name == b"user-agent"]
    words = b" ".join(said).decode("latin-1").split(maxsplit=1)
    return words[0][:MAX_AGENT_CHARACTERS] if words else ""


@attrs.frozen
class Measured:
    """An ASGI application whose requests are counted."""

    app: ASGIApp
    figures: ApiFigures

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if agent := agent_of(scope):
            self.figures.asked_by(agent)
        with self._under_way(route_of(scope["raw_path"])) as answer:

            async def send_on(message: Message) -> None:
                if message["type"] == "http.response.start" and message["status"] >= 200:
                    answer.began(message["status"])
                await send(message)

            await self.app(scope, receive, send_on)

    @contextmanager
    def _under_way(self, route: str) -> Generator["_Answer"]:
        answer = _Answer(self.figures, route, trio.current_time())
        self.figures.in_flight += 1
        try:
            yield answer
        finally:
            self.figures.in_flight -= 1
            self.figures.answered(route, answer.status, trio.current_time() - answer.since)


@attrs.define
class _Answer:
    """What becomes of one request."""

    figures: ApiFigures
    route: str
    since: float
    status: int = BROKEN

    def began(self, status: int) -> None:
        self.status = status
        self.figures.first_byte[self.route].add(trio.current_time() - self.since)
