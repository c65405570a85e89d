"""What HTTP/1.1 says beside bodies crosses the mesh too, and neither side has to wait for the other to be whole."""

import trio

from agentmesh.protocols.http import HTTP_ID
from tests.services.backends import open_backend, open_service
from tests.services.mesh import MemoryStream

HEAD = b"POST /http/x HTTP/1.1\r\nHost: h\r\nX-Mesh-Biscuit: AAAA\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


async def until(stream: MemoryStream, end: bytes) -> bytes:
    received = b""
    while end not in received:
        piece = await stream.receive_some()
        assert piece, received
        received += piece
    return received


async def test_trailers_and_early_words_pass() -> None:
    seen = bytearray()

    async def serve(backend: trio.SocketStream) -> None:
        while not seen.lower().endswith(b"sum: 3\r\n\r\n"):
            seen.extend(await backend.receive_some())
        await backend.send_all(
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\nConnection: close\r\n\r\n"
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nSum: 7\r\nsum: 8\r\n\r\n"
        )

    async with open_backend(serve) as backend, open_service(f"http://127.0.0.1:{backend.port}") as mesh:
        stream = mesh.open_stream()
        await stream.send_all(CHUNKED + b"1\r\nx\r\n0\r\nSum: 3\r\n\r\n")
        answer = await until(stream, b"8\r\n\r\n")
        await stream.aclose()
    assert seen.lower().endswith(b"1\r\nx\r\n0\r\nsum: 3\r\n\r\n")
    assert answer == (
        b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
        b"HTTP/1.1 200 OK\r\nconnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"2\r\nhi\r\n0\r\nSum: 7\r\nsum: 8\r\n\r\n"
    )


async def test_an_answer_comes_while_the_request_is_being_sent() -> None:
    async def serve(backend: trio.SocketStream) -> None:
        await backend.send_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nready\r\n")
        while b"last" not in (received := await backend.receive_some()):
            assert received
        await backend.send_all(b"4\r\ndone\r\n0\r\n\r\n")

    async with open_backend(serve) as backend, open_service(f"http://127.0.0.1:{backend.port}") as mesh:
        stream = mesh.open_stream()
        assert stream.protocol == HTTP_ID
        await stream.send_all(CHUNKED + b"5\r\nfirst\r\n")
        await until(stream, b"ready")
        await stream.send_all(b"4\r\nlast\r\n0\r\n\r\n")
        await until(stream, b"done\r\n0\r\n\r\n")
        await stream.aclose()
        await mesh.check_idle()


async def test_an_answer_may_be_whole_before_the_request() -> None:
    async with (
        open_backend(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nbig") as backend,
        open_service(f"http://127.0.0.1:{backend.port}") as mesh,
    ):
        stream = mesh.open_stream()
        await stream.send_all(HEAD + b"Content-Length: 1000000\r\n\r\nbegun")
        assert (await until(stream, b"big")).startswith(b"HTTP/1.1 413 ")
        await stream.aclose()
