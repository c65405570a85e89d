"""A control plane that is a value of this process: no database, no HTTP, so it runs on a virtual clock."""

import math
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import attrs
import trio

from agentmesh.control_plane.client import Issued, MeshInfo, RouterLoad
from agentmesh.control_plane.errors import (
    ControlPlaneUnavailableError,
    EnrollmentRejectedError,
    RequestRefusedError,
    UnauthorizedError,
)
from agentmesh.control_plane.policy.compile import rules
from agentmesh.control_plane.policy.open import OPEN_POLICY
from agentmesh.control_plane.routers import RouterRecord
from agentmesh.credentials import ROLE_NODE, ROLE_ROUTER, SigningKey, TrustedKeys, mint, verify
from agentmesh.errors import CredentialError, RemoteProtocolError
from agentmesh.identity import Identity
from agentmesh.membership import Enrollment, Membership, StateDir
from agentmesh.runtime.nursery import open_background
from agentmesh.types import Address, PeerId

START = 1_800_000_000.0  # wall-clock seconds at which virtual time begins
URL = "http://cp"
NODE_TOKEN, ROUTER_TOKEN = "a token for nodes", "a token for routers"
OPEN_RULES = tuple(rules(OPEN_POLICY))


def wall_clock() -> float:
    """A wall clock that goes with Trio's."""
    return START + trio.current_time()


@attrs.define
class Plane:
    """Mints and lists as the real one does, as far as members see it.

    Attributes:
        ttl: seconds that its credentials are good for.
        is_away: it answers nobody.
        unanswered: calls that get no answer otherwise.
        patience: seconds that a call of it is tried for then.
        refuses: members that it does not honour any more.
        keys: what signs; the last of them mints.
        routers: what `info` lists.
        rules: of the policy; everybody may do everything.
        replication: how many routers are to hold each record of the directory.
        lease_ttls: of the leases, as they were asked for.
        until: when each lease ends; one that is not asked to be short never does.
        banned: whom it names as banned.
        calls: how often each call was made, and how many credentials were issued.
        labels: what it attests.
    """

    now: Callable[[], float] = wall_clock
    ttl: float = 24 * 3600.0
    is_away: bool = False
    unanswered: set[str] = attrs.Factory(set[str])
    patience: float = 0.0
    refuses: set[PeerId] = attrs.Factory(set[PeerId])
    tokens: dict[str, str] = attrs.Factory(lambda: {NODE_TOKEN: ROLE_NODE, ROUTER_TOKEN: ROLE_ROUTER})
    keys: list[SigningKey] = attrs.Factory(lambda: [SigningKey.generate()])
    routers: dict[PeerId, RouterRecord] = attrs.Factory(dict[PeerId, RouterRecord])
    rules: tuple[str, ...] = OPEN_RULES
    replication: int = 3
    lease_ttls: list[float | None] = attrs.Factory(list[float | None])
    until: dict[PeerId, float] = attrs.Factory(dict[PeerId, float])
    banned: set[PeerId] = attrs.Factory(set[PeerId])
    calls: Counter[str] = attrs.Factory(Counter[str])
    last: dict[PeerId, Issued] = attrs.Factory(dict[PeerId, Issued])
    roles: dict[PeerId, str] = attrs.Factory(dict[PeerId, str])
    labels: dict[PeerId, Mapping[str, str]] = attrs.Factory(dict[PeerId, Mapping[str, str]])

    @property
    def trusted(self) -> TrustedKeys:
        return TrustedKeys(frozenset(key.public for key in self.keys))

    def client(self, identity: Identity) -> "Client":
        return Client(self, identity.peer)

    def issue(self, peer: PeerId) -> Issued:
        self.calls["issue"] += 1
        expires_at = float(int(self.now() + self.ttl))
        labels = self.labels.get(peer, {})
        token = mint(self.keys[-1], peer=peer, role=self.roles[peer], labels=labels, expires_at=expires_at)
        self.last[peer] = Issued(token, expires_at)
        return self.last[peer]


@attrs.frozen
class Client:
    """What one member calls it with: a `PlaneClient`."""

    plane: Plane
    peer: PeerId

    async def enroll(self, token: str, *, role: str = "", labels: Mapping[str, str] | None = None) -> Issued:
        await self._call("enroll")
        if self.plane.tokens.get(token) != (role or self.plane.tokens.get(token)) or token not in self.plane.tokens:
            raise EnrollmentRejectedError("not enrolled: invalid bootstrap token")
        self.plane.roles[self.peer] = self.plane.tokens[token]
        self.plane.refuses.discard(self.peer)
        self.plane.labels[self.peer] = labels or {}
        return self.plane.issue(self.peer)

    async def refresh(self, credential: bytes) -> Issued:
        await self._call("refresh")
        last = self.plane.last.get(self.peer)
        if last is None or self.peer in self.plane.refuses or last.expires_at < self.plane.now():
            raise UnauthorizedError("the peer is not enrolled", 401)
        return self.plane.issue(self.peer) if last.credential == credential else last

    async def keys(self, trusted: TrustedKeys | None = None) -> TrustedKeys:
        await self._call("keys")
        if trusted is not None and not trusted.keys & self.plane.trusted.keys:
            raise RemoteProtocolError("no key that we trust has signed the control plane's set")
        return self.plane.trusted

    async def info(self) -> MeshInfo:
        await self._call("info")
        now, until = self.plane.now(), self.plane.until
        listed = tuple(one for one in self.plane.routers.values() if until.get(one.peer, math.inf) > now)
        return MeshInfo(listed, frozenset(self.plane.banned), self.plane.replication)

    async def rules(self, credential: bytes) -> tuple[str, ...]:
        await self._call("rules")
        return self.plane.rules

    async def renew_lease(
        self,
        credential: bytes,
        addresses: Sequence[Address],
        *,
        load: RouterLoad | None = None,
        ttl: float | None = None,
    ) -> float:
        await self._call("renew_lease")
        if self.peer in self.plane.refuses:
            raise UnauthorizedError("the peer is not enrolled", 401)
        try:
            shown = verify(credential, peer=self.peer, trusted=self.plane.trusted, now=self.plane.now())
        except CredentialError as exc:
            raise UnauthorizedError(str(exc), 401) from exc
        if shown.role != ROLE_ROUTER:
            raise RequestRefusedError("the peer is not a router", 403)
        load, before = load or RouterLoad(), self.plane.routers.get(self.peer)
        labels = before.labels if before else dict[str, str]()
        self.plane.routers[self.peer] = RouterRecord(
            self.peer, tuple(addresses), labels, load.connections, load.connection_limit
        )
        self.plane.lease_ttls.append(ttl)
        self.plane.until[self.peer] = math.inf if ttl is None else self.plane.now() + ttl
        return self.plane.now() + 900.0

    async def _call(self, name: str) -> None:
        self.plane.calls[name] += 1
        await trio.lowlevel.checkpoint()
        if self.plane.is_away or name in self.plane.unanswered:
            await trio.sleep(self.plane.patience)
            raise ControlPlaneUnavailableError("the control plane does not answer")


def membership_of(
    plane: Plane, identity: Identity, state: StateDir | None = None, *, url: str = URL, token: str | None = NODE_TOKEN
) -> Membership:
    return Membership(identity, plane.client(identity), Enrollment(control_plane=url, token=token), state, wall_clock)


@asynccontextmanager
async def running(membership: Membership) -> AsyncGenerator[Membership]:
    """As a program has it: begun, and kept."""
    await membership.begin()
    async with open_background() as nursery:
        nursery.start_soon(membership.run)
        yield membership
