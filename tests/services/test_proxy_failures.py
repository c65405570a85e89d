"""Servers that fail and callers that leave; and servers behind https."""

import datetime
import ipaddress
import ssl
from pathlib import Path

import httpx2
import pytest
import trio
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from trio.testing import wait_all_tasks_blocked

from agentmesh.errors import StreamResetError
from agentmesh.services import MeshClient2, ReverseProxy
from agentmesh.testing.cancellation import cancel_at_every_await
from tests.services.backends import OK, ORIGIN, ask, open_backend, open_pair, open_service
from tests.services.mesh import open_mesh

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
        if said:
            await stream.send_all(said)
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
        seen = b""
        while said and not seen.endswith(b"part\r\n"):
            seen += await stream.receive_some()
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
