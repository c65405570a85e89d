"""HTTP between two real hosts: TLS, yamux and multistream below it, a memory transport at the bottom."""

import hashlib
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import attrs
import httpx2
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from agentmesh.abc import Admission, Stream
from agentmesh.authorization import Call
from agentmesh.errors import CredentialError
from agentmesh.identity import Identity
from agentmesh.protocols.http import HTTP_ID, ASGIApp, Receive, Scope, Send, peer_of, protocol
from agentmesh.runtime.host import Host, open_host
from agentmesh.runtime.registry import Protocol
from agentmesh.services import Calls, Dispatcher, MeshClient2, ServiceTable, host_name
from agentmesh.testing.cancellation import cancel_at_every_await
from agentmesh.transports.memory import MemoryHub, MemoryTransport
from agentmesh.types import Address, PeerId

PIECE = bytes(range(256)) * 256


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    headers = [(b"caller", str(peer_of(scope)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        more = message["more_body"]
        await send({"type": "http.response.body", "body": message["body"], "more_body": more})


def front_door(app: ASGIApp) -> Dispatcher:
    table = ServiceTable()
    table.register("http", "x", app)

    def authorize(credential: bytes, peer: PeerId, call: Call) -> None:
        if credential != str(peer).encode():
            raise CredentialError("another peer's", "wrong_peer")

    return Dispatcher(table, authorize)


@attrs.frozen
class Pair:
    """A caller and a provider that it has a session to."""

    caller: Host
    provider: Host

    @property
    def calls(self) -> Calls:
        return Calls(self._open_peer, lambda: str(self.caller.peer).encode())

    @property
    def url(self) -> str:
        return f"http://{host_name(self.provider.peer)}/http/x"

    async def _open_peer(self, peer: PeerId) -> Stream:
        await self.caller.connect(peer, self.provider.addresses)
        return await self.caller.open_stream(peer, HTTP_ID)

    async def check_idle(self) -> None:
        """No stream is open or being served at either end."""
        with trio.fail_after(5):
            while any(self._streams()) or self.provider.statistics().streams.serving:
                await wait_all_tasks_blocked()
                await trio.sleep(0.01)

    def _streams(self) -> list[int]:
        sessions = (self.caller.session(self.provider.peer), self.provider.session(self.caller.peer))
        return [session.statistics().streams for session in sessions if session is not None]


@asynccontextmanager
async def open_pair(protocols: Sequence[Protocol]) -> AsyncGenerator[Pair]:
    transport = MemoryTransport(MemoryHub())
    async with (
        open_host(
            identity=Identity.generate(),
            transports=[transport],
            protocols=protocols,
            listen=[Address.parse("/memory/1")],
        ) as provider,
        open_host(identity=Identity.generate(), transports=[transport]) as caller,
    ):
        yield Pair(caller, provider)


async def test_a_call_between_hosts() -> None:
    async with open_pair([protocol(front_door(echo))]) as pair, MeshClient2(pair.calls) as client:
        response = await client.post(f"{pair.url}/a", content=b"hello")
        assert (response.status_code, response.content) == (200, b"hello")
        assert response.headers["caller"] == str(pair.caller.peer)
        assert (await client.get(pair.url.replace("/x", "/y"))).status_code == 404
        await pair.check_idle()


async def test_the_credential_of_another_peer_is_denied() -> None:
    async with open_pair([protocol(front_door(echo))]) as pair:
        calls = attrs.evolve(pair.calls, credential=lambda: str(pair.provider.peer).encode())
        async with MeshClient2(calls) as client:
            response = await client.get(pair.url)
    assert (response.status_code, response.headers["x-mesh-error"]) == (403, "denied")


async def test_a_large_body_goes_and_comes_back() -> None:
    async def body() -> AsyncGenerator[bytes]:
        for _ in range(64):
            yield PIECE

    async with open_pair([protocol(front_door(digest_of_the_request))]) as pair, MeshClient2(pair.calls) as client:
        async with client.stream("POST", pair.url, content=body()) as response:
            received = hashlib.sha256()
            async for part in response.aiter_raw():
                received.update(part)
        await pair.check_idle()
    expected = hashlib.sha256(PIECE * 64).hexdigest()
    assert (response.headers["digest"], received.hexdigest()) == (expected, expected)


async def digest_of_the_request(scope: Scope, receive: Receive, send: Send) -> None:
    body = bytearray()
    while (message := await receive())["more_body"]:
        body += message["body"]
    body += message["body"]
    digest = hashlib.sha256(body).hexdigest().encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"digest", digest)]})
    for start in range(0, len(body), len(PIECE)):
        piece = bytes(body[start : start + len(PIECE)])
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body"})


async def test_an_early_answer_to_a_large_upload_is_read() -> None:
    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 413, "headers": [(b"content-length", b"9")]})
        await send({"type": "http.response.body", "body": b"too large"})

    async with open_pair([protocol(front_door(refuse))]) as pair, MeshClient2(pair.calls) as client:
        for size in (100_000, 10_000_000):
            assert (await client.post(pair.url, content=bytes(size))).text == "too large"
        await pair.check_idle()


@pytest.mark.parametrize(
    ("protocols", "status", "reason"),
    [([], 502, "unreachable"), ([protocol(echo, admission=Admission.MEMBER)], 403, "denied")],
)
async def test_a_peer_that_refuses_the_stream(protocols: list[Protocol], status: int, reason: str) -> None:
    async with open_pair(protocols) as pair, MeshClient2(pair.calls) as client:
        response = await client.post(pair.url, content=b"body")
        assert (response.status_code, response.headers["x-mesh-error"]) == (status, reason)
        await pair.check_idle()


async def test_a_peer_that_is_gone_is_502() -> None:
    async with open_pair([protocol(front_door(echo))]) as pair:
        elsewhere = host_name(Identity.generate().peer)
        async with MeshClient2(pair.calls) as client:
            response = await client.get(f"http://{elsewhere}/http/x")
    assert (response.status_code, response.headers["x-mesh-error"]) == (502, "unreachable")


async def endless(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200})
    await send({"type": "http.response.body", "body": b"one", "more_body": True})
    while (await receive())["type"] != "http.disconnect":
        pass


async def test_a_caller_that_leaves_is_noticed() -> None:
    async with open_pair([protocol(front_door(endless))]) as pair, MeshClient2(pair.calls) as client:
        async with client.stream("GET", pair.url):
            assert pair.provider.statistics().streams.serving == 1
        await pair.check_idle()


async def test_a_session_that_ends_breaks_the_answer() -> None:
    async with open_pair([protocol(front_door(endless))]) as pair, MeshClient2(pair.calls) as client:
        async with client.stream("GET", pair.url) as response:
            session = pair.provider.session(pair.caller.peer)
            assert session is not None
            session.abort("a test says so")
            with pytest.raises((httpx2.ReadError, httpx2.RemoteProtocolError)):
                await response.aread()
        await pair.check_idle()


async def test_cancelling_a_call_at_every_await_leaves_nothing() -> None:
    async with open_pair([protocol(front_door(echo))]) as pair, MeshClient2(pair.calls) as client:
        assert (await client.get(pair.url)).status_code == 200

        async def once() -> None:
            assert (await client.post(pair.url, content=b"body")).content == b"body"

        assert await cancel_at_every_await(once, check=pair.check_idle) > 5
