"""Bodies that stream both ways, and callers that leave in the middle."""

from collections.abc import AsyncIterator
from types import ModuleType

import httpx
import httpx2
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from agentmesh.abc import Stream
from agentmesh.protocols.http import ASGIApp, Receive, Scope, Send
from agentmesh.services import Calls
from agentmesh.testing.cancellation import cancel_at_every_await
from agentmesh.types import PeerId
from tests.services.libraries import LIBRARIES, ORIGIN, Client, Echo, Library, hang
from tests.services.mesh import CREDENTIAL, open_mesh


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
