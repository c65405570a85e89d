"""The provider's front door: who gets in, what it says to the others, and what a service sees."""

import base64
from collections.abc import Mapping

import httpx
import pytest

from agentmesh.authorization import Call
from agentmesh.errors import CredentialError
from agentmesh.protocols.http import Receive, Scope, Send
from agentmesh.services import Dispatcher, MeshClient, ServiceTable, host_name
from agentmesh.services.dispatch import path_within
from agentmesh.types import PeerId
from tests.services.mesh import ALICE, BOB, CREDENTIAL, Mesh, open_mesh

ORIGIN = f"http://{host_name(BOB)}"


def authorize(credential: bytes, peer: PeerId, call: Call) -> None:
    """Alice may GET everything but services whose name begins with "secret", and /below/ of http://narrow only."""
    if credential != CREDENTIAL:
        raise CredentialError("no trusted key signed it", "untrusted")
    if peer != ALICE or call.name.startswith("secret") or call.method != "GET":
        raise CredentialError("not for you", "denied")
    if call.name == "narrow" and not (call.path or "").startswith("/below/"):
        raise CredentialError("not there", "denied")
    if call.name == "later":
        raise CredentialError("the policy is not known", "undecided")


class Recorder:
    """An application that remembers the scopes it was called with, and answers with `headers`."""

    def __init__(self, headers: Mapping[str, str] | None = None) -> None:
        self.scopes: list[Scope] = []
        self.headers = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scopes.append(scope)
        await send({"type": "http.response.start", "status": 200, "headers": self.headers})
        await send({"type": "http.response.body", "body": b"served"})

    @property
    def scope(self) -> Scope:
        return self.scopes[-1]

    def header(self, name: str) -> list[bytes]:
        return [value for key, value in self.scope["headers"] if key == name.encode()]


async def ask(
    mesh: Mesh, target: str, credentials: tuple[bytes, ...] = (base64.b64encode(CREDENTIAL),)
) -> tuple[int, str | None, str]:
    """Status, X-Mesh-Error and body of the answer to a request that no client library would send."""
    lines = [f"GET {target} HTTP/1.1".encode(), b"Host: h", *(b"X-Mesh-Biscuit: " + value for value in credentials)]
    stream = mesh.open_stream()
    await stream.send_all(b"\r\n".join(lines) + b"\r\n\r\n")
    data = b""
    while piece := await stream.receive_some():
        data += piece
    await stream.aclose()
    head, _, body = data.decode().partition("\r\n\r\n")
    status, *headers = head.split("\r\n")
    fields = dict(line.split(": ", 1) for line in headers)
    return int(status.split(" ")[1]), fields.get("x-mesh-error"), body


def front_door(**apps: Recorder | str) -> Dispatcher:
    table = ServiceTable()
    for name, target in apps.items():
        table.register("http", name, target)
    return Dispatcher(table, authorize)


@pytest.mark.parametrize(
    ("target", "credentials", "status", "error"),
    [
        ("/", (b"",), 400, "malformed"),
        ("/http", (), 400, "malformed"),
        ("/http/", (), 400, "malformed"),
        ("//here", (), 400, "malformed"),
        ("/ftp/here", (), 400, "malformed"),
        ("/HTTP/here", (), 400, "malformed"),
        ("/http/here/../secret", (), 400, "malformed"),
        ("/http/here/%2e%2E/secret", (), 400, "malformed"),
        ("/http/here/a%2f..%2fb", (), 400, "malformed"),
        ("/http/here/a%5C..%5Cb", (), 400, "malformed"),
        ("/http/here", (), 401, "no-credential"),
        ("/http/nowhere", (), 401, "no-credential"),
        ("/http/here", (b"not base64!",), 400, "malformed"),
        ("/http/here", (b"AAA",), 400, "malformed"),
        ("/http/here", (b"AAAA", b"AAAA"), 400, "malformed"),
        ("/http/here", (b"AAAA",), 403, "denied"),
        ("/http/secret", (base64.b64encode(CREDENTIAL),), 403, "denied"),
        ("/http/secret-that-is-not-there", (base64.b64encode(CREDENTIAL),), 403, "denied"),
        ("/http/nowhere", (base64.b64encode(CREDENTIAL),), 404, "unknown-service"),
        ("/mcp/here", (base64.b64encode(CREDENTIAL),), 404, "unknown-service"),
        ("/http/here", (base64.b64encode(CREDENTIAL),), 200, None),
        ("/http/here/", (base64.b64encode(CREDENTIAL),), 200, None),
        ("/%68ttp/her%65/a/b", (base64.b64encode(CREDENTIAL),), 200, None),
        ("/http/here/...", (base64.b64encode(CREDENTIAL),), 200, None),
        ("/http/later", (base64.b64encode(CREDENTIAL),), 503, "undecided"),
        ("/http/narrow", (base64.b64encode(CREDENTIAL),), 403, "denied"),
        ("/http/narrow/above?x=/below/", (base64.b64encode(CREDENTIAL),), 403, "denied"),
        ("/http/narrow/below%2Fx", (base64.b64encode(CREDENTIAL),), 403, "denied"),
        ("/http/narrow/%2Fbelow/x", (base64.b64encode(CREDENTIAL),), 403, "denied"),
        ("/http/narrow/below/x?y", (base64.b64encode(CREDENTIAL),), 404, "unknown-service"),
    ],
)
async def test_who_gets_in(target: str, credentials: tuple[bytes, ...], status: int, error: str | None) -> None:
    app = Recorder()
    async with open_mesh(front_door(here=app, secret=app)) as mesh:
        assert (await ask(mesh, target, credentials))[:2] == (status, error)
        await mesh.check_idle()
    assert len(app.scopes) == (status == 200)


async def test_a_denial_says_why_and_not_with_what() -> None:
    async with open_mesh(front_door()) as mesh:
        _, _, no_key = await ask(mesh, "/http/here", (b"AAAA",))
        _, _, no_role = await ask(mesh, "/http/secret")
    assert no_key == "http://here is denied: the caller's credential is not honoured: no trusted key signed it\n"
    assert no_role == "http://secret is denied: not for you; whoever runs the mesh can grant it by a policy\n"


@pytest.mark.parametrize(
    ("path", "within"),
    [(b"/http/a", "/"), (b"/http/a/", "/"), (b"/http/a//b", "//b"), (b"/http/a/b%2Fc/d", "/b%2Fc/d")],
)
def test_the_path_that_a_policy_judges_is_the_one_that_a_service_sees(path: bytes, within: str) -> None:
    assert path_within(path) == within


async def test_what_a_service_sees_of_a_call() -> None:
    app = Recorder()
    async with (
        open_mesh(front_door(here=app)) as mesh,
        MeshClient(mesh.calls, base_url=f"{ORIGIN}/http/here") as client,
    ):
        sent = {"X-Peer-Id": "somebody else", "X-Mesh-Principal": "root", "X-Mesh-Biscuit": "forged"}
        response = await client.get("/a%2Fb/c?d=%20e", headers=sent)
    assert response.text == "served"
    assert app.header("x-peer-id") == [str(ALICE).encode()]
    assert [name for name, _ in app.scope["headers"] if name.startswith(b"x-mesh-")] == []
    assert app.header("host") == [host_name(BOB).encode()]
    assert app.scope["raw_path"] == b"/http/here/a%2Fb/c"
    assert (app.scope["root_path"], app.scope["path"]) == ("/http/here", "/http/here/a/b/c")
    assert app.scope["query_string"] == b"d=%20e"


async def test_a_service_cannot_speak_for_the_mesh() -> None:
    app = Recorder({"X-Mesh-Error": "unreachable", "X-Mesh-Other": "a", "X-Other": "b"})
    async with open_mesh(front_door(here=app)) as mesh, MeshClient(mesh.calls) as client:
        response = await client.get(f"{ORIGIN}/http/here")
    assert (
        response.headers.items()
        == httpx.Headers({"x-other": "b", "transfer-encoding": "chunked", "connection": "close"}).items()
    )


async def test_services_come_and_go_while_calls_arrive() -> None:
    table = ServiceTable()
    async with open_mesh(Dispatcher(table, authorize)) as mesh:
        assert (await ask(mesh, "/a2a/late"))[0] == 404
        table.register("a2a", "late", Recorder())
        assert (await ask(mesh, "/a2a/late"))[0] == 200
        table.unregister("a2a", "late")
        assert (await ask(mesh, "/a2a/late"))[0] == 404


async def test_an_mcp_application_is_called_by_a_name_that_the_sdk_takes() -> None:
    app = Recorder({"location": "http://localhost:80/mcp/tools/elsewhere"})
    table = ServiceTable()
    table.register("mcp", "tools", app)
    async with open_mesh(Dispatcher(table, authorize)) as mesh, MeshClient(mesh.calls) as client:
        response = await client.get(f"{ORIGIN}/mcp/tools/here")
    assert app.header("host") == [b"localhost:80"]
    assert response.headers["location"] == "/mcp/tools/elsewhere"


async def test_the_catalog_has_what_the_caller_may_call() -> None:
    door = front_door(here=Recorder(), secret=Recorder(), narrow=Recorder(), also="http://127.0.0.1:1")
    async with open_mesh(door) as mesh:
        assert await ask(mesh, "/system/mesh.catalog") == (200, None, "http://also\nhttp://here\n")
        assert (await ask(mesh, "/system/mesh.catalog", ()))[:2] == (401, "no-credential")
        assert await ask(mesh, "/system/mesh.catalog", (base64.b64encode(b"forged"),)) == (200, None, "\n")
