"""What the router handles is ciphertext: every byte that its TLS takes in and gives out is recorded and searched."""

from collections.abc import Iterator

import httpx
import trio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from trio.testing import MockClock

from agentmesh.abc import Stream
from agentmesh.identity import Identity
from agentmesh.protocols import http
from agentmesh.runtime.tls import Side, TlsContext, TlsMachine
from agentmesh.services import Calls, MeshClient
from agentmesh.types import PeerId
from tests.mesh.trio_mesh import ECHO, PROTOCOLS, open_mesh

MARKER = b"the plain words of a member, which no router shall read"


class Recorded(TlsMachine):
    """TLS that keeps what it decrypted and what it was given to encrypt."""

    plaintext: bytearray

    def read(self) -> memoryview:
        data = super().read()
        self.plaintext += data
        return data

    def write(self, plaintext: bytes | memoryview) -> None:
        self.plaintext += plaintext
        super().write(plaintext)


class Recorder(TlsContext):
    """A host's security whose every plaintext byte lands in `plaintext`."""

    def __init__(self, identity: Identity) -> None:
        super().__init__(identity)
        self.plaintext = bytearray()
        RECORDERS.append(self)

    def connection(self, side: Side) -> TlsMachine:
        machine = super().connection(side)
        machine.__class__ = Recorded
        assert isinstance(machine, Recorded)
        machine.plaintext = self.plaintext
        return machine


RECORDERS: list[Recorder] = []


def recorded() -> Iterator[bytes]:
    return (bytes(recorder.plaintext) for recorder in RECORDERS)


async def test_a_relayed_stream_is_ciphertext_to_the_router(autojump_clock: MockClock) -> None:
    RECORDERS.clear()
    async with open_mesh(security=Recorder) as mesh:
        alice, bob = await mesh.member("alice"), await mesh.member("bob")
        session = await mesh.circuit(alice, bob)
        async with await session.open_stream(ECHO) as stream:
            await stream.send_all(MARKER * 100)
            received = bytearray()
            while len(received) < 100 * len(MARKER):
                received += await stream.receive_some()
        assert received == MARKER * 100
    (seen,) = recorded()
    assert len(seen) > 2 * 2 * 100 * len(MARKER)  # in and out, there and back: the recorder did see the circuit
    assert b"/libp2p/circuit/relay/0.2.0/hop" in seen  # and what it records is plaintext of the hops
    assert MARKER not in seen
    assert ECHO.encode() not in seen


async def test_neither_http_headers_nor_bodies_reach_the_router(autojump_clock: MockClock) -> None:
    RECORDERS.clear()

    async def greet(request: Request) -> PlainTextResponse:
        body = await request.body()
        return PlainTextResponse(body + MARKER, headers={"X-Secret-Answer": "forty-two"})

    app = Starlette(routes=[Route("/http/greeter/", greet, methods=["POST"])])
    async with open_mesh(security=Recorder) as mesh:
        alice = await mesh.member("alice")
        bob = await mesh.member("bob", [*PROTOCOLS, http.protocol(app)])

        async def open_peer(peer: PeerId) -> Stream:
            return await (await mesh.circuit(alice, bob)).open_stream(http.HTTP_ID)

        async with MeshClient(Calls(open_peer, lambda: b"a credential")) as client:
            url = f"http://{bob.peer}.peer.mesh/http/greeter/"
            response = await client.post(url, content=b"hello", headers={"X-Secret-Question": "what"})
        assert (response.status_code, response.content) == (httpx.codes.OK, b"hello" + MARKER)
        assert response.headers["X-Secret-Answer"] == "forty-two"
    (seen,) = recorded()
    assert b"/libp2p/circuit/relay/0.2.0/stop" in seen
    for secret in (MARKER, b"HTTP/1.1", b"Secret", b"secret", b"forty-two", b"hello", b"Biscuit", b"greeter"):
        assert secret not in seen


async def test_the_recorder_would_see_a_member_that_sends_in_the_clear(autojump_clock: MockClock) -> None:
    RECORDERS.clear()
    async with open_mesh(security=Recorder) as mesh:
        alice = await mesh.member("alice")
        async with await alice.open_stream(mesh.router.peer, ECHO) as stream:
            with trio.move_on_after(5):
                await stream.send_all(MARKER)
                await trio.sleep(1)
    (seen,) = recorded()
    assert MARKER in seen
