"""One signed request and its answer: retries, the size of an answer, a clock that is off."""

import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime
from random import Random

import attrs
import httpx
import trio

from agentmesh.control_plane.backoff import Backoff, Retries
from agentmesh.control_plane.errors import (
    ControlPlaneError,
    ControlPlaneUnavailableError,
    RequestRefusedError,
    UnauthorizedError,
)
from agentmesh.errors import LimitExceededError, RemoteProtocolError
from agentmesh.transports.proxy import ProxyRules
from agentmesh.trust import shared_trust

logger = logging.getLogger(__name__)

MAX_ANSWER_BYTES = 8 * 1024 * 1024
MAX_REASON_CHARACTERS = 300
ATTEMPT_TIMEOUT = 30.0  # seconds, from connecting to the last byte
CONNECT_TIMEOUT = 10.0  # seconds
STALE = "stale or invalid challenge timestamp"

PORTS = {"http": 80, "https": 443}  # of a URL that names none

_LATER = frozenset({408, 425, 429, 500, 502, 503, 504})


@attrs.frozen
class Outgoing:
    """A request, signed."""

    method: str
    path: str
    body: bytes = attrs.field(default=b"", repr=False)
    headers: Mapping[str, str] = attrs.field(factory=dict[str, str], repr=False)
    params: Mapping[str, str] = attrs.field(factory=dict[str, str])


@attrs.frozen
class _Answer:
    status: int
    body: bytes = attrs.field(repr=False)
    date: float | None  # wall-clock seconds
    retry_after: float | None  # seconds

    @property
    def reason(self) -> str:
        text = self.body[: 4 * MAX_REASON_CHARACTERS].decode(errors="replace").strip()
        printable = "".join(c if c.isprintable() else " " for c in text)
        return printable[:MAX_REASON_CHARACTERS] or f"HTTP status {self.status}"


class Exchange:
    """Sends requests to one control plane.

    Args:
        http: knows the base URL.
        wall_clock: gives the seconds since 1970.
        rng: for jitter.
    """

    def __init__(self, http: httpx.AsyncClient, wall_clock: Callable[[], float], rng: Random, backoff: Backoff) -> None:
        self._http, self._wall_clock, self._rng, self._backoff = http, wall_clock, rng, backoff
        self._offset = 0.0  # seconds that the control plane's clock is ahead of ours
        self._last_ms = 0

    def now(self) -> float:
        """Wall-clock seconds by the control plane's clock, as far as we know it."""
        return self._wall_clock() + self._offset

    async def call(self, sign: Callable[[int], Outgoing]) -> bytes:
        """Send what `sign(unix_ms)` makes until it is answered; give the body.

        Raises:
            RequestRefusedError: the answer is no.
            ControlPlaneUnavailableError: the budget is spent.
            RemoteProtocolError: the answer is too long, or compressed.
        Cancellation: safe; whether the control plane got the request is not known then.
        """
        retries = Retries(self._backoff, self._rng, trio.current_time())
        outgoing, corrected = sign(self._next_ms()), False
        while True:
            answer = await self._attempt(outgoing)
            if isinstance(answer, _Answer):
                if answer.status in range(200, 300):
                    return answer.body
                if _is_stale(answer) and answer.date is not None and not corrected:
                    self._offset, corrected = answer.date - self._wall_clock(), True
                    outgoing = sign(self._next_ms())
                    continue
                if answer.status not in _LATER:
                    raise _refusal(answer)
            await self._wait(retries, answer)

    async def _wait(self, retries: Retries, failed: "_Answer | httpx.HTTPError | trio.TooSlowError") -> None:
        answer = failed if isinstance(failed, _Answer) else None
        reason = answer.reason if answer else str(failed) or type(failed).__name__
        url = self._http.base_url.copy_with(userinfo=b"")
        wait = retries.next_wait(trio.current_time(), answer.retry_after if answer else None)
        if wait is None:
            cause = failed if isinstance(failed, Exception) else None
            status = answer.status if answer else None
            raise ControlPlaneUnavailableError(
                f"the control plane at {url} does not answer: {reason}", status
            ) from cause
        # Without this, whoever mistyped the URL waits in silence until the budget is spent.
        logger.warning(
            "the control plane does not answer", extra={"url": url, "reason": reason, "retry_in": f"{wait:.1f}s"}
        )
        await trio.sleep(wait)

    async def _attempt(self, outgoing: Outgoing) -> "_Answer | httpx.TransportError | trio.TooSlowError":
        try:
            with trio.fail_after(ATTEMPT_TIMEOUT):
                return await self._send(outgoing)
        except (httpx.TransportError, trio.TooSlowError) as exc:
            return exc

    async def _send(self, outgoing: Outgoing) -> _Answer:
        request = self._http.build_request(
            outgoing.method,
            outgoing.path,
            content=outgoing.body or None,
            params=dict(outgoing.params) or None,
            headers={"Accept-Encoding": "identity", **outgoing.headers},
        )
        response = await self._http.send(request, stream=True)
        try:
            body = await _read_bounded(response)
        finally:
            await response.aclose()
        date, retry_after = response.headers.get("date"), response.headers.get("retry-after")
        return _Answer(response.status_code, body, _instant(date), _seconds(retry_after))

    def _next_ms(self) -> int:
        # No two requests of ours bear the same instant: the control plane takes the same one again for a resend.
        self._last_ms = max(self._last_ms + 1, round(self.now() * 1000))
        return self._last_ms


async def _read_bounded(response: httpx.Response) -> bytes:
    if response.headers.get("content-encoding", "identity") != "identity":
        raise RemoteProtocolError("the control plane's answer is compressed, which we did not ask for")
    body = bytearray()
    with trio.CancelScope() as scope:
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > MAX_ANSWER_BYTES:
                scope.cancel()  # and not an exception: the iterators below are to be unwound from the innermost out
    if len(body) > MAX_ANSWER_BYTES:
        raise LimitExceededError(f"the control plane's answer is over {MAX_ANSWER_BYTES} bytes")
    return bytes(body)


@asynccontextmanager
async def open_http(
    url: str, transport: httpx.AsyncBaseTransport | None = None, proxies: ProxyRules | None = None
) -> AsyncGenerator[httpx.AsyncClient]:
    """An HTTP client for one base URL.

    Args:
        url: the base.
        transport: instead of the network.
        proxies: what is reached through which proxy; what the environment says now if it is None.
    Raises:
        ValueError: `url` is no HTTP URL.
        AddressError: the environment names a proxy that is none. (It is a ValueError too.)
    """
    try:
        base = httpx.URL(url)
    except httpx.InvalidURL as exc:
        raise ValueError(f"not a URL: {url!r}") from exc
    if base.scheme not in PORTS or not base.host:
        raise ValueError(f"not an HTTP URL: {url!r}")
    timeout = httpx.Timeout(ATTEMPT_TIMEOUT, connect=CONNECT_TIMEOUT)
    async with httpx.AsyncClient(
        base_url=base, transport=transport or _outbound(base, proxies), timeout=timeout
    ) as http:
        yield http


def _outbound(base: httpx.URL, proxies: ProxyRules | None) -> httpx.AsyncBaseTransport:
    """The network. httpx has its own reading of NO_PROXY, in which there are no networks."""
    host, port = base.raw_host.decode(), base.port or PORTS[base.scheme]
    proxies = ProxyRules.from_environment(base.scheme) if proxies is None else proxies
    proxy = proxies.proxy_for(host, port)
    through = None if proxy is None else httpx.Proxy(str(proxy), ssl_context=proxy.tls, auth=proxy.credentials)
    return httpx.AsyncHTTPTransport(verify=shared_trust(httpx.create_ssl_context), proxy=through)


def _is_stale(answer: _Answer) -> bool:
    return answer.status == 401 and STALE in answer.reason


def _refusal(answer: _Answer) -> ControlPlaneError:
    kind = UnauthorizedError if answer.status == 401 else RequestRefusedError
    return kind(f"the control plane refuses: {answer.reason}", answer.status)


def _instant(text: str | None) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp() if text else None
    except ValueError:
        return None


def _seconds(text: str | None) -> float | None:
    return float(text) if text and text.isdecimal() else None
