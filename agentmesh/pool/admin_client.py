"""A router's admin API about agents: where it is, and what an operator's programs call it with."""

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import httpx
import trio

from agentmesh.control_plane.exchange import MAX_ANSWER_BYTES, MAX_REASON_CHARACTERS, open_http
from agentmesh.errors import LimitExceededError, MeshError, RemoteProtocolError

PREFIX = "/api/v1/agents"
HEARTBEAT_INTERVAL = 15.0  # seconds in which nothing happens, after which a listener is told that the router is there
CALL_TIMEOUT = 30.0  # seconds for one call
SILENCE = 3 * HEARTBEAT_INTERVAL  # seconds without a word, after which a stream of events is taken for dead
MAX_LINE_CHARACTERS = 65_536

Tell = Callable[[str, dict[str, Any]], bool]


class RouterAdminError(MeshError):
    """A call failed.

    Attributes:
        status: of the HTTP answer, or None when there was none.
        problem: what the answer says, by name.
    """

    def __init__(self, message: str, status: int | None = None, problem: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.status, self.problem = status, problem or {}


class RouterAdmin:
    """Calls one router. Made by `open_router_admin`. Every call is tried once.

    It raises RouterAdminError when the router says no or does not answer, and RemoteProtocolError when what answers is
    no router.
    """

    def __init__(self, http: httpx.AsyncClient, token: str) -> None:
        self._http, self._headers = http, {"Authorization": f"Bearer {token}", "Accept-Encoding": "identity"}

    async def call(self, method: str, path: str = "", **query: str) -> Any:
        """Send a request; give what the answer says.

        Args:
            path: behind that of the agents.
        """
        outgoing = self._http.build_request(method, PREFIX + path, params=query, headers=self._headers)
        try:
            with trio.fail_after(CALL_TIMEOUT):
                response = await self._http.send(outgoing)
        except (httpx.TransportError, trio.TooSlowError) as exc:
            raise self._unanswered(exc) from exc
        if len(response.content) > MAX_ANSWER_BYTES:
            raise LimitExceededError(f"the router's answer is over {MAX_ANSWER_BYTES} bytes")
        said = _json_of(response.content)
        if not response.is_success:
            raise _refusal(response, said)
        if said is None:
            raise RemoteProtocolError("the router's answer is no JSON")
        return said

    async def listen(self, tell: Tell, agent_id: str = "") -> None:
        """Listen to events until `tell` gives False.

        Args:
            tell: is called with the name of each event, and what it says.
            agent_id: only those of this agent.
        Raises:
            RouterAdminError: also when the router ends it.
        Cancellation: safe.
        """
        query = {"agentId": agent_id} if agent_id else {}
        timeout = httpx.Timeout(CALL_TIMEOUT, read=SILENCE)
        try:
            async with self._http.stream(
                "GET", f"{PREFIX}/events", params=query, headers=self._headers, timeout=timeout
            ) as response:
                if not response.is_success:
                    raise _refusal(response, _json_of(await response.aread()))
                if await _hear(response, tell):
                    return
        except httpx.TransportError as exc:
            raise self._unanswered(exc) from exc
        raise RouterAdminError("the router has ended the stream of events")

    def _unanswered(self, exc: Exception) -> RouterAdminError:
        url = self._http.base_url.copy_with(userinfo=b"")
        return RouterAdminError(f"the router at {url} does not answer: {str(exc) or type(exc).__name__}")


async def _hear(response: httpx.Response, tell: Tell) -> bool:
    """Read events. Whether it was `tell` that ended it."""
    name, is_enough = "", False
    with trio.CancelScope() as scope:
        async for line in response.aiter_lines():
            field, _, text = line[:MAX_LINE_CHARACTERS].partition(": ")
            if field == "event":
                name = text
            elif field == "data" and not is_enough:  # there may be more in the piece that was read
                is_enough = not tell(name, _object(_json_of(text.encode())))
            if is_enough:
                scope.cancel()  # and no break: the iterators below are to be unwound from the innermost out
    return is_enough


def _json_of(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return None


def _object(said: object) -> dict[str, Any]:
    return cast("dict[str, Any]", said) if isinstance(said, dict) else {}


def _refusal(response: httpx.Response, said: object) -> RouterAdminError:
    problem = _object(said)
    unknown = f"HTTP status {response.status_code}; is that the admin API of a router?"
    reason = str(problem.get("detail") or unknown)[:MAX_REASON_CHARACTERS]
    printable = "".join(c if c.isprintable() else " " for c in reason)
    return RouterAdminError(f"the router refuses: {printable}", response.status_code, problem)


@asynccontextmanager
async def open_router_admin(
    url: str, token: str, transport: httpx.AsyncBaseTransport | None = None
) -> AsyncGenerator[RouterAdmin]:
    """`async with open_router_admin("http://127.0.0.1:9091", token) as admin:`

    Args:
        url: of the router's admin API.
        token: from the file that it made.
        transport: for tests.
    Raises:
        ValueError: `url` is no HTTP URL.
    """
    async with open_http(url, transport) as http:
        yield RouterAdmin(http, token)
