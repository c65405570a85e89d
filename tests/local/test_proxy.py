"""The proxy to members' services, seen from both ends byte by byte: what is sent arrives, and nothing else."""

import select
from contextlib import suppress
from functools import partial
from pathlib import Path

import httpx2
import pytest
import trio

from agentmesh.identity import Identity
from agentmesh.local import LocalConfig, serve_local_api
from tests.local.backend import Beside, open_beside, until, until_end
from tests.node.loopback import open_loopback

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
HOST = "Host: node\r\n"


class Backend:
    """Answers every request with `answer` and keeps what it was sent."""

    def __init__(self, answer: bytes = OK) -> None:
        self.answer = answer
        self.received = b""

    async def serve(self, stream: trio.SocketStream) -> None:
        self.received = await until(stream, b"\r\n\r\n")
        await stream.send_all(self.answer)


async def test_a_request_arrives_as_it_was_sent(tmp_path: Path) -> None:
    backend = Backend()
    async with open_beside(tmp_path, backend.serve) as beside:
        answer = await beside.ask(
            "GET {x}/a%2Fb%25//c;d=%7e?q=%20&q=+ HTTP/1.1\r\nHost: node\r\nA: 1\r\nX-Mesh-Task: t\r\n"
            "Connection: close, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\nTE: trailers\r\nUpgrade: h2c\r\na: 2\r\n"
            "Authorization: Bearer theirs\r\nAccept-Encoding: gzip\r\nX-Peer-Id: forged\r\n\r\n"
        )
    head, *headers = backend.received.decode().removesuffix("\r\n\r\n").split("\r\n")
    assert head == "GET /a%2Fb%25//c;d=%7e?q=%20&q=+ HTTP/1.1"
    assert headers[1:] == [
        *("a: 1", "a: 2", "authorization: Bearer theirs", "accept-encoding: gzip"),
        *(f"x-peer-id: {beside.caller.peer}", "Connection: close"),
    ]
    assert answer == b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi"


ANSWERS = [
    ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", b""),
    ("GET", b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    ("GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\nETag: e\r\n\r\n", b""),
    ("GET", b"HTTP/1.0 200 OK\r\n\r\nto the end", b"a\r\nto the end\r\n0\r\n\r\n"),
    ("GET", b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\n\x1f\x8b\x00", b"\x1f\x8b\x00"),
]


async def test_an_answer_comes_as_it_was(tmp_path: Path) -> None:
    backend = Backend()
    async with open_beside(tmp_path, backend.serve) as beside:
        for method, backend.answer, body in ANSWERS:
            head, _, came = (await beside.ask(f"{method} {{x}} HTTP/1.1\r\n{HOST}\r\n")).partition(b"\r\n\r\n")
            assert came == body
            for line in backend.answer.partition(b"\r\n\r\n")[0].split(b"\r\n")[1:]:
                assert line in head.split(b"\r\n")


async def test_trailers_and_early_words(tmp_path: Path) -> None:
    asked = b""

    async def serve(stream: trio.SocketStream) -> None:
        nonlocal asked
        asked = await until(stream, b"sum: 1\r\n\r\n")
        await stream.send_all(
            b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"
            b"Set-Cookie: a\r\nset-cookie: b\r\n\r\n2\r\nhi\r\n0\r\nSum: 2\r\n\r\n"
        )

    async with open_beside(tmp_path, serve) as beside:
        head = f"POST {{x}} HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n"
        answer = await beside.ask(head, b"2\r\nho\r\n0\r\nSum: 1\r\n\r\n")
    assert asked.endswith(b"2\r\nho\r\n0\r\nsum: 1\r\n\r\n")
    assert answer == (
        b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\n"
        b"Set-Cookie: a\r\nset-cookie: b\r\nconnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"2\r\nhi\r\n0\r\nSum: 2\r\n\r\n"
    )


async def test_bodies_stream_both_ways_at_once(tmp_path: Path) -> None:
    async def serve(stream: trio.SocketStream) -> None:
        await until(stream, b"first")
        await stream.send_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nready\r\n")
        await until(stream, b"last")
        await stream.send_all(b"4\r\ndone\r\n0\r\n\r\n")

    async with open_beside(tmp_path, serve) as beside, await beside.connect() as stream:
        head = f"POST {beside.prefix} HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n"
        await stream.send_all(head.encode())
        await until(stream, b"ready")
        await stream.send_all(b"4\r\nlast\r\n0\r\n\r\n")
        await until(stream, b"done\r\n0\r\n\r\n")


async def test_a_caller_that_leaves_is_felt_by_the_backend(tmp_path: Path) -> None:
    left = trio.Event()

    async def serve(stream: trio.SocketStream) -> None:
        await until(stream, b"\r\n\r\n")
        await stream.send_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nready\r\n")
        with suppress(trio.BrokenResourceError):
            await until_end(stream)
        left.set()

    async with open_beside(tmp_path, serve) as beside:
        async with await beside.connect() as stream:
            await stream.send_all(f"GET {beside.prefix} HTTP/1.1\r\n{HOST}\r\n".encode())
            await until(stream, b"ready")
        began = trio.current_time()
        with trio.fail_after(5):
            await left.wait()
        assert trio.current_time() - began < 1


async def test_a_caller_that_leaves_is_felt_by_a_backend_that_reads_nothing(tmp_path: Path) -> None:
    left = trio.Event()

    async def serve(stream: trio.SocketStream) -> None:
        look = select.poll()
        look.register(stream.socket.fileno(), select.POLLRDHUP)
        while not look.poll(0):  # noqa: ASYNC110 - only looking tells
            await trio.sleep(0.05)
        left.set()

    async with open_beside(tmp_path, serve) as beside:
        async with await beside.connect() as stream:
            with trio.move_on_after(1):
                await stream.send_all(
                    f"POST {beside.prefix} HTTP/1.1\r\n{HOST}Content-Length: 99999999\r\n\r\n".encode()
                )
                await stream.send_all(bytes(99999999))
        with trio.fail_after(5):
            await left.wait()


async def test_a_backend_that_leaves_is_no_short_success(tmp_path: Path) -> None:
    backend = Backend()
    async with open_beside(tmp_path, backend.serve) as beside, beside.client() as client:
        for framing in (b"Content-Length: 100\r\n", b"Transfer-Encoding: chunked\r\n"):
            backend.answer = b"HTTP/1.1 200 OK\r\n" + framing + b"\r\n5\r\nready\r\n"
            with pytest.raises((httpx2.RemoteProtocolError, httpx2.ReadError)):
                await client.get(beside.prefix)


async def nowhere(beside: Beside, target: str) -> tuple[int, str]:
    async with beside.client() as client:
        answer = await client.get(target)
    return answer.status_code, answer.headers["x-mesh-error"]


async def test_what_the_mesh_answers_itself(tmp_path: Path) -> None:
    silent = Backend(b"")
    async with open_beside(tmp_path, silent.serve) as beside:
        ask = partial(nowhere, beside)
        assert await ask("/mesh/nobody/http/x") == (400, "malformed")
        assert await ask(f"/mesh/{beside.provider.peer}/http") == (400, "malformed")
        assert await ask(f"/mesh/{beside.provider.peer}/http/x/%2e%2e/y") == (400, "malformed")
        assert await ask(f"/mesh/{beside.provider.peer}/other/x") == (400, "malformed")
        assert await ask(f"/mesh/{beside.caller.peer}/http/x") == (400, "malformed")
        assert await ask(f"/mesh/{beside.provider.peer}/http/y") == (404, "unknown-service")
        assert await ask(beside.prefix) == (502, "backend-failed")
        assert await ask(f"/mesh/{Identity.generate().peer}/http/x") == (502, "unreachable")


async def test_a_node_without_a_router_says_so(tmp_path: Path) -> None:
    path = tmp_path / "s"
    async with (
        open_loopback(tmp_path) as mesh,
        await mesh.node(ready_timeout=0.0) as node,
        serve_local_api(node, LocalConfig(path)),
        httpx2.AsyncClient(transport=httpx2.AsyncHTTPTransport(uds=str(path)), base_url="http://node") as client,
    ):
        answer = await client.get(f"/mesh/{Identity.generate().peer}/http/x")
        assert (answer.status_code, answer.headers["x-mesh-error"]) == (503, "not-connected")
        assert (await client.get("/mesh/service/discover?type=http")).status_code == 503
        assert "event: error" in (await client.get("/mesh/service/discover?type=http&stream=1")).text
        assert (await client.get("/v1/models")).json()["data"] == []
        assert [(await client.get(page)).status_code for page in ("/healthz", "/readyz")] == [200, 503]


async def test_a_redirect_leads_through_the_proxy_again(tmp_path: Path) -> None:
    async def serve(stream: trio.SocketStream) -> None:
        asked = (await until(stream, b"\r\n\r\n")).split(b" ")[1]
        moved = b"HTTP/1.1 307 Moved\r\nLocation: /new\r\nContent-Length: 0\r\n\r\n"
        await stream.send_all(moved if asked == b"/old" else OK)

    async with open_beside(tmp_path, serve) as beside, beside.client() as client:
        answer = await client.get(f"{beside.prefix}/old", follow_redirects=True)
        assert (answer.text, answer.url.path) == ("hi", f"{beside.prefix}/new")


@pytest.mark.parametrize(("labels", "status", "error"), [("site=b", 403, "unattested"), ("site", 400, "malformed")])
async def test_a_member_without_a_required_label_is_not_asked(
    tmp_path: Path, labels: str, status: int, error: str
) -> None:
    backend = Backend()
    async with open_beside(tmp_path, backend.serve) as beside, beside.client() as client:
        answer = await client.get(beside.prefix, headers={"X-Mesh-Required-Labels": labels})
        assert (answer.status_code, answer.headers["x-mesh-error"]) == (status, error)
    assert backend.received == b""
