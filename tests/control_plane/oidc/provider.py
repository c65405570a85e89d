"""An identity provider in this process: discovery, keys, and tokens of any kind, well made or not."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, cast

import attrs
import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from agentmesh.control_plane.serving import serve_http
from tests.control_plane.plane import Clock

AUDIENCE = "agentmesh-audience"
RSA = rsa.generate_private_key(65537, 2048)  # they take long to make

_KINDS: dict[str, Any] = {"RS256": RSAAlgorithm, "ES256": ECAlgorithm, "EdDSA": OKPAlgorithm}


@attrs.frozen
class ProviderKey:
    """A key of a provider."""

    id: str
    algorithm: str
    private: Any = attrs.field(repr=False)

    @classmethod
    def make(cls, id: str, algorithm: str) -> "ProviderKey":
        match algorithm:
            case "RS256":
                return cls(id, algorithm, RSA)
            case "ES256":
                return cls(id, algorithm, ec.generate_private_key(ec.SECP256R1()))
            case _:
                return cls(id, algorithm, ed25519.Ed25519PrivateKey.generate())

    @property
    def public(self) -> dict[str, Any]:
        found = cast(dict[str, Any], _KINDS[self.algorithm].to_jwk(self.private.public_key(), as_dict=True))
        return {**found, "kid": self.id}


@attrs.define
class IdentityProvider:
    """Says what it is told to say. `documents` are served in the place of its own; `asked` is what it was asked for."""

    clock: Clock
    issuer: str = ""
    keys: list[ProviderKey] = attrs.field(factory=lambda: [ProviderKey.make("k", "EdDSA")])
    documents: dict[str, Response] = attrs.field(factory=dict[str, Response])
    asked: list[str] = attrs.field(factory=list[str])

    def app(self) -> Starlette:
        return Starlette(routes=[Route("/{path:path}", self.serve)])

    async def serve(self, request: Request) -> Response:
        self.asked.append(request.url.path)
        match request.url.path:
            case path if path in self.documents:
                return self.documents[path]
            case "/.well-known/openid-configuration":
                return JSONResponse({"issuer": self.issuer, "jwks_uri": f"{self.issuer}/jwks"})
            case "/jwks":
                return JSONResponse({"keys": [key.public for key in self.keys]})
            case _:
                return Response(status_code=404)

    def token(self, sub: Any = "alice", *, key: Any = None, **claims: Any) -> str:
        """A token for AUDIENCE, good for an hour; `claims` are added to it, or taken out of it where they are None."""
        used: ProviderKey = key or self.keys[0]
        now = int(self.clock.now)
        said = {"iss": self.issuer, "aud": AUDIENCE, "sub": sub, "iat": now, "exp": now + 3600, **claims}
        said = {name: value for name, value in said.items() if value is not None}
        return jwt.encode(said, used.private, algorithm=used.algorithm, headers={"kid": used.id})


@asynccontextmanager
async def open_provider(clock: Clock) -> AsyncGenerator[IdentityProvider]:
    """A provider on loopback."""
    provider = IdentityProvider(clock)
    async with serve_http(provider.app(), "127.0.0.1", 0) as provider.issuer:
        yield provider
