"""A tunnel through an outbound proxy, as a plain stream of bytes."""

import operator
import ssl
from http import HTTPStatus

import trio

from agentmesh.errors import ProxyError, RemoteProtocolError
from agentmesh.runtime.guard import Guard
from agentmesh.transports.proxy import Proxy
from agentmesh.transports.proxy_connect import ConnectExchange, Established

ANSWER_TIMEOUT = 10.0  # seconds that the proxy has to reach the target and to answer, with TLS to itself before that
READ_BYTES = 4 * 1024

# Another time, or another target, may do: timeouts, too many requests, targets that the proxy did not reach.
PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})

Data = bytes | bytearray | memoryview


class TunnelStream(trio.abc.Stream):
    """What the proxy carries, from the first byte behind its answer on.

    It cannot be closed by halves: a proxy ends the tunnel when either side ends (RFC 9110, 9.3.6).

    Args:
        carrier: the connection to the proxy.
        received: bytes of the target's that were read from it already.
    """

    def __init__(self, carrier: trio.abc.Stream, received: bytes) -> None:
        self._carrier = carrier
        self._received = received
        self._receiving = Guard("receiving")

    async def send_all(self, data: Data) -> None:
        await self._carrier.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._carrier.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        if not self._received:
            return await self._carrier.receive_some(max_bytes)
        size = len(self._received) if max_bytes is None else operator.index(max_bytes)
        if size < 1:
            raise ValueError("max_bytes must be at least 1")
        with self._receiving:
            await trio.lowlevel.checkpoint()
            data, self._received = self._received[:size], self._received[size:]
        return data or await self._carrier.receive_some(max_bytes)

    async def aclose(self) -> None:
        self._received = b""
        await self._carrier.aclose()


async def open_tunnel(tcp: trio.abc.Stream, proxy: Proxy, target: str) -> TunnelStream:
    """Have the proxy at the other end of `tcp` lead on to a target.

    Args:
        tcp: closed with the tunnel, and at once when there will be none.
        proxy: what is there.
        target: `host:port`, for the proxy to look up.
    Raises:
        ProxyError: it does not.
    Cancellation: closes `tcp`.
    """
    try:
        with trio.move_on_after(ANSWER_TIMEOUT):
            return await _ask(tcp, proxy, target)
        raise no_tunnel(proxy, target, "no answer in time", retryable=True)
    except BaseException:
        await trio.aclose_forcefully(tcp)
        raise


def no_tunnel(
    proxy: Proxy, target: str, reason: object, *, status: int | None = None, retryable: bool = False
) -> ProxyError:
    """The error for a proxy that does not lead to a target."""
    return ProxyError(f"no way to {target} through the proxy {proxy}: {reason}", status=status, retryable=retryable)


async def _ask(tcp: trio.abc.Stream, proxy: Proxy, target: str) -> TunnelStream:
    exchange = ConnectExchange(target, proxy.authorization)
    try:
        carrier = tcp if proxy.tls is None else await _secure(tcp, proxy, proxy.tls)
        await carrier.send_all(exchange.data_to_send())
        answer = None
        while answer is None:
            data = await carrier.receive_some(READ_BYTES)
            if not data:
                raise no_tunnel(proxy, target, "it hung up", retryable=True)
            answer = exchange.receive_data(bytes(data))
    except trio.BrokenResourceError as exc:
        reason = exc.__cause__ or exc
        raise no_tunnel(proxy, target, reason, retryable=not isinstance(reason, ssl.SSLError)) from exc
    except RemoteProtocolError as exc:
        raise no_tunnel(proxy, target, exc) from exc
    if isinstance(answer, Established):
        return TunnelStream(carrier, answer.received)
    status = answer.status
    raise no_tunnel(proxy, target, f"it answers {_named(status)}", status=status, retryable=status in PASSING)


async def _secure(tcp: trio.abc.Stream, proxy: Proxy, context: ssl.SSLContext) -> trio.abc.Stream:
    tls = trio.SSLStream(tcp, context, server_hostname=proxy.host, https_compatible=True)
    await tls.do_handshake()
    return tls


def _named(status: int) -> str:
    """With the phrase that belongs to it: what the proxy says of it may be anything."""
    known = {member.value: member.phrase for member in HTTPStatus}
    return f"{status} {known.get(status, '')}".rstrip()
