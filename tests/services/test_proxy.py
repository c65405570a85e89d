"""Services behind URLs: what a real server on loopback is sent, and what its caller gets."""

import datetime
import ipaddress
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import httpx2
import pytest
import trio
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from trio.testing import wait_all_tasks_blocked

from agentmesh.errors import StreamResetError
from agentmesh.services import Dispatcher, MeshClient2, ReverseProxy, ServiceTable, host_name
from agentmesh.testing.cancellation import cancel_at_every_await
from tests.services.mesh import ALICE, BOB, Mesh, open_mesh

ORIGIN = f"http://{host_name(BOB)}"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"

Handler = Callable[[trio.SocketStream], Awaitable[None]]


@attrs.define
class Backend:
    """A server on loopback that collects what it is sent."""

    port: int
    received: bytearray
    ended: trio.Event  # a connection was closed by its client


@asynccontextmanager
async def open_backend(answer: bytes | Handler = OK) -> AsyncGenerator[Backend]:
    """Answers each connection with `answer` once the head of a request is there, or hands it to `answer`."""
    backend = Backend(0, bytearray(), trio.Event())

    async def serve(stream: trio.SocketStream) -> None:
        if not isinstance(answer, bytes):
            await answer(stream)
            return
        while b"\r\n\r\n" not in backend.received:
            if not (piece := await stream.receive_some()):
                return
            backend.received += piece
        await stream.send_all(answer)

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, serve, 0)
        backend.port = listeners[0].socket.getsockname()[1]
        yield backend
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def open_service(url: str) -> AsyncGenerator[Mesh]:
    """A mesh in which BOB serves `url` as http://x."""
    table = ServiceTable()
    table.register("http", "x", url)
    async with open_mesh(Dispatcher(table, lambda credential, peer, type, name: None)) as mesh:
        yield mesh


@asynccontextmanager
async def open_pair(answer: bytes | Handler = OK, path: str = "") -> AsyncGenerator[tuple[httpx2.AsyncClient, Backend]]:
    async with (
        open_backend(answer) as backend,
        open_service(f"http://127.0.0.1:{backend.port}{path}") as mesh,
        MeshClient2(mesh.calls, base_url=f"{ORIGIN}/http/x") as client,
    ):
        yield client, backend


async def ask(mesh: Mesh, request: bytes) -> bytes:
    stream = mesh.open_stream()
    await stream.send_all(request)
    data = b""
    while piece := await stream.receive_some():
        data += piece
    await stream.aclose()
    return data


# ── what the server is sent ──


async def test_a_request_goes_on_as_it_came() -> None:
    request = (
        b"GET /http/x/a%2Fb//c;d=%7e?q=%20&q=+ HTTP/1.1\r\nHost: h\r\nX-Mesh-Biscuit: AAAA\r\nX-Mesh-Task: t\r\n"
        b"A: 1\r\nX-Forwarded-For: 10.0.0.1\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\nTE: trailers\r\na: 2\r\n"
        b"Authorization: Bearer mine\r\nAccept-Encoding: gzip\r\nCookie: c\r\n\r\n"
    )
    async with open_backend() as backend, open_service(f"http://127.0.0.1:{backend.port}") as mesh:
        assert (await ask(mesh, request)).endswith(b"hi")
    assert bytes(backend.received).decode() == (
        "GET /a%2Fb//c;d=%7e?q=%20&q=+ HTTP/1.1\r\n"
        f"Host: 127.0.0.1:{backend.port}\r\n"
        "a: 1\r\na: 2\r\nauthorization: Bearer mine\r\naccept-encoding: gzip\r\ncookie: c\r\n"
        f"x-peer-id: {ALICE}\r\nConnection: close\r\n\r\n"
    )


@pytest.mark.parametrize(
    ("path", "asked", "target"),
    [
        ("", "/http/x", "/"),
        ("", "/http/x/", "/"),
        ("/", "/http/x/a", "/a"),
        ("/app", "/http/x", "/app"),
        ("/app/", "/http/x/", "/app/"),
        ("/app", "/http/x/a?b", "/app/a?b"),
        ("/app", "/http/x?b", "/app?b"),
        ("/app", "/http/x//a", "/app//a"),
    ],
)
async def test_a_path_goes_on_below_the_urls(path: str, asked: str, target: str) -> None:
    async with open_pair(path=path) as (client, backend):
        await client.get(ORIGIN + asked)
    assert backend.received.split(b" ")[1] == target.encode()


async def test_a_body_keeps_its_framing() -> None:
    async def body() -> AsyncIterator[bytes]:
        yield b"one"
        yield b"two"

    async def serve(stream: trio.SocketStream) -> None:
        while not backend.received.endswith((b"sized", b"0\r\n\r\n")):
            backend.received += await stream.receive_some()
        await stream.send_all(OK)

    async with open_pair(serve) as (client, backend):
        assert (await client.post("/", content=b"sized")).text == "hi"
        assert b"content-length: 5\r\n" in backend.received
        assert b"ransfer-" not in backend.received
        backend.received.clear()
        assert (await client.post("/", content=body(), headers={"Expect": "100-continue"})).text == "hi"
        assert b"Transfer-Encoding: chunked\r\n" in backend.received
        assert b"".join(backend.received.partition(b"\r\n\r\n")[2].split(b"\r\n")[1::2]) == b"onetwo"
        assert b"xpect" not in backend.received


# ── what the caller gets ──


async def test_an_answer_comes_back_as_it_was() -> None:
    answer = (
        b"HTTP/1.1 206 Partial\r\nSet-Cookie: a\r\nset-cookie: b\r\nContent-Encoding: gzip\r\nKeep-Alive: timeout=5\r\n"
        b"X-Mesh-Error: forged\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nhi"
    )
    async with open_backend(answer) as backend, open_service(f"http://127.0.0.1:{backend.port}") as mesh:
        data = await ask(mesh, b"GET /http/x HTTP/1.1\r\nHost: h\r\nX-Mesh-Biscuit: AAAA\r\n\r\n")
    assert data == (
        b"HTTP/1.1 206 \r\nSet-Cookie: a\r\nset-cookie: b\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n"
        b"connection: close\r\n\r\nhi"
    )


@pytest.mark.parametrize(
    ("method", "answer", "body"),
    [
        ("GET", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nTrailer: t\r\n\r\n", "hi"),
        ("GET", b"HTTP/1.1 100 Continue\r\n\r\n" + OK, "hi"),
        ("GET", b"HTTP/1.0 200 OK\r\n\r\nto the end", "to the end"),
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", ""),
        ("GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\n\r\n", ""),
        ("GET", b"HTTP/1.1 204 No Content\r\n\r\n", ""),
    ],
)
async def test_every_framing_of_an_answer(method: str, answer: bytes, body: str) -> None:
    async with open_pair(answer) as (client, _):
        assert (await client.request(method, "/")).text == body


async def test_a_redirect_leads_through_the_mesh_again() -> None:
    async def serve(stream: trio.SocketStream) -> None:
        asked = (await stream.receive_some()).split(b" ")[1]
        location = b"Location: http://127.0.0.1:%d/app/new\r\n" % backend.port if asked == b"/app/old" else b""
        await stream.send_all(OK.replace(b"200 OK\r\n", b"307 OK\r\n" + location if location else b"200 OK\r\n"))

    async with open_pair(serve, "/app") as (client, backend):
        response = await client.get("/old", follow_redirects=True)
    assert response.status_code == 200
    assert str(response.url) == f"{ORIGIN}/http/x/new"


async def test_bodies_stream_both_ways() -> None:
    async def serve(stream: trio.SocketStream) -> None:
        seen = b""
        while not seen.endswith(b"one\r\n"):
            seen += await stream.receive_some()
        proceed.set()
        while not seen.endswith(b"0\r\n\r\n"):
            seen += await stream.receive_some()
        await stream.send_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nuno\r\n")
        await finish.wait()
        await stream.send_all(b"3\r\ndue\r\n0\r\n\r\n")

    async def body() -> AsyncIterator[bytes]:
        yield b"one"
        await proceed.wait()
        yield b"two"

    proceed, finish = trio.Event(), trio.Event()
    async with open_pair(serve) as (client, _), client.stream("POST", "/", content=body()) as response:
        parts = response.aiter_raw()
        assert await anext(parts) == b"uno"
        finish.set()
        assert [part async for part in parts] == [b"due"]


async def test_an_early_answer_to_a_large_upload() -> None:
    async def serve(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        await stream.send_eof()
        while await stream.receive_some():
            pass

    async with open_pair(serve) as (client, _):
        assert (await client.post("/", content=bytes(3_000_000))).status_code == 413


# ── servers that fail ──


async def test_a_server_that_is_not_there_is_502() -> None:
    async with open_backend() as backend:
        pass
    async with (
        open_service(f"http://127.0.0.1:{backend.port}") as mesh,
        MeshClient2(mesh.calls, base_url=f"{ORIGIN}/http/x") as client,
    ):
        response = await client.post("/", content=b"body")
    assert (response.status_code, response.headers["x-mesh-error"]) == (502, "backend-unreachable")
    assert response.text == "the server of http://x cannot be reached\n"  # and nothing of where it is


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200", b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 200 OK\r\nbad\r\n\r\n"])
async def test_a_server_that_gives_no_answer_is_502(answer: bytes) -> None:
    async with open_pair(answer) as (client, _):
        response = await client.get("/")
    assert (response.status_code, response.headers["x-mesh-error"]) == (502, "backend-failed")


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npart",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\nnonsense\r\n",
    ],
)
async def test_a_server_that_breaks_off_is_an_error_and_never_short(
    answer: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_pair(answer) as (client, _):
        with pytest.raises((httpx2.ReadError, httpx2.RemoteProtocolError)):
            await client.get("/")
    assert "application failed" in caplog.messages


# ── callers that leave ──


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n"])
async def test_a_caller_that_leaves_ends_the_servers_work_at_once(said: bytes) -> None:
    async def serve(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(said or b" ")
        asked.set()
        try:
            while await stream.receive_some():
                pass
        except trio.BrokenResourceError:
            pass
        backend.ended.set()

    asked = trio.Event()
    async with open_backend(serve) as backend, open_service(f"http://127.0.0.1:{backend.port}") as mesh:
        stream = mesh.open_stream()
        await stream.send_all(b"GET /http/x HTTP/1.1\r\nHost: h\r\nX-Mesh-Biscuit: AAAA\r\n\r\n")
        await asked.wait()
        stream.reset()
        with trio.fail_after(5):
            await backend.ended.wait()
        await mesh.check_idle()


async def test_a_caller_that_leaves_in_its_request_is_not_half_heard() -> None:
    async def serve(stream: trio.SocketStream) -> None:
        try:
            while piece := await stream.receive_some():
                backend.received += piece
                asked.set()
        except trio.BrokenResourceError:
            pass
        backend.ended.set()

    asked = trio.Event()
    async with open_backend(serve) as backend, open_service(f"http://127.0.0.1:{backend.port}") as mesh:
        stream = mesh.open_stream()
        chunked = b"POST /http/x HTTP/1.1\r\nHost: h\r\nX-Mesh-Biscuit: AAAA\r\nTransfer-Encoding: chunked\r\n\r\n"
        await stream.send_all(chunked + b"4\r\npart\r\n")
        await asked.wait()
        await stream.send_eof()
        with pytest.raises(StreamResetError):
            await stream.receive_some()
        await stream.aclose()
        with trio.fail_after(5):
            await backend.ended.wait()
        assert not backend.received.endswith(b"0\r\n\r\n")
        await mesh.check_idle()


async def test_cancelling_a_call_at_every_await_leaves_nothing() -> None:
    async def serve(stream: trio.SocketStream) -> None:
        try:
            while (piece := await stream.receive_some()) and not piece.endswith(b"body"):
                pass
            await stream.send_all(OK)
            await stream.send_eof()
            await stream.receive_some()
        except trio.BrokenResourceError:
            pass

    async with open_backend(serve) as backend, open_service(f"http://127.0.0.1:{backend.port}") as mesh:

        async def once() -> None:
            async with MeshClient2(mesh.calls, base_url=f"{ORIGIN}/http/x", verify=False) as client:
                assert (await client.post("/", content=b"body")).text == "hi"

        assert await cancel_at_every_await(once) > 10


async def test_the_proxy_cancelled_at_every_await_leaves_nothing() -> None:
    async with open_backend() as backend:

        async def once() -> None:
            backend.received.clear()
            async with open_service(f"http://127.0.0.1:{backend.port}") as mesh:
                stream = mesh.open_stream()
                try:
                    await stream.send_all(b"GET /http/x HTTP/1.1\r\nHost: h\r\nX-Mesh-Biscuit: AAAA\r\n\r\n")
                    while await stream.receive_some():
                        pass
                finally:
                    await stream.aclose()

        assert await cancel_at_every_await(once) > 20
        await wait_all_tasks_blocked()


# ── https ──


def certificate(folder: Path) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "backend")])
    now = datetime.datetime.now(datetime.UTC)
    built = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(built.public_bytes(serialization.Encoding.PEM))
    encoding = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "key.pem").write_bytes(key.private_bytes(*encoding))
    return folder / "cert.pem", folder / "key.pem"


async def test_a_server_behind_https(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)

    async def serve(plain: trio.SocketStream) -> None:
        stream = trio.SSLStream(plain, context, server_side=True, https_compatible=True)
        try:
            await stream.receive_some()
            await stream.send_all(OK)
        except trio.BrokenResourceError:
            pass

    request = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"
    async with open_backend(serve) as backend:
        url = f"https://127.0.0.1:{backend.port}"
        async with open_mesh(ReverseProxy(url, ssl.create_default_context(cafile=cert))) as mesh:
            assert (await ask(mesh, request)).endswith(b"hi")
        async with open_mesh(ReverseProxy(url)) as mesh:  # the system does not trust it
            assert (await ask(mesh, request)).startswith(b"HTTP/1.1 502 ")
