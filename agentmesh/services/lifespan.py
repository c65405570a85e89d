"""Start and stop an ASGI application around the time it is served (the ASGI specification's "lifespan")."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import trio

from agentmesh.errors import ServiceError
from agentmesh.protocols.http import ASGIApp, Message, Receive, Scope, Send
from agentmesh.runtime.nursery import open_background

START_TIMEOUT = 60.0  # seconds
STOP_TIMEOUT = 30.0  # seconds


@asynccontextmanager
async def running(app: ASGIApp) -> AsyncGenerator[ASGIApp]:
    """Run `app`'s lifespan around the block; the block serves what it is given.

    An application that knows no lifespan (it raises, or returns, before it has started) is served all the same, as ASGI
    asks.

    Yields:
        `app`, with the state that its lifespan left in each request's `scope["state"]`.
    Raises:
        ServiceError: it said that it failed to start or to stop, or took longer than START_TIMEOUT or STOP_TIMEOUT.
        ExceptionGroup: what its lifespan raised once it had started.
    Cancellation: its lifespan is cancelled with the block, without the message that would ask it to stop.
    """
    lifespan = _Lifespan(app)
    async with open_background() as nursery:
        nursery.start_soon(lifespan.run)
        await lifespan.start()
        yield lifespan.serve
        await lifespan.stop()


class _Lifespan:
    """One application's lifespan: the messages to it, and what it answered."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._state: dict[str, Any] = {}
        self._failure: str | None = None
        self._cause: Exception | None = None
        self._started = trio.Event()
        self._stopped = trio.Event()
        self._asking, self._asked = trio.open_memory_channel[Message](2)

    async def run(self) -> None:
        scope: Scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": self._state}
        try:
            await self._app(scope, self._asked.receive, self._send)
        except Exception as exc:  # ASGI: whatever it raises before it has started, it is served without a lifespan
            self._cause = exc
            if self._started.is_set() and self._failure is None:
                raise
        finally:
            self._started.set()
            self._stopped.set()

    async def start(self) -> None:
        await self._ask("lifespan.startup", self._started, START_TIMEOUT)

    async def stop(self) -> None:
        await self._ask("lifespan.shutdown", self._stopped, STOP_TIMEOUT)

    async def _ask(self, question: str, answered: trio.Event, seconds: float) -> None:
        self._asking.send_nowait({"type": question})
        with trio.move_on_after(seconds) as timeout:
            await answered.wait()
        if timeout.cancelled_caught:
            raise ServiceError(f"no answer to {question} within {seconds} s")
        if self._failure is not None:
            raise ServiceError(self._failure) from self._cause

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The application, for one request."""
        await self._app({**scope, "state": dict(self._state)}, receive, send)

    async def _send(self, message: Message) -> None:
        match message["type"]:
            case "lifespan.startup.complete":
                self._started.set()
            case "lifespan.shutdown.complete":
                self._stopped.set()
            case "lifespan.startup.failed" | "lifespan.shutdown.failed" as kind:
                self._failure = f"{kind}: {message.get('message', '')}"
                self._started.set()
                self._stopped.set()
            case other:
                raise ServiceError(f"no answer to a lifespan: {other!r}")
        await trio.lowlevel.checkpoint()
