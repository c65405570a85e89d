"""A control plane without a process: every worker of a run has the same signing key, and mints for itself.

What a member shows to a router, and how that is judged, is as in any mesh; enrollment is not what is measured.
"""

import time
from collections.abc import Mapping, Sequence

import attrs
import trio

from agentmesh.control_plane.client import Issued, MeshInfo, RouterLoad
from agentmesh.control_plane.policy.compile import rules
from agentmesh.control_plane.policy.open import OPEN_POLICY
from agentmesh.control_plane.routers import RouterRecord
from agentmesh.credentials import ROLE_NODE, ROLE_ROUTER, SigningKey, TrustedKeys, mint
from agentmesh.identity import Identity
from agentmesh.membership import Enrollment, Membership
from agentmesh.types import Address, PeerId

ENROLLMENT = Enrollment(control_plane="http://127.0.0.1", token="benchmark")
OPEN_RULES = tuple(rules(OPEN_POLICY))
DAY = 86400.0  # seconds
LEASE = 900.0  # seconds


@attrs.frozen
class LocalPlane:
    """One member's `PlaneClient`."""

    key: SigningKey
    peer: PeerId
    role: str
    routers: tuple[RouterRecord, ...] = ()
    labels: Mapping[str, str] = attrs.Factory(dict[str, str])

    async def enroll(self, token: str, *, role: str = "", labels: Mapping[str, str] | None = None) -> Issued:
        return await self._issue()

    async def refresh(self, credential: bytes) -> Issued:
        return await self._issue()

    async def keys(self, trusted: TrustedKeys | None = None) -> TrustedKeys:
        await trio.lowlevel.checkpoint()
        return TrustedKeys(frozenset({self.key.public}))

    async def info(self) -> MeshInfo:
        await trio.lowlevel.checkpoint()
        return MeshInfo(self.routers)

    async def rules(self, credential: bytes) -> tuple[str, ...]:
        await trio.lowlevel.checkpoint()
        return OPEN_RULES

    async def renew_lease(
        self,
        credential: bytes,
        addresses: Sequence[Address],
        *,
        load: RouterLoad | None = None,
        ttl: float | None = None,
    ) -> float:
        await trio.lowlevel.checkpoint()
        return time.time() + LEASE

    async def _issue(self) -> Issued:
        await trio.lowlevel.checkpoint()
        expires_at = float(int(time.time() + DAY))
        token = mint(self.key, peer=self.peer, role=self.role, labels=self.labels, expires_at=expires_at)
        return Issued(token, expires_at)


async def enter(key: str, *routers: str, role: str = "", labels: Mapping[str, str] | None = None) -> Membership:
    """A new member of the mesh: a node that knows these routers, or a router.

    Args:
        key: the signing key, in hexadecimal.
        routers: their addresses with their peer IDs; none makes a router.
        role: another one than that.
        labels: that are attested.
    """
    identity, signing = Identity.generate(), SigningKey.from_bytes(bytes.fromhex(key))
    records = tuple(map(_record_of, routers))
    role = role or (ROLE_NODE if routers else ROLE_ROUTER)
    membership = Membership(identity, LocalPlane(signing, identity.peer, role, records, labels or {}), ENROLLMENT)
    await membership.begin()
    return membership


def _record_of(router: str) -> RouterRecord:
    address = Address.parse(router)
    assert address.peer is not None
    return RouterRecord(address.peer, (address,))
