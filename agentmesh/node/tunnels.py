"""Tunnels: bytes to and from a target beside an agent, by way of a router that the node is attached to."""

import ipaddress
import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Self

import attrs
import trio

from agentmesh.abc import Stream
from agentmesh.errors import AddressError, DialError, NotConnectedError
from agentmesh.protocols.pool import DIAL_ID, Code, Open, OpenResult, Stage, open_target
from agentmesh.protocols.pool.fields import is_identifier
from agentmesh.runtime.host import Host
from agentmesh.types import PeerId, ascii_name

TUNNEL_BUDGET = 25.0  # seconds for a tunnel, over all routers
ROUTER_TIMEOUT = 10.0  # seconds that one router has: it tries connections of the agent for 8, and the way takes some
SCHEME = "tcp"
MAX_HOST_CHARS = 253

_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_])?\.?")
_ELSEWHERE = frozenset({Stage.SELECTION, Stage.RELAY, Stage.PROTOCOL})


@attrs.frozen
class TunnelTarget:
    """Where a tunnel leads: a port of a host, as the agent sees it.

    Attributes:
        host: a name in ASCII and in lower case, or an IP address.
        port: from 1 to 65535.
    """

    host: str
    port: int

    @classmethod
    def of(cls, host: str, port: int) -> Self:
        """Raises AddressError when that is no host or no port."""
        if not 0 < port < 65536:
            raise AddressError(f"{port} is no port")
        return cls(_host(host), port)

    @classmethod
    def parse(cls, text: str) -> Self:
        """`tcp://host:port`, an IPv6 address in brackets or not. Raises AddressError."""
        scheme, separator, rest = text.partition("://")
        host, colon, port = rest.rpartition(":")
        if scheme.lower() != SCHEME or not separator or not colon or not re.fullmatch("[0-9]{1,5}", port):
            raise AddressError(f"{text[:200]!r} is no target, such as {SCHEME}://db.internal:5432")
        return cls.of(host.removeprefix("[").removesuffix("]"), int(port))

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{SCHEME}://{host}:{self.port}"


class TunnelError(DialError):
    """There is no tunnel. No byte has left for the target.

    Attributes:
        result: how far it got and what was wrong, as the agent or a router said it: `stage` and `code`.
        trace_id: under which the routers that chose a connection recorded it.
    """

    def __init__(self, agent: str, target: TunnelTarget, result: OpenResult, trace_id: str = "") -> None:
        super().__init__(f"no tunnel to {target} by agent {agent!r}: {reason_of(result)}")
        self.result = result
        self.trace_id = trace_id

    @property
    def retryable(self) -> bool:
        """Whether the same tunnel may come about later."""
        return self.result.retryable

    @property
    def retry_after(self) -> float | None:
        """Seconds until it is worth trying, if that was said."""
        return self.result.retry_after_ms / 1000 if self.result.retry_after_ms else None


class Tunnels:
    """Opens tunnels by the routers of a node.

    Args:
        host: the node's.
        routers: those it is attached to now, the first to be asked first.
        rng: makes the IDs of traces.
    """

    def __init__(self, host: Host, routers: Callable[[], Sequence[PeerId]], rng: Random) -> None:
        self._host = host
        self._routers = routers
        self._rng = rng

    async def open(self, agent: str, target: TunnelTarget) -> Stream:
        """Open a tunnel. A router that is gone, does not answer, or has no way to the agent is followed by the next.

        Args:
            agent: the agent's ID.
            target: where the agent is to connect.
        Returns:
            The stream, the caller's to close; its bytes are the target's.
        Raises:
            TunnelError: there is no tunnel, and `result` says why.
            NotConnectedError: this node is attached to no router.
            AddressError: no agent can be called so.
        Cancellation: safe; no tunnel is left.
        """
        if not is_identifier(agent):
            raise AddressError(f"{agent[:200]!r} is no agent's ID")
        trace_id = f"{self._rng.getrandbits(64):016x}"
        asked = Open(agent, SCHEME, target.host, target.port, trace_id=trace_id)
        give_up_at, results = trio.current_time() + TUNNEL_BUDGET, list[OpenResult]()
        for router in self._routers():
            left = give_up_at - trio.current_time()
            session = self._host.session(router)
            if session is None or left <= 0:
                continue
            opening = await open_target(session, asked, min(ROUTER_TIMEOUT, left), DIAL_ID)
            if opening.stream is not None:
                return opening.stream
            results.append(opening.result)
            if not _may_differ_elsewhere(opening.result):
                break
        if not results:
            raise NotConnectedError("this node is attached to no router")
        raise TunnelError(agent, target, _most_telling(results), trace_id)


def reason_of(result: OpenResult) -> str:
    """What an open failed for, in words, with the stage and the code."""
    words = _WORDS.get((result.stage, result.code)) or _WORDS_OF_CODES[result.code]
    later = f", worth trying again in {result.retry_after_ms / 1000:g} s" if result.retry_after_ms else ""
    return f"{words} ({result.stage}: {result.code}{later})"


def _may_differ_elsewhere(result: OpenResult) -> bool:
    """Whether another router may do better: what was wrong is neither the target's fault nor this member's."""
    is_silence = (result.stage, result.code) == (Stage.QUEUE, Code.TIMEOUT)
    return result.retryable and (is_silence or result.stage in _ELSEWHERE)


def _most_telling(results: Sequence[OpenResult]) -> OpenResult:
    """The last answer; that a router is gone says least."""
    gone = (Stage.RELAY, Code.NETWORK_UNREACHABLE)
    return next((one for one in reversed(results) if (one.stage, one.code) != gone), results[-1])


def _host(text: str) -> str:
    """A name as DNS has it, or an IP address in its usual spelling."""
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        pass
    try:
        name = text.lower() if text.isascii() else ascii_name(text)
    except UnicodeError:
        name = ""
    if len(name) > MAX_HOST_CHARS or not _NAME.fullmatch(name):
        raise AddressError(f"{text[:200]!r} is no host")
    return name


_WORDS_OF_CODES: dict[Code, str] = {
    Code.OK: "accepted",
    Code.FORBIDDEN: "the policy of the mesh does not allow it to this member",
    Code.AGENT_OFFLINE: "no such agent is connected now",
    Code.QUEUE_FULL: "the agent or the router takes no more now",
    Code.TIMEOUT: "no answer in time",
    Code.NETWORK_UNREACHABLE: "the target's network cannot be reached",
    Code.HOST_UNREACHABLE: "the target's host cannot be reached",
    Code.CONNECTION_REFUSED: "the target refuses connections",
    Code.UNSUPPORTED_CAPABILITY: "the router or the agent does not know such tunnels",
    Code.INTERNAL_ERROR: "something went wrong there",
}
_WORDS: dict[tuple[Stage, Code], str] = {
    (Stage.AUTHORIZATION, Code.INTERNAL_ERROR): "the router has not read the policy of the mesh yet",
    (Stage.SELECTION, Code.INTERNAL_ERROR): "the routers' registry does not answer",
    (Stage.POLICY, Code.FORBIDDEN): "the rules of the agent do not allow it",
    (Stage.RELAY, Code.NETWORK_UNREACHABLE): "the router is gone, or cannot reach the agent's",
    (Stage.DNS, Code.HOST_UNREACHABLE): "the agent finds no such host",
    (Stage.DNS, Code.TIMEOUT): "the agent's lookup of the name took too long",
    (Stage.CONNECT, Code.TIMEOUT): "the target does not answer",
}
