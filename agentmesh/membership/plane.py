"""What a member needs of a control plane. `agentmesh.control_plane.client` calls one over HTTP; a simulation has its
own.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol as Interface

from agentmesh.control_plane.client import Issued, MeshInfo, RouterLoad
from agentmesh.credentials import TrustedKeys
from agentmesh.types import Address


class PlaneClient(Interface):
    """Calls of one control plane for one identity; each as `ControlPlaneClient` has it, errors and cancellation too."""

    async def enroll(self, token: str, *, role: str = "", labels: Mapping[str, str] | None = None) -> Issued: ...

    async def refresh(self, credential: bytes) -> Issued: ...

    async def keys(self, trusted: TrustedKeys | None = None) -> TrustedKeys: ...

    async def info(self) -> MeshInfo: ...

    async def rules(self, credential: bytes) -> tuple[str, ...]: ...

    async def renew_lease(
        self,
        credential: bytes,
        addresses: Sequence[Address],
        *,
        load: RouterLoad | None = None,
        ttl: float | None = None,
    ) -> float: ...
