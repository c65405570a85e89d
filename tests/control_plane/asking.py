"""A good request for everything that the interface takes, and every place in it where a text stands.

What there is to ask is read from /openapi.json: an operation without a good request here is a failure.
"""

import base64
import copy
import json
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import attrs
import betterproto2
import httpx

from agentmesh.control_plane.policy.document import parse_policy
from agentmesh.control_plane.tokens import token_id
from agentmesh.identity import Identity
from agentmesh.wire.messages.mesh import v1
from agentmesh.wire.plain import Kind, fields_of, from_plain, to_plain
from tests.control_plane.plane import ADMIN_TOKEN, bearer
from tests.control_plane.test_register import Site, open_site

JSON, PROTOBUF = "application/json", "application/x-protobuf"
AS_ADMIN = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
MANY = 100_000  # usages of the bootstrap token
KEY = "<key>"  # the step into a map that leads to a key of it

POLICY: dict[str, Any] = {
    "roles": [
        {
            "name": "dev",
            "allowed_services": ["mcp://a"],
            "allowed_targets": ["group:a"],
            "allowed_labels": ["site=a"],
            "custom_datalog": ['tier("gold");'],
            "http": [{"service": "mcp://a", "methods": ["GET"], "paths": ["/a"]}],
        },
        {"name": "mesh:role:node", "allowed_labels": ["*"]},
    ],
    "bindings": [{"role": "mesh:role:node", "members": ["user:alice"]}],
}

Steps = tuple[str | int, ...]  # into a body: names of fields, numbers in lists, KEY
Member = tuple[Identity, bytes]  # with its credential


@attrs.frozen
class Asking:
    """A request.

    Attributes:
        path: as the document has it, with `in_path` for its parameters.
        kind: of the message that its body is; None when it is JSON only.
        body: as plain values; None when there is none.
        schema: of the body in JSON.
    """

    method: str
    path: str
    headers: Mapping[str, str] = attrs.field(factory=dict[str, str])
    query: Mapping[str, str] = attrs.field(factory=dict[str, str])
    in_path: Mapping[str, str] = attrs.field(factory=dict[str, str])
    kind: type[betterproto2.Message] | None = None
    body: Any = None
    schema: Mapping[str, Any] = attrs.field(factory=dict[str, Any])

    @property
    def spellings(self) -> tuple[str, ...]:
        """The content types that it can be sent in."""
        return (JSON,) if self.kind is None else (JSON, PROTOBUF)

    async def send(self, http: httpx.AsyncClient, spelling: str = JSON) -> httpx.Response:
        """Ask. `spelling`: the content type of the body, and of the answer."""
        path = self.path
        for name, value in self.in_path.items():
            path = path.replace(f"{{{name}}}", quote(value, safe=""))
        headers = {name.encode(): value.encode() for name, value in {"Accept": spelling, **self.headers}.items()}
        content = None
        if self.body is not None:
            headers[b"Content-Type"] = spelling.encode()
            content = json.dumps(self.body).encode() if spelling == JSON else self._encoded()
        return await http.request(self.method, path, params=self.query, headers=headers, content=content)

    def _encoded(self) -> bytes:
        assert self.kind is not None
        return bytes(from_plain(self.kind, self.body))


@attrs.frozen
class Place:
    """Where a text stands in a request."""

    name: str
    now: str  # what stands there in a good one
    put: Callable[[str], Asking]  # the request with another text there
    in_body: bool = False


def places(asking: Asking) -> list[Place]:
    """Every place."""
    return [*_in_parts(asking), *_in_body(asking)]


def _in_parts(asking: Asking) -> Iterator[Place]:
    for part in ("headers", "query", "in_path"):
        values: Mapping[str, str] = getattr(asking, part)
        for name, value in values.items():
            yield Place(f"{part}.{name}", value, partial(_with_part, asking, part, name))


def _in_body(asking: Asking) -> Iterator[Place]:
    if asking.body is not None:
        for steps in _in_message(asking.kind) if asking.kind else _in_object(asking.schema):
            put = partial(_with_body, asking, steps)
            yield Place(".".join(map(str, steps)), _at(asking.body, steps), put, in_body=True)


def _with_part(asking: Asking, part: str, name: str, text: str) -> Asking:
    changes: dict[str, Any] = {part: {**getattr(asking, part), name: text}}
    return attrs.evolve(asking, **changes)


def _with_body(asking: Asking, steps: Steps, text: str) -> Asking:
    body: Any = copy.deepcopy(asking.body)
    *before, last = steps
    inner: Any = body
    for step in before:
        inner = inner[step] if isinstance(step, int) else inner.setdefault(step, {})
    if last == KEY:
        inner[text] = "a"
    else:
        inner[last] = text
    return attrs.evolve(asking, body=body)


def _at(body: Any, steps: Steps) -> str:
    for step in steps:
        body = body[step] if isinstance(step, int) else dict[str, Any](body or ()).get(step)
    return cast(str, body or "")


def _in_message(kind: type[betterproto2.Message]) -> Iterator[Steps]:
    for field in fields_of(kind).values():
        if field.map:
            yield from ((field.name, KEY), (field.name, "site"))
        elif field.kind is Kind.TEXT:
            yield (field.name, 0) if field.repeated else (field.name,)
        elif field.kind is Kind.MESSAGE:
            for steps in _in_message(cast(Any, field.of)):
                yield (field.name, 0, *steps) if field.repeated else (field.name, *steps)


def _in_object(schema: Mapping[str, Any]) -> Iterator[Steps]:
    return ((name,) for name, of in schema["properties"].items() if of["type"] == "string")


class Askings:
    """Makes good requests, each anew: a peer enrolls once, and a signed request that comes again is not read again."""

    def __init__(self, site: Site, token: str, member: Member, router: Member) -> None:
        self.site, self._mesh, self._token = site, site.mesh, token
        (self._member, credential), (self._router, self._lease) = member, router
        self._bearer = bearer(credential)
        user = {"Authorization": f"Bearer {site.provider.token()}"}
        put = partial(Asking, headers=AS_ADMIN, kind=v1.PolicyConfig, body=POLICY)
        stranger = {"peer_id": str(Identity.generate().peer)}
        owner = f"{site.provider.issuer}|alice"
        wanted = {"role": "node", "max_usages": 1, "ttl": 60, "description": "a", "owner": owner}
        at_enrollment = partial(Asking, headers=AS_ADMIN, in_path={"id": "1"})
        at_node = partial(Asking, headers=AS_ADMIN, in_path={"id": str(self._member.peer)})
        self._schemas = dict[tuple[str, str], Mapping[str, Any]]()
        self._known: dict[tuple[str, str], Callable[[str, str], Asking]] = {
            ("POST", "/enroll"): self._enroll,
            ("POST", "/register"): self._register,
            ("GET", "/enroll/status"): self._status,
            ("POST", "/refresh"): self._refresh,
            ("POST", "/routers/lease"): self._renew_lease,
            ("GET", "/policies"): self._as_member,
            ("GET", "/revocations"): self._as_member,
            ("PUT", "/policies"): put,
            ("POST", "/policies"): put,
            ("POST", "/admin/revoke"): partial(Asking, headers=AS_ADMIN, kind=v1.TokenRevokeRequest, body=stranger),
            ("POST", "/admin/bootstrap-tokens"): partial(Asking, headers=AS_ADMIN, body=wanted),
            ("DELETE", "/admin/bootstrap-tokens/{id}"): partial(Asking, headers=AS_ADMIN, in_path={"id": "0" * 64}),
            ("GET", "/admin/enrollments"): partial(Asking, headers=AS_ADMIN, query={"status": "pending"}),
            ("POST", "/admin/enrollments/{id}/approve"): at_enrollment,
            ("POST", "/admin/enrollments/{id}/reject"): at_enrollment,
            ("GET", "/admin/nodes"): partial(Asking, headers=AS_ADMIN, query={"after": str(self._member.peer)}),
            ("POST", "/admin/nodes/{id}/unban"): at_node,
            ("POST", "/admin/nodes/{id}/autonomous-recovery"): partial(at_node, body={"enabled": False}),
            ("GET", "/user/status"): partial(Asking, headers=user),
            ("POST", "/user/bootstrap-tokens"): partial(Asking, headers=user, body=wanted),
            ("POST", "/user/revoke"): partial(Asking, headers=user, query={"id": token_id(token)}),
        }

    async def operations(self) -> list[tuple[str, str]]:
        """Method and path of all that there is to ask."""
        document = (await self._mesh.http.get("/openapi.json")).json()
        self._schemas = {
            (method.upper(), path): _schema(operation)
            for path, operations in document["paths"].items()
            for method, operation in operations.items()
        }
        return list(self._schemas)

    async def secrets(self) -> dict[str, str]:
        """What whoever asks might put in the wrong place."""
        seed = self._member.private_key.private_bytes_raw()
        return {
            "a bootstrap token": await self._mesh.plane.create_token("node"),
            "a credential": self._bearer["Authorization"].removeprefix("Bearer "),
            "a private key": seed.hex(),
            "a private key in base64": base64.b64encode(seed).decode(),
            "the admin token": ADMIN_TOKEN,
            "a token of the identity provider": self.site.provider.token("bob"),
        }

    def make(self, method: str, path: str) -> Asking:
        """A good request of an operation."""
        if (method, path) in self._known:
            return attrs.evolve(self._known[method, path](method, path), schema=self._schemas[method, path])
        assert (method, "{" in path) == ("GET", False), f"no good request of {method} {path}"
        return Asking(method, path, AS_ADMIN if path.startswith("/admin/") else {})

    def _enroll(self, method: str, path: str) -> Asking:
        message = self._mesh.enroll_request(Identity.generate(), self._token, requested_role="node")
        return _of(method, path, message)

    def _register(self, method: str, path: str) -> Asking:
        jwt = self.site.provider.token()
        return _of(method, path, self._mesh.register_request(Identity.generate(), jwt, requested_role="node"))

    def _refresh(self, method: str, path: str) -> Asking:
        return _of(method, path, self._mesh.refresh_request(self._member), self._bearer)

    def _renew_lease(self, method: str, path: str) -> Asking:
        return _of(method, path, self._mesh.lease_request(self._router, self._lease))

    def _status(self, method: str, path: str) -> Asking:
        challenge = self._mesh.challenge(self._member, "enroll-status")
        return Asking(method, path, challenge, query={"peer_id": str(self._member.peer)})

    def _as_member(self, method: str, path: str) -> Asking:
        return Asking(method, path, {**self._bearer, **self._mesh.challenge(self._member, path[1:])})


def _of(method: str, path: str, message: betterproto2.Message, headers: Mapping[str, str] | None = None) -> Asking:
    return Asking(method, path, headers or {}, kind=type(message), body=to_plain(message))


def _schema(operation: Mapping[str, Any]) -> Mapping[str, Any]:
    content = operation.get("requestBody", {}).get("content", {})
    return cast(Mapping[str, Any], content.get(JSON, {}).get("schema", {}))


@asynccontextmanager
async def open_askings(folder: Path, **settings: Any) -> AsyncGenerator[Askings]:
    """A mesh with a member, a router and a user in it."""
    async with open_site(folder, policy=parse_policy(POLICY), enroll_burst=MANY, **settings) as site:
        token = await site.mesh.plane.create_token("node", max_usages=MANY)
        askings = Askings(site, token, await site.mesh.admitted(), await site.mesh.admitted("router"))
        await askings.operations()
        assert (await askings.make("GET", "/user/status").send(site.mesh.http)).status_code == 200
        yield askings
