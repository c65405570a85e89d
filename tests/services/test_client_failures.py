"""Calls that fail: what the caller is told, and how soon."""

import pytest
import trio
from trio.testing import MockClock

from agentmesh.abc import Stream
from agentmesh.errors import DialError, ErrorCode, NotConnectedError, RejectedError, RemoteProtocolError
from agentmesh.protocols.http import Receive, Scope, Send
from agentmesh.services import Calls
from agentmesh.types import PeerId
from tests.services.libraries import ORIGIN, Echo, Library, hang
from tests.services.mesh import ALICE, CREDENTIAL, MemoryStream, open_mesh


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
