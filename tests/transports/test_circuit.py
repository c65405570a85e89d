"""The circuit transport by itself: circuits are pipes here, and the router a dozen lines."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from agentmesh.abc import ByteStream, Listener, Transport
from agentmesh.errors import DialError, ErrorCode, MeshError, RejectedError
from agentmesh.runtime.nursery import open_background
from agentmesh.testing import cancel_at_every_await, check_transport
from agentmesh.testing.transport_setup import echo
from agentmesh.transports.circuit import CircuitTransport, Route
from agentmesh.transports.pipes import BUFFER_BYTES, MemoryPipe, PipeStream
from agentmesh.types import Address, PeerId

ROUTER, OTHER_ROUTER, CALLER, CALLED = (PeerId.from_ed25519(bytes([n]) * 32) for n in range(1, 5))
LISTEN = Address.parse(f"/ip4/192.0.2.1/tcp/4001/p2p/{ROUTER}/p2p-circuit")
DIAL = LISTEN.with_peer(CALLED)


@attrs.define
class Router:
    """Joins the transport that dials to the one that listens."""

    nursery: trio.Nursery
    connected: list[tuple[PeerId, Sequence[Address]]] = attrs.Factory(list[tuple[PeerId, Sequence[Address]]])
    opened: list[tuple[PeerId, PeerId]] = attrs.Factory(list[tuple[PeerId, PeerId]])
    failure: Exception | None = None
    callee: CircuitTransport = attrs.field(init=False)

    async def connect(self, router: PeerId, addresses: Sequence[Address]) -> None:
        await trio.lowlevel.checkpoint()
        self.connected.append((router, addresses))

    async def open_circuit(self, router: PeerId, peer: PeerId) -> ByteStream:
        await trio.lowlevel.checkpoint()
        if self.failure is not None:
            raise self.failure
        self.opened.append((router, peer))
        place = self.callee.incoming(CALLER, router)
        there, back = MemoryPipe(), MemoryPipe()

        async def deliver() -> None:
            with place:
                await place.deliver(PipeStream(there, back))

        self.nursery.start_soon(deliver)
        return PipeStream(back, there)


@asynccontextmanager
async def open_router(max_pending: int = 64, max_incoming: int = 1024) -> AsyncGenerator[Router]:
    async with open_background() as nursery:
        router = Router(nursery)
        router.callee = transport_of(router, max_pending, max_incoming)
        yield router
        await wait_all_tasks_blocked()
        assert (router.callee.pending, router.callee.incoming_count) == (0, 0)


def transport_of(router: Router, max_pending: int = 64, max_incoming: int = 1024) -> CircuitTransport:
    return CircuitTransport(router.connect, router.open_circuit, max_pending=max_pending, max_incoming=max_incoming)


async def test_conforms(autojump_clock: MockClock) -> None:
    @asynccontextmanager
    async def make() -> AsyncGenerator[tuple[Transport, Transport]]:
        async with open_router() as router:
            yield transport_of(router), router.callee

    await check_transport(
        make,
        LISTEN,
        dial_address=lambda address: address.with_peer(CALLED),
        wrong_address=Address.parse("/ip4/192.0.2.1/tcp/4001"),
        exclusive=False,
        max_buffered_bytes=BUFFER_BYTES,
    )


@pytest.mark.parametrize(
    ("address", "route"),
    [
        (str(LISTEN), Route(ROUTER, Address.parse("/ip4/192.0.2.1/tcp/4001"), None)),
        (str(DIAL), Route(ROUTER, Address.parse("/ip4/192.0.2.1/tcp/4001"), CALLED)),
        (f"/p2p/{ROUTER}/p2p-circuit/p2p/{CALLED}", Route(ROUTER, Address(()), CALLED)),
        ("/ip4/192.0.2.1/tcp/4001", None),
        (f"/ip4/192.0.2.1/tcp/4001/p2p/{ROUTER}", None),
        (f"/ip4/192.0.2.1/tcp/4001/p2p-circuit/p2p/{CALLED}", None),
        (f"{LISTEN}/ip4/192.0.2.1/tcp/1", None),
        (f"{LISTEN}/ip4/192.0.2.1/tcp/1/p2p/{CALLED}", None),
        (f"{LISTEN}/p2p/{OTHER_ROUTER}/p2p-circuit/p2p/{CALLED}", None),
    ],
)
async def test_a_route_is_read_from_its_address(address: str, route: Route | None) -> None:
    assert Route.of(Address.parse(address)) == route
    async with open_router() as router:
        parsed = Address.parse(address)
        assert router.callee.can_dial(parsed) == (route is not None and route.peer is not None)
        assert router.callee.can_listen(parsed) == (route is not None and route.peer is None)


async def test_the_router_is_connected_first_where_its_address_says(autojump_clock: MockClock) -> None:
    async with open_router() as router, router.callee.listen(LISTEN) as listener, open_background() as nursery:
        nursery.start_soon(listener.serve, echo)
        for address, known in ((DIAL, ["/ip4/192.0.2.1/tcp/4001"]), (f"/p2p/{ROUTER}/p2p-circuit/p2p/{CALLED}", [])):
            async with transport_of(router).dial(Address.parse(str(address))):
                assert router.opened[-1] == (ROUTER, CALLED)
                assert router.connected[-1] == (ROUTER, [Address.parse(text) for text in known])


async def test_a_handler_is_told_who_the_router_says_it_is(autojump_clock: MockClock) -> None:
    sources: list[Address | None] = []

    async def note(stream: ByteStream, source: Address | None) -> None:
        sources.append(source)

    async with open_router() as router, router.callee.listen(LISTEN) as listener, open_background() as nursery:
        nursery.start_soon(listener.serve, note)
        async with transport_of(router).dial(DIAL) as stream:
            assert await stream.receive_some() == b""
        assert sources == [LISTEN.with_peer(CALLER)]


@pytest.mark.parametrize(
    "failure",
    [
        RejectedError("NO_RESERVATION", 204),
        DialError("no session"),
        MeshError("of any kind"),
        trio.BrokenResourceError("gone"),
        trio.TooSlowError(),
    ],
)
async def test_what_the_router_says_is_the_cause_of_a_dial_error(failure: Exception) -> None:
    async with open_router() as router:
        router.failure = failure
        with pytest.raises(DialError) as failed:
            async with transport_of(router).dial(DIAL):
                raise AssertionError("dialled a router that refuses")
        assert failed.value.__cause__ is failure


async def refused(router: Router) -> int:
    with pytest.raises(DialError) as failed:
        async with transport_of(router).dial(DIAL):
            raise AssertionError("dialled where there is no room")
    assert isinstance(failed.value.__cause__, RejectedError)
    return failed.value.__cause__.code


async def test_circuits_of_a_router_nobody_listens_on_are_refused(autojump_clock: MockClock) -> None:
    other = Address.parse(f"/ip4/192.0.2.2/tcp/1/p2p/{OTHER_ROUTER}/p2p-circuit")
    async with open_router() as router:
        assert await refused(router) == ErrorCode.GATED
        async with router.callee.listen(other):
            assert await refused(router) == ErrorCode.GATED
        async with router.callee.listen(LISTEN), router.callee.listen(LISTEN):
            pass
        assert await refused(router) == ErrorCode.GATED


async def test_no_more_circuits_wait_than_may(autojump_clock: MockClock) -> None:
    """Nobody serves the listener: every circuit stays pending, until the first beyond the bound is refused."""
    async with open_router(max_pending=3) as router:
        async with trio.open_nursery() as callers:
            async with router.callee.listen(LISTEN):
                for _ in range(3):
                    callers.start_soon(wait_end, transport_of(router))
                await wait_all_tasks_blocked()
                assert router.callee.pending == 3
                assert await refused(router) == ErrorCode.RESOURCE_LIMIT_EXCEEDED
            callers.cancel_scope.cancel()
        await wait_all_tasks_blocked()
        assert router.callee.pending == 0


async def wait_end(transport: CircuitTransport) -> None:
    async with transport.dial(DIAL) as stream:
        with suppress(trio.BrokenResourceError):
            await stream.receive_some()


async def test_no_more_circuits_are_open_than_may(autojump_clock: MockClock) -> None:
    async with (
        open_router(max_incoming=3) as router,
        router.callee.listen(LISTEN) as listener,
        open_background() as nursery,
    ):
        nursery.start_soon(listener.serve, echo)
        async with trio.open_nursery() as callers:
            for _ in range(3):
                callers.start_soon(wait_end, transport_of(router))
            await wait_all_tasks_blocked()
            assert (router.callee.pending, router.callee.incoming_count) == (0, 3)
            assert await refused(router) == ErrorCode.RESOURCE_LIMIT_EXCEEDED
            callers.cancel_scope.cancel()
        await wait_all_tasks_blocked()
        async with transport_of(router).dial(DIAL) as stream:
            await stream.send_all(b"x")
            assert await stream.receive_some() == b"x"


async def test_circuits_that_wait_when_the_listener_closes_end(autojump_clock: MockClock) -> None:
    async with open_router() as router:
        ended = trio.Event()

        async def wait_place() -> None:
            with router.callee.incoming(CALLER, ROUTER) as place:
                await place.deliver(PipeStream(MemoryPipe(), MemoryPipe()))
            ended.set()

        async with open_background() as nursery:
            async with router.callee.listen(LISTEN):
                nursery.start_soon(wait_place)
                await wait_all_tasks_blocked()
                assert not ended.is_set()
            with trio.fail_after(1):
                await ended.wait()


async def test_a_listener_that_closes_between_place_and_circuit_takes_none(autojump_clock: MockClock) -> None:
    async with open_router() as router:
        async with router.callee.listen(LISTEN):
            place = router.callee.incoming(CALLER, ROUTER)
        with place, trio.fail_after(1):
            await place.deliver(PipeStream(MemoryPipe(), MemoryPipe()))


async def test_the_deliverer_waits_for_the_handler(autojump_clock: MockClock) -> None:
    async def slow(stream: ByteStream, source: Address | None) -> None:
        await trio.sleep(50)

    async with open_router() as router, router.callee.listen(LISTEN) as listener, open_background() as nursery:
        nursery.start_soon(listener.serve, slow)
        start = trio.current_time()
        with router.callee.incoming(CALLER, ROUTER) as place:
            await place.deliver(PipeStream(MemoryPipe(), MemoryPipe()))
        assert trio.current_time() - start == 50


async def test_a_delivery_cancelled_anywhere_leaves_nothing(autojump_clock: MockClock) -> None:
    async with open_router() as router, router.callee.listen(LISTEN) as listener, open_background() as nursery:
        nursery.start_soon(listener.serve, echo)

        async def call() -> None:
            async with transport_of(router).dial(DIAL) as stream:
                await stream.send_all(b"x")
                await stream.receive_some()

        async def check() -> None:
            await wait_all_tasks_blocked()
            assert router.callee.incoming_count == 0

        assert await cancel_at_every_await(call, check=check) >= 4


async def test_a_listener_says_where_it_is() -> None:
    async with open_router() as router, router.callee.listen(LISTEN) as listener:
        assert isinstance(listener, Listener)
        assert list(listener.addresses) == [LISTEN]
