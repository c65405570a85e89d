"""httpx and httpx2 over the mesh: the same promises for both."""

import base64
from collections.abc import AsyncIterator, Callable
from types import ModuleType
from typing import Any

import attrs
import httpx
import httpx2
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from agentmesh.abc import Stream
from agentmesh.errors import DialError, ErrorCode, NotConnectedError, RejectedError, RemoteProtocolError
from agentmesh.protocols.http import ASGIApp, Receive, Scope, Send
from agentmesh.services import Calls, MeshClient, MeshClient2, host_name
from agentmesh.testing.cancellation import cancel_at_every_await
from agentmesh.types import PeerId
from tests.services.mesh import ALICE, BOB, CREDENTIAL, MemoryStream, open_mesh

ORIGIN = f"http://{host_name(BOB)}"
Client = Any  # httpx.AsyncClient and httpx2.AsyncClient have no common class


@attrs.frozen
class Library:
    module: Any
    client: Callable[..., Client]


LIBRARIES = [Library(httpx, MeshClient), Library(httpx2, MeshClient2)]


@pytest.fixture(params=LIBRARIES, ids=lambda library: library.module.__name__)
def library(request: pytest.FixtureRequest) -> Library:
    found: Library = request.param
    return found


class Echo:
    """Answers with the body it got, and remembers what it saw."""

    def __init__(self) -> None:
        self.scopes: list[Scope] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scopes.append(scope)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"a", b"1"), (b"A", b"2")]})
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            more = message["more_body"]
            await send({"type": "http.response.body", "body": message["body"], "more_body": more})


async def test_a_call(library: Library) -> None:
    app = Echo()
    async with open_mesh(app) as mesh, library.client(mesh.calls) as client:
        response = await client.post(f"{ORIGIN}/http/x/a%2fb?c=d", content=b"hello", headers=[("h", "1"), ("h", "2")])
        assert (response.status_code, response.content) == (200, b"hello")
        assert response.headers.get_list("a") == ["1", "2"]
        await mesh.check_idle()
    headers = app.scopes[0]["headers"]
    assert [value for name, value in headers if name == b"h"] == [b"1", b"2"]
    assert [value for name, value in headers if name == b"x-mesh-biscuit"] == [base64.b64encode(CREDENTIAL)]
    assert (app.scopes[0]["raw_path"], app.scopes[0]["query_string"]) == (b"/http/x/a%2fb", b"c=d")


async def test_each_request_has_a_stream_of_its_own_and_the_credential_of_its_time(library: Library) -> None:
    app = Echo()
    credentials = iter([b"first", b"second"])
    async with (
        open_mesh(app) as mesh,
        library.client(
            Calls(mesh.open_peer, lambda: next(credentials)), headers={"Connection": "keep-alive"}
        ) as client,
    ):
        for _ in range(2):
            await client.get(ORIGIN)
            await mesh.check_idle()
        assert len(mesh.streams) == 4
    sent = [dict(scope["headers"]) for scope in app.scopes]
    assert [base64.b64decode(headers[b"x-mesh-biscuit"]) for headers in sent] == [b"first", b"second"]
    assert [headers[b"connection"] for headers in sent] == [b"close", b"close"]


async def test_many_calls_at_once(library: Library) -> None:
    async with open_mesh(Echo()) as mesh, library.client(mesh.calls) as client, trio.open_nursery() as nursery:

        async def call(number: int) -> None:
            response = await client.post(ORIGIN, content=b"%d" % number)
            assert response.content == b"%d" % number

        for number in range(200):
            nursery.start_soon(call, number)
    await mesh.check_idle()


# ── names ──


@pytest.mark.parametrize("spelling", [str(BOB), str(BOB.dns_label), BOB.dns_label.upper()])
async def test_every_spelling_of_a_peer_reaches_it(library: Library, spelling: str) -> None:
    app = Echo()
    async with (
        open_mesh(app) as mesh,
        library.client(mesh.calls, base_url=f"http://{spelling}.peer.mesh/http/x") as client,
    ):
        assert (await client.get("/a")).status_code == 200
        assert (await client.get(f"http://{spelling}.peer.mesh/b")).status_code == 200
        async with client.stream("GET", f"http://{spelling}.peer.mesh/c") as response:
            assert response.status_code == 200
            await response.aread()
    assert [scope["path"] for scope in app.scopes] == ["/http/x/a", "/b", "/c"]


async def test_a_base58_id_in_a_parsed_url_is_explained(library: Library) -> None:
    async with open_mesh(Echo()) as mesh, library.client(mesh.calls) as client:
        with pytest.raises(library.module.InvalidURL, match="dns_label"):
            await client.get(library.module.URL(f"http://{BOB}.peer.mesh/"))
        with pytest.raises(library.module.InvalidURL, match="not a peer ID"):
            await client.get("http://nobody.peer.mesh/")
        with pytest.raises(library.module.UnsupportedProtocol, match="http"):
            await client.get(f"https://{host_name(BOB)}/")
        assert (await client.get(library.module.URL(ORIGIN))).status_code == 200


async def test_a_redirect_may_spell_a_peer_as_it_likes(library: Library) -> None:
    async def redirect(scope: Scope, receive: Receive, send: Send) -> None:
        to = {"/one": f"http://{BOB}.peer.mesh/two", "/two": "/three"}.get(scope["path"])
        headers = [(b"location", to.encode())] if to else []
        await send({"type": "http.response.start", "status": 307 if to else 200, "headers": headers})
        await send({"type": "http.response.body", "body": scope["path"].encode()})

    async with open_mesh(redirect) as mesh, library.client(mesh.calls, follow_redirects=True) as client:
        response = await client.get(f"{ORIGIN}/one")
    assert response.text == "/three"
    assert len(response.history) == 2


async def test_other_hosts_are_reached_over_the_network(library: Library) -> None:
    async def answer(request: Any) -> Any:
        return library.module.Response(200, text=request.url.host)

    elsewhere = library.module.MockTransport(answer)
    async with open_mesh(Echo()) as mesh:
        async with library.client(mesh.calls, transport=elsewhere) as client:
            assert (await client.get("http://example.org/")).text == "example.org"
            assert (await client.get("http://peer.mesh/")).text == "peer.mesh"
            assert (await client.get(ORIGIN)).content == b""
        async with library.client(mesh.calls, mounts={"all://example.org": elsewhere}) as client:
            assert (await client.get("http://example.org/")).text == "example.org"
            assert (await client.get(ORIGIN)).content == b""


# ── calls that fail ──


def failing(error: Exception) -> Calls:
    async def open_peer(peer: PeerId) -> Stream:
        await trio.lowlevel.checkpoint()
        raise error

    return Calls(open_peer, lambda: CREDENTIAL)


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (DialError("no route"), 502, "unreachable"),
        (RemoteProtocolError("no TLS"), 502, "unreachable"),
        (NotConnectedError("no router"), 503, "not-connected"),
        (RejectedError("full", ErrorCode.RESOURCE_LIMIT_EXCEEDED), 503, "refused"),
    ],
)
async def test_a_peer_that_cannot_be_called(library: Library, error: Exception, status: int, reason: str) -> None:
    async with library.client(failing(error)) as client:
        response = await client.post(f"http://{ALICE}.peer.mesh/mcp/x", content=b"body")
    assert (response.status_code, response.headers["x-mesh-error"]) == (status, reason)
    assert response.headers["content-type"].startswith("text/plain")
    assert str(ALICE) in response.text
    assert str(error) in response.text


async def test_a_member_without_a_credential_is_not_connected(library: Library) -> None:
    def none() -> bytes:
        raise NotConnectedError("not enrolled")

    async with open_mesh(Echo()) as mesh, library.client(Calls(mesh.open_peer, none)) as client:
        response = await client.get(ORIGIN)
        assert (response.status_code, response.headers["x-mesh-error"]) == (503, "not-connected")
        assert mesh.streams == []


class RefusedStream(MemoryStream):
    """A stream that the peer refuses: as in the runtime, the first receive says so."""

    code: int = ErrorCode.GATED

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        await trio.lowlevel.checkpoint()
        raise RejectedError("go away", self.code)


@pytest.mark.parametrize(
    ("code", "status", "reason"),
    [
        (ErrorCode.GATED, 403, "denied"),
        (ErrorCode.PROTOCOL_NEGOTIATION_FAILED, 502, "unreachable"),
        (ErrorCode.RATE_LIMITED, 503, "refused"),
        (ErrorCode.SHUTDOWN, 503, "refused"),
    ],
)
async def test_a_stream_that_the_peer_refuses(library: Library, code: ErrorCode, status: int, reason: str) -> None:
    async with open_mesh(Echo()) as mesh:

        async def open_peer(peer: PeerId) -> Stream:
            stream = await mesh.open_peer(peer)
            stream.__class__ = type("Refused", (RefusedStream,), {"code": code})
            return stream

        async with library.client(Calls(open_peer, lambda: CREDENTIAL)) as client:
            response = await client.get(ORIGIN)
            assert (response.status_code, response.headers["x-mesh-error"]) == (status, reason)
            await mesh.check_idle()


async def hang(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["path"] == "/body":
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b"part", "more_body": True})
    if scope["path"] == "/upload":
        await trio.sleep(50)
    while (await receive())["type"] != "http.disconnect":
        pass


@pytest.mark.parametrize(
    ("path", "error"), [("/head", "ReadTimeout"), ("/body", "ReadTimeout"), ("/upload", "WriteTimeout")]
)
async def test_timeouts(library: Library, autojump_clock: MockClock, path: str, error: str) -> None:
    async with open_mesh(hang) as mesh, library.client(mesh.calls, timeout=3) as client:
        with pytest.raises(getattr(library.module, error)):
            await client.post(ORIGIN + path, content=bytes(1_000_000 if path == "/upload" else 0))
        assert trio.current_time() == pytest.approx(3, abs=0.1)
        await trio.sleep(100)
        await mesh.check_idle()


async def test_a_dial_that_takes_too_long(library: Library, autojump_clock: MockClock) -> None:
    async def open_peer(peer: PeerId) -> Stream:
        await trio.sleep_forever()
        raise AssertionError("unreachable")

    async with library.client(Calls(open_peer, lambda: CREDENTIAL), timeout=3) as client:
        with pytest.raises(library.module.ConnectTimeout):
            await client.get(ORIGIN)
    assert trio.current_time() == pytest.approx(3, abs=0.1)


async def test_an_answer_that_breaks_off_is_an_error_and_never_short(library: Library) -> None:
    async def break_off(scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-length", b"9")] if scope["path"] == "/sized" else []
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"part", "more_body": True})

    async with open_mesh(break_off) as mesh, library.client(mesh.calls) as client:
        for path in ("/sized", "/chunked"):
            with pytest.raises((library.module.ReadError, library.module.RemoteProtocolError)):
                await client.get(ORIGIN + path)
        await mesh.check_idle()


async def test_an_early_answer_to_a_large_upload_is_read(library: Library) -> None:
    async def too_large(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 413, "headers": [(b"content-length", b"9")]})
        await send({"type": "http.response.body", "body": b"too large"})

    async with open_mesh(too_large) as mesh, library.client(mesh.calls) as client:
        for size in (100_000, 3_000_000):
            response = await client.post(ORIGIN, content=bytes(size))
            assert (response.status_code, response.text) == (413, "too large")
        await mesh.check_idle()


# ── bodies ──


async def test_bodies_stream_both_ways(library: Library) -> None:
    proceed = trio.Event()

    async def pieces() -> AsyncIterator[bytes]:
        yield b"one"
        await proceed.wait()
        yield b"two"

    arrived: list[bytes] = []

    async def collect(scope: Scope, receive: Receive, send: Send) -> None:
        arrived.append((await receive())["body"])
        proceed.set()
        await Echo()(scope, receive, send)

    async with open_mesh(collect) as mesh, library.client(mesh.calls) as client:
        response = await client.post(ORIGIN, content=pieces())
        assert (arrived, response.content) == ([b"one"], b"two")


async def test_an_answer_arrives_while_it_is_made(library: Library) -> None:
    proceed = trio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        await proceed.wait()
        await send({"type": "http.response.body", "body": b"two"})

    async with open_mesh(slow) as mesh, library.client(mesh.calls) as client:
        async with client.stream("GET", ORIGIN) as response:
            parts = response.aiter_raw()
            assert await anext(parts) == b"one"
            proceed.set()
            assert [part async for part in parts] == [b"two"]
        await mesh.check_idle()


@settings(max_examples=30, deadline=None)
@given(pieces=st.lists(st.binary(max_size=3000), max_size=8), window=st.integers(1, 5000), sized=st.booleans())
def test_a_body_comes_back_as_it_went(pieces: list[bytes], window: int, sized: bool) -> None:
    async def body() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    async def main(library: Library) -> None:
        async with open_mesh(Echo(), window=window) as mesh, library.client(mesh.calls) as client:
            headers = {"content-length": str(sum(map(len, pieces)))} if sized else {}
            response = await client.post(ORIGIN, content=body(), headers=headers)
            assert response.content == b"".join(pieces)

    for library in LIBRARIES:
        trio.run(main, library)


# ── callers that leave ──


async def test_leaving_the_answer_tells_the_provider(library: Library) -> None:
    left = trio.Event()

    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass
        left.set()

    async with open_mesh(endless) as mesh, library.client(mesh.calls) as client:
        async with client.stream("GET", ORIGIN):
            await wait_all_tasks_blocked()
            assert not left.is_set()
        await left.wait()
        await mesh.check_idle()


async def test_a_body_that_fails_tells_the_provider(library: Library) -> None:
    async def fail() -> AsyncIterator[bytes]:
        yield b"one"
        raise ZeroDivisionError

    async with open_mesh(hang) as mesh, library.client(mesh.calls) as client:
        with pytest.raises(ZeroDivisionError):
            await client.post(ORIGIN, content=fail())
        await mesh.check_idle()


async def stream_both_ways(client: Client) -> None:
    # A channel and no generator: httpx (not httpx2) leaves generators to the garbage collector, which Trio warns of.
    sending, body = trio.open_memory_channel[bytes](2)
    for _ in range(2):
        sending.send_nowait(bytes(100))
    sending.close()
    response = await client.post(ORIGIN, content=body)
    assert response.content == bytes(200)


@pytest.mark.parametrize("app", [Echo(), hang], ids=["echo", "hang"])
async def test_cancelling_a_call_at_every_await_leaves_nothing(
    library: Library, app: ASGIApp, autojump_clock: MockClock
) -> None:
    async with open_mesh(app, window=70) as mesh, library.client(mesh.calls, timeout=5) as client:

        async def once() -> None:
            try:
                await stream_both_ways(client)
            except library.module.ReadTimeout:
                assert app is hang

        assert await cancel_at_every_await(once, check=mesh.check_idle) > 10


async def test_a_call_cancelled_just_as_its_stream_opens_leaves_nothing(library: Library) -> None:
    async with open_mesh(Echo()) as mesh:

        async def open_peer(peer: PeerId) -> Stream:
            stream = await mesh.open_peer(peer)
            scope.cancel()
            return stream

        async with library.client(Calls(open_peer, lambda: CREDENTIAL)) as client:
            with trio.CancelScope() as scope:
                await client.get(ORIGIN)
            assert scope.cancelled_caught
            await mesh.check_idle()


def test_the_libraries_are_two() -> None:
    modules: list[ModuleType] = [library.module for library in LIBRARIES]
    assert modules == [httpx, httpx2]
