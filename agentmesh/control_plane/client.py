"""What members and routers call the control plane with.

Calls are retried on a budget of elapsed time; what is sent again is the same signed request, which the control plane
answers as it did before. A clock that is off is corrected once, by the Date of the control plane's answer.
"""

import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from random import Random, SystemRandom
from typing import TypeVar

import attrs
import betterproto2
import httpx
import trio

from agentmesh.control_plane.backoff import Backoff
from agentmesh.control_plane.errors import EnrollmentRejectedError, UnauthorizedError
from agentmesh.control_plane.exchange import Exchange, Outgoing, open_http
from agentmesh.control_plane.routers import RouterRecord, parse_addresses, peers_in, routers_at, routers_of
from agentmesh.control_plane.signed import Signer
from agentmesh.control_plane.vouching import vouched_keys
from agentmesh.credentials import TrustedKeys
from agentmesh.errors import RemoteProtocolError
from agentmesh.identity import CHALLENGE_WINDOW, Identity
from agentmesh.transports.proxy import ProxyRules
from agentmesh.types import Address, PeerId
from agentmesh.wire.codec import decode
from agentmesh.wire.messages.mesh.v1 import (
    BootstrapEnrollResponse,
    ControlPlaneInfoResponse,
    EnrollmentStatus,
    EnrollResponse,
    KeysResponse,
    PolicyConfigGetResponse,
    RouterLeaseResponse,
    TokenRefreshResponse,
)

MAX_INFO_FIELDS = 200_000  # a field a ban: more than there is room for in an answer
MIN_POLL_INTERVAL = 1.0  # seconds, whatever the control plane says

M = TypeVar("M", bound=betterproto2.Message)


@attrs.frozen
class Issued:
    """A credential that the control plane issued to us."""

    credential: bytes = attrs.field(repr=False)
    expires_at: float  # wall-clock seconds
    control_plane_key: bytes = b""  # 32 bytes, that it was signed with; a refresh does not say
    router_addresses: tuple[Address, ...] = ()  # of the routers that were up; a refresh does not say


@attrs.frozen
class RouterLoad:
    """How busy a router is."""

    connected_peers: int = 0
    directory_size: int = 0  # records
    connections: int = 0  # inbound sessions
    connection_limit: int = 0  # the most that it takes


@attrs.frozen
class MeshInfo:
    """The mesh as the control plane sees it."""

    routers: tuple[RouterRecord, ...]  # that are up
    banned: frozenset[PeerId] = frozenset()
    directory_replication: int | None = None  # routers that are to hold each record; None: it does not say


class ControlPlaneClient:
    """Calls one control plane for one identity. Made by `open_client`.

    Every call raises RequestRefusedError (UnauthorizedError when enrolling again may help),
    ControlPlaneUnavailableError, or RemoteProtocolError when the answer is no answer of a control plane.

    Cancellation: safe. A call that is cancelled may have had its effect.
    """

    def __init__(self, identity: Identity, exchange: Exchange) -> None:
        self._signer, self._exchange = Signer(identity), exchange

    async def enroll(
        self,
        token: str,
        *,
        role: str = "",
        labels: Mapping[str, str] | None = None,
        poll_interval: float | None = None,
    ) -> Issued:
        """Become a member, or get a new credential as one. Waits until an admin has decided, if one has to.

        Args:
            token: a bootstrap token's value.
            role: what we expect the token to be for; empty leaves it to the token.
            labels: what the control plane is to attest.
            poll_interval: seconds between looks at a pending enrollment; None: as the control plane says.
        Raises:
            EnrollmentRejectedError: the token does not admit us, or an admin turned us down.
        """

        answer = await self._call(self._signer.enroll(token, role, labels or {}), BootstrapEnrollResponse)
        while answer.status is EnrollmentStatus.PENDING:
            await trio.sleep(max(MIN_POLL_INTERVAL, poll_interval or answer.poll_interval_seconds))
            answer = await self._call(self._signer.enrollment_status, BootstrapEnrollResponse)
        if answer.status is EnrollmentStatus.REJECTED:
            raise EnrollmentRejectedError(f"not enrolled: {answer.error_message or 'no reason given'}")
        if answer.status is not EnrollmentStatus.APPROVED:
            raise RemoteProtocolError("the control plane's answer has no status")
        return _issued(answer)

    async def register(self, jwt: str, *, role: str = "", labels: Mapping[str, str] | None = None) -> Issued:
        """Become a member on an identity provider's word, or get a new credential as one.

        Args:
            jwt: its token, for the audience of the control plane.
            role: "node" when it is empty.
            labels: what the control plane is to attest.
        """
        return _issued(await self._call(self._signer.register(jwt, role, labels or {}), EnrollResponse))

    async def refresh(self, credential: bytes, *, jwt: str = "") -> Issued:
        """Get a new credential for the last one issued to us. Keep the new one before it is used: it is the last now.

        If another was issued since and never reached us, that one is given.

        Args:
            jwt: what our identity provider says now; "" rests on what it said last.
        Raises:
            UnauthorizedError: it has expired, or the control plane does not know us any more.
        """
        try:
            answer = await self._call(self._signer.refresh(credential, jwt), TokenRefreshResponse)
        except UnauthorizedError as exc:
            return await self._issued_since(credential, exc)
        return Issued(credential=answer.biscuit_token, expires_at=_required(answer.expire_time))

    async def _issued_since(self, credential: bytes, refused: UnauthorizedError) -> Issued:
        """The credential that an earlier call of ours was answered with, if we never got or kept that answer."""
        try:
            answer = await self._call(self._signer.enrollment_status, BootstrapEnrollResponse)
        except UnauthorizedError:
            raise refused from None
        if answer.status is not EnrollmentStatus.APPROVED or answer.biscuit_token == credential:
            raise refused
        issued = _issued(answer)
        if issued.expires_at <= self._exchange.now():
            raise refused
        return issued

    async def renew_lease(
        self,
        credential: bytes,
        addresses: Sequence[Address],
        *,
        load: RouterLoad | None = None,
        ttl: float | None = None,
    ) -> float:
        """As a router, say that we are up.

        Args:
            credential: ours, of a router.
            addresses: where we are dialled; each ends in our own peer ID.
            load: how busy we are.
            ttl: seconds that the lease is to last, if less than the control plane gives; 0 gives it up at once.
        Returns:
            When the lease runs out, in wall-clock seconds of the control plane.
        """
        counts = attrs.asdict(load or RouterLoad())
        counts["dht_size"] = counts.pop("directory_size")
        sign = self._signer.lease(credential, addresses, counts, ttl)
        return _required((await self._call(sign, RouterLeaseResponse)).expire_time)

    async def info(self) -> MeshInfo:
        """The routers that are up, and who is banned: all who are, so whoever is not in it any more is not."""
        body = await self._exchange.call(lambda _: Outgoing("GET", "/info"))
        answer = decode(ControlPlaneInfoResponse, body, MAX_INFO_FIELDS)
        banned = frozenset(peers_in(answer.banned_peer_ids))
        routers = routers_of(answer.routers) or routers_at(answer.router_addresses)
        return MeshInfo(routers, banned, answer.directory_replication or None)

    async def keys(self, trusted: TrustedKeys | None = None) -> TrustedKeys:
        """The keys whose credentials the mesh honours now.

        Args:
            trusted: keys that we honour already: one of them must vouch for the answer. None takes it on the word of
                the connection that it came over, if every key in it has signed.
        Raises:
            RemoteProtocolError: nobody vouches, or the answer is older than CHALLENGE_WINDOW.
        """
        answer = await self._call(lambda _: Outgoing("GET", "/keys"), KeysResponse)
        if abs(_required(answer.sign_time) - self._exchange.now()) > CHALLENGE_WINDOW:
            raise RemoteProtocolError("the control plane's key set is not of now")
        return vouched_keys(answer, trusted)

    async def rules(self, credential: bytes) -> tuple[str, ...]:
        """The policy in force, as rules for whoever serves calls."""
        answer = await self._call(self._signer.policies(credential), PolicyConfigGetResponse)
        return tuple(answer.datalog_rules)

    async def _call(self, sign: Callable[[int], Outgoing], kind: type[M]) -> M:
        return decode(kind, await self._exchange.call(sign))


@asynccontextmanager
async def open_client(
    url: str,
    identity: Identity,
    *,
    wall_clock: Callable[[], float] = time.time,
    rng: Random | None = None,
    backoff: Backoff | None = None,
    transport: httpx.AsyncBaseTransport | None = None,
    proxies: ProxyRules | None = None,
    make: Callable[[Identity, Exchange], ControlPlaneClient] = ControlPlaneClient,
) -> AsyncGenerator[ControlPlaneClient]:
    """`async with open_client("http://10.0.0.1:8080", identity) as control_plane:`

    Args:
        url: of the control plane.
        identity: who calls.
        wall_clock: gives the seconds since 1970.
        rng: for jitter; the operating system's when None.
        backoff: how long calls are retried.
        transport: instead of the network: `httpx.ASGITransport(app)` reaches an app in this process.
        proxies: what is reached through which proxy; what the environment says now if it is None.
        make: makes another kind of client.
    Raises:
        ValueError: `url` is no HTTP URL.
        AddressError: the environment names a proxy that is none. (It is a ValueError too.)
    """
    async with open_http(url, transport, proxies) as http:
        yield make(identity, Exchange(http, wall_clock, rng or SystemRandom(), backoff or Backoff()))


def _issued(answer: BootstrapEnrollResponse | EnrollResponse) -> Issued:
    return Issued(
        credential=answer.biscuit_token,
        expires_at=_required(answer.expire_time),
        control_plane_key=answer.control_plane_public_key,
        router_addresses=parse_addresses(answer.router_addresses),
    )


def _required(instant: datetime | None) -> float:
    if instant is None:
        raise RemoteProtocolError("the control plane's answer lacks an instant")
    return instant.timestamp()
