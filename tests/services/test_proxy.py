"""Services behind URLs: what a server is sent, and what its caller gets."""

from collections.abc import AsyncIterator

import pytest
import trio

from tests.services.backends import OK, ORIGIN, ask, open_backend, open_pair, open_service
from tests.services.mesh import ALICE

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
        b"HTTP/1.1 206 Partial Content\r\nSet-Cookie: a\r\nset-cookie: b\r\nContent-Encoding: gzip\r\n"
        b"Content-Length: 2\r\nconnection: close\r\n\r\nhi"
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
