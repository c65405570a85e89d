"""A control plane in this process, a clock to set, and signed requests, well made or not."""

import base64
import functools
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import attrs
import betterproto2
import httpx

from agentmesh.control_plane.backoff import Backoff
from agentmesh.control_plane.client import ControlPlaneClient, open_client
from agentmesh.control_plane.config import Config
from agentmesh.control_plane.dsn import SqliteFile
from agentmesh.control_plane.engines import for_writing, sqlite_engine
from agentmesh.control_plane.migrations import migrate
from agentmesh.control_plane.policy.open import OPEN_POLICY
from agentmesh.control_plane.server import Plane, open_plane
from agentmesh.identity import Identity, challenge_text
from agentmesh.wire.messages.mesh.v1 import (
    BootstrapEnrollRequest,
    BootstrapEnrollResponse,
    EnrollRequest,
    RouterLeaseRequest,
    TokenRefreshRequest,
)

ADMIN_TOKEN = "the admin token of these tests"
PROTOBUF = {"Content-Type": "application/x-protobuf"}
NO_RETRIES = Backoff(budget=0.0)

M = TypeVar("M", bound=betterproto2.Message)


@attrs.define
class Clock:
    """A wall clock that stands until it is set."""

    now: float = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now

    @property
    def ms(self) -> int:
        return round(self.now * 1000)


@attrs.frozen
class Harness:
    """A control plane and a plain HTTP client for it."""

    plane: Plane
    http: httpx.AsyncClient
    clock: Clock

    @asynccontextmanager
    async def client(
        self, identity: Identity | None = None, *, clock: Clock | None = None, backoff: Backoff = NO_RETRIES
    ) -> AsyncGenerator[ControlPlaneClient]:
        transport = httpx.ASGITransport(self.plane.app)
        async with open_client(
            "http://control-plane",
            identity or Identity.generate(),
            wall_clock=clock or self.clock,
            rng=Random(0),
            backoff=backoff,
            transport=transport,
        ) as client:
            yield client

    async def post(self, path: str, message: betterproto2.Message, **headers: str) -> httpx.Response:
        return await self.http.post(path, content=bytes(message), headers={**PROTOBUF, **headers})

    async def enroll(self, message: BootstrapEnrollRequest) -> BootstrapEnrollResponse:
        response = await self.post("/enroll", message)
        assert response.status_code == 200, response.text
        return BootstrapEnrollResponse.parse(response.content)

    async def status(self, identity: Identity, spelt: str = "", **wrong: Any) -> httpx.Response:
        """GET /enroll/status. `spelt`: the peer ID in the query; `wrong`: headers instead of the right ones."""
        headers = {**self.challenge(identity, "enroll-status"), **wrong}
        return await self.http.get("/enroll/status", params={"peer_id": spelt or str(identity.peer)}, headers=headers)

    async def admin(self, method: str, path: str, **kwargs: Any) -> httpx.Response:
        return await self.as_admin(method, f"/admin{path}", **kwargs)

    async def as_admin(self, method: str, path: str, **kwargs: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {ADMIN_TOKEN}", **kwargs.pop("headers", {})}
        return await self.http.request(method, path, headers=headers, **kwargs)

    async def put_policy(self, policy: object) -> httpx.Response:
        return await self.as_admin("PUT", "/policies", json=policy)

    async def ban(self, identity: Identity, spelt: str = "") -> None:
        response = await self.admin("POST", "/revoke", json={"peer_id": spelt or str(identity.peer)})
        assert response.status_code == 200, response.text

    async def unban(self, identity: Identity) -> None:
        assert (await self.admin("POST", f"/nodes/{identity.peer}/unban")).status_code == 204

    async def member(self, identity: Identity, credential: bytes, path: str, **wrong: str) -> httpx.Response:
        """GET what members are served; the path's last word is what the proof is for. `wrong`: other headers."""
        purpose = path.rpartition("/")[2]
        headers = {**bearer(credential), **self.challenge(identity, purpose), **wrong}
        return await self.http.get(path, headers=headers)

    def challenge(self, identity: Identity, purpose: str) -> dict[str, str]:
        signature = sign(identity, purpose, self.clock.ms)
        return {
            "X-Mesh-Challenge-Ts": str(self.clock.ms),
            "X-Mesh-Challenge-Sig": base64.urlsafe_b64encode(signature).decode().rstrip("="),
        }

    async def admitted(self, role: str = "node", **changes: Any) -> tuple[Identity, bytes]:
        """A new member and its credential."""
        identity = Identity.generate()
        answer = await self.enroll(self.enroll_request(identity, await self.plane.create_token(role), **changes))
        assert answer.biscuit_token, answer.error_message
        return identity, answer.biscuit_token

    def enroll_request(self, identity: Identity, token: str, **changes: Any) -> BootstrapEnrollRequest:
        message = BootstrapEnrollRequest(
            bootstrap_token=token,
            peer_id=str(identity.peer),
            public_key=identity.public_key_bytes,
            challenge_unix_ms=self.clock.ms,
            challenge_signature=sign(identity, "enroll", self.clock.ms),
        )
        return changed(message, **changes)

    def register_request(self, identity: Identity, jwt: str, **changes: Any) -> EnrollRequest:
        message = EnrollRequest(
            jwt=jwt,
            peer_id=str(identity.peer),
            public_key=identity.public_key_bytes,
            challenge_unix_ms=self.clock.ms,
            challenge_signature=sign(identity, "register", self.clock.ms),
        )
        return changed(message, **changes)

    def refresh_request(self, identity: Identity, **changes: Any) -> TokenRefreshRequest:
        message = TokenRefreshRequest(
            peer_id=str(identity.peer),
            challenge_unix_ms=self.clock.ms,
            challenge_signature=sign(identity, "refresh", self.clock.ms),
        )
        return changed(message, **changes)

    def lease_request(self, identity: Identity, credential: bytes, **changes: Any) -> RouterLeaseRequest:
        message = RouterLeaseRequest(
            peer_id=str(identity.peer),
            addresses=[f"/ip4/10.0.0.1/tcp/4001/p2p/{identity.peer}"],
            biscuit=credential,
            challenge_unix_ms=self.clock.ms,
            challenge_signature=sign(identity, "routers-lease", self.clock.ms),
        )
        return changed(message, **changes)


def sign(identity: Identity, purpose: str, unix_ms: int) -> bytes:
    return identity.sign(challenge_text(purpose, identity.peer, unix_ms))


def changed(message: M, **changes: Any) -> M:
    for name, value in changes.items():
        setattr(message, name, value)
    return message


def bearer(credential: bytes) -> dict[str, str]:
    return {"Authorization": f"Bearer {base64.b64encode(credential).decode()}"}


@functools.cache
def migrated() -> bytes:
    """An SQLite file with all the tables and nothing in them: a copy of it is there sooner than one that is made."""
    with tempfile.TemporaryDirectory() as folder:
        file = SqliteFile(f"{folder}/x.db")
        engine = for_writing(sqlite_engine(file))
        with engine.begin() as connection:
            migrate(connection)
        engine.dispose()
        return Path(file.path).read_bytes()


@asynccontextmanager
async def open_harness(folder: Path, clock: Clock | None = None, **settings: Any) -> AsyncGenerator[Harness]:
    """A control plane with its database in `folder`; enrollments are approved unless the settings say otherwise."""
    clock, file = clock or Clock(), folder / "control-plane.db"
    if "db_dsn" not in settings and not file.exists():
        file.write_bytes(migrated())
    defaults: dict[str, Any] = {
        "db_dsn": str(file),
        "auto_approve_enrollment": True,
        "admin_token": ADMIN_TOKEN,
        "enroll_burst": 1000,
        "policy": OPEN_POLICY,
    }
    config = Config(**(defaults | settings))
    async with open_plane(config, clock) as plane:
        transport = httpx.ASGITransport(plane.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://control-plane") as http:
            yield Harness(plane, http, clock)
