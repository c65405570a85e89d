"""Requests to the control plane as one peer signs them, each given as a function of the instant of signing."""

import base64
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

import attrs
import betterproto2

from agentmesh.control_plane.exchange import Outgoing
from agentmesh.identity import Identity, challenge_text
from agentmesh.types import Address
from agentmesh.wire.messages.mesh.v1 import (
    BootstrapEnrollRequest,
    EnrollRequest,
    RouterLeaseRequest,
    TokenRefreshRequest,
)

PROTOBUF = "application/x-protobuf"

Sign = Callable[[int], Outgoing]  # of unix milliseconds


@attrs.frozen
class Signer:
    """Signs for one identity."""

    identity: Identity

    def enroll(self, token: str, role: str, labels: Mapping[str, str]) -> Sign:
        return lambda unix_ms: _post(
            "/enroll",
            BootstrapEnrollRequest(
                bootstrap_token=token,
                peer_id=str(self.identity.peer),
                public_key=self.identity.public_key_bytes,
                requested_role=role,
                labels=dict(labels),
                challenge_unix_ms=unix_ms,
                challenge_signature=self._sign("enroll", unix_ms),
            ),
        )

    def register(self, jwt: str, role: str, labels: Mapping[str, str]) -> Sign:
        return lambda unix_ms: _post(
            "/register",
            EnrollRequest(
                jwt=jwt,
                peer_id=str(self.identity.peer),
                public_key=self.identity.public_key_bytes,
                requested_role=role,
                labels=dict(labels),
                challenge_unix_ms=unix_ms,
                challenge_signature=self._sign("register", unix_ms),
            ),
        )

    def refresh(self, credential: bytes, jwt: str) -> Sign:
        return lambda unix_ms: _post(
            "/refresh",
            TokenRefreshRequest(
                challenge_signature=self._sign("refresh", unix_ms),
                challenge_unix_ms=unix_ms,
                peer_id=str(self.identity.peer),
                jwt=jwt,
            ),
            **_bearer(credential),
        )

    def lease(
        self, credential: bytes, addresses: Sequence[Address], counts: Mapping[str, int], ttl: float | None
    ) -> Sign:
        """`counts`: the fields of the message that say how busy we are."""
        return lambda unix_ms: _post(
            "/routers/lease",
            RouterLeaseRequest(
                peer_id=str(self.identity.peer),
                addresses=[str(address) for address in addresses],
                biscuit=credential,
                challenge_unix_ms=unix_ms,
                challenge_signature=self._sign("routers-lease", unix_ms),
                ttl=None if ttl is None else timedelta(seconds=ttl),
                **counts,
            ),
        )

    def enrollment_status(self, unix_ms: int) -> Outgoing:
        headers = self._challenge("enroll-status", unix_ms)
        return Outgoing("GET", "/enroll/status", headers=headers, params={"peer_id": str(self.identity.peer)})

    def policies(self, credential: bytes) -> Sign:
        return lambda unix_ms: Outgoing(
            "GET", "/policies", headers={**_bearer(credential), **self._challenge("policies", unix_ms)}
        )

    def _challenge(self, purpose: str, unix_ms: int) -> Mapping[str, str]:
        signature = base64.urlsafe_b64encode(self._sign(purpose, unix_ms)).decode().rstrip("=")
        return {"X-Mesh-Challenge-Ts": str(unix_ms), "X-Mesh-Challenge-Sig": signature}

    def _sign(self, purpose: str, unix_ms: int) -> bytes:
        return self.identity.sign(challenge_text(purpose, self.identity.peer, unix_ms))


def _post(path: str, message: betterproto2.Message, **headers: str) -> Outgoing:
    return Outgoing("POST", path, bytes(message), {"Content-Type": PROTOBUF, **headers})


def _bearer(credential: bytes) -> Mapping[str, str]:
    return {"Authorization": f"Bearer {base64.b64encode(credential).decode()}"}
