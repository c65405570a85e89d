"""The provider's front door: an ASGI application that checks each call and hands it to the service it names.

/<type>/<name>/...      fewer than two parts, or an unknown type    400
X-Mesh-Biscuit          missing 401, not base64 400, refused by `authorize` 403; 503 when it does not know yet
the service             not in the table 404, and only an authorised caller learns that
"""

import base64
import binascii
from collections.abc import Callable
from typing import Any, cast
from urllib.parse import unquote, unquote_to_bytes

import attrs

from agentmesh.authorization import Call
from agentmesh.errors import CredentialError
from agentmesh.protocols.http import CREDENTIAL_HEADER, ASGIApp, Message, Receive, Scope, Send, peer_of
from agentmesh.services.answers import Answer
from agentmesh.services.headers import Headers, relocated, without_mesh
from agentmesh.services.proxy import ReverseProxy
from agentmesh.services.table import SERVICE_TYPES, ServiceKey, ServiceTable, Target
from agentmesh.types import PeerId

CATALOG_PATH = b"/system/mesh.catalog"

Authorize = Callable[[bytes, PeerId, Call], None]

# An MCP application sees this as its own name: the official SDK answers 421 to any that is not the loopback's, to keep
# web pages from reaching it by DNS rebinding. Here the session has proved who calls, so no page can.
_MCP_HOST = b"localhost:80"


class Dispatcher:
    """Serve with `agentmesh.protocols.http.protocol(Dispatcher(...))`.

    Args:
        table: the services, looked up anew for each call.
        authorize: called with the credential's bytes, the caller's proved peer ID and what is asked for. Raises
            CredentialError to deny the call; the caller is given its text.
    """

    def __init__(self, table: ServiceTable, authorize: Authorize) -> None:
        self._table = table
        self._authorize = authorize

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        admitted = self._listed(scope) if scope["raw_path"] == CATALOG_PATH else self._admit(scope)
        if isinstance(admitted, Answer):
            await admitted.send(send)
        else:
            await admitted.app({**scope, **admitted.changes}, receive, send)

    def _listed(self, scope: Scope) -> "Answer":
        """What the caller may call here, one `type://name` a line. That it may ask is granted to everybody; what it is
        not granted is not there for it. Grants of certain paths alone are not seen.
        """
        credential = _credential_of(scope["headers"])
        if isinstance(credential, Answer):
            return credential

        def is_granted(key: ServiceKey, method: str) -> bool:
            try:
                self._authorize(credential, peer_of(scope), Call(key.type, key.name, method, "/"))
            except CredentialError:
                return False
            return True

        granted = [str(key) for key in self._table if any(is_granted(key, method) for method in ("GET", "POST"))]
        return Answer(200, "", "\n".join(sorted(granted)))

    def _admit(self, scope: Scope) -> "Admitted | Answer":
        service = service_of(scope["raw_path"])
        if isinstance(service, Answer):
            return service
        credential = _credential_of(scope["headers"])
        if isinstance(credential, Answer):
            return credential
        call = Call(service.type, service.name, scope["method"], path_within(scope["raw_path"]))
        try:
            self._authorize(credential, peer_of(scope), call)
        except CredentialError as exc:
            return _denial(service, exc)
        target = self._table.lookup(service.type, service.name)
        if target is None:
            return Answer(404, "unknown-service", f"no service {service} here")
        changes = {"headers": without_mesh(scope["headers"]), "root_path": f"/{service.type}/{service.name}"}
        return Admitted(app_of(service, target), changes)


@attrs.frozen
class Admitted:
    """A call that may go ahead: what to call, and how its scope differs from the one that came."""

    app: ASGIApp
    changes: dict[str, Any]


@attrs.frozen
class InProcess:
    """An ASGI application of this process as a service: what is the mesh's stays out of its answers."""

    app: ASGIApp
    host: bytes | None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        prefix = cast(str, scope["root_path"]).encode()
        origin = b""
        if self.host is not None:
            origin = b"http://" + self.host
            others = [(name, value) for name, value in scope["headers"] if name != b"host"]
            scope = {**scope, "headers": [(b"host", self.host), *others]}

        async def send_on(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = without_mesh(message.get("headers", ()))
                message = {**message, "headers": relocated(headers, origin, prefix, prefix) if origin else headers}
            await send(message)

        await self.app(scope, receive, send_on)


def app_of(service: ServiceKey, target: Target) -> ASGIApp:
    """What answers for a service."""
    if isinstance(target, str):
        return ReverseProxy(target)
    return InProcess(target, _MCP_HOST if service.type == "mcp" else None)


def service_of(path: bytes) -> ServiceKey | Answer:
    """Which service a path names. Dot segments are refused: they could lead out of the service."""
    parts = path.split(b"/", 3)
    if len(parts) < 3 or not parts[1] or not parts[2]:
        return Answer(400, "malformed", "the path begins with /<type>/<name>")
    if set(unquote_to_bytes(path).replace(b"\\", b"/").split(b"/")) & {b".", b".."}:
        return Answer(400, "malformed", "the path has a dot segment")
    kind, name = (unquote(part.decode("ascii")) for part in parts[1:3])
    if kind not in SERVICE_TYPES:
        return Answer(400, "malformed", f"a service's type is one of {', '.join(sorted(SERVICE_TYPES))}")
    return ServiceKey(kind, name)


def path_within(path: bytes) -> str:
    """The path as the service sees it: behind the part where it is mounted."""
    parts = path.split(b"/", 3)
    return "/" + (parts[3].decode("ascii") if len(parts) > 3 else "")


def _denial(service: ServiceKey, exc: CredentialError) -> Answer:
    match exc.reason:
        case "undecided":
            return Answer(503, "undecided", f"{service} is denied for now: {exc}")
        case "denied":
            return Answer(403, "denied", f"{service} is denied: {exc}; whoever runs the mesh can grant it by a policy")
        case _:
            return Answer(403, "denied", f"{service} is denied: the caller's credential is not honoured: {exc}")


def _credential_of(headers: Headers) -> bytes | Answer:
    found = [value for name, value in headers if name == CREDENTIAL_HEADER]
    if not found:
        return Answer(401, "no-credential", "X-Mesh-Biscuit is missing")
    try:
        (encoded,) = found
        return base64.b64decode(encoded, validate=True)
    except (ValueError, binascii.Error):
        return Answer(400, "malformed", "X-Mesh-Biscuit is not one base64 text")
