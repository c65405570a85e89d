"""Checks of how long a transport's connections live, and of what cancelling leaves behind: nothing."""

from contextlib import suppress

import trio
from trio.testing import wait_all_tasks_blocked

from agentmesh.abc import ByteStream, Listener, StreamHandler, Transport
from agentmesh.errors import DialError
from agentmesh.runtime.nursery import open_background
from agentmesh.testing.cancellation import cancel_at_every_await, leaves_nothing
from agentmesh.testing.expect import expect, expect_error
from agentmesh.testing.transport_setup import TransportSetup, echo, expect_end, expect_no_more, read_exactly
from agentmesh.types import Address


class _Deliberate(Exception):
    """Raised in a block on purpose."""


async def check_dial_block(setup: TransportSetup) -> None:
    """The connection ends with the block, and what the block raises comes out of it as it is."""
    ended = trio.Event()

    async def wait_end(stream: ByteStream, source: Address | None) -> None:
        await expect_no_more(stream)
        ended.set()

    async with setup.serving(wait_end) as (dialer, address):
        with expect_error(_Deliberate, when="raised in the block", bare=True):
            async with dialer.dial(address):
                raise _Deliberate
        await ended.wait()


async def check_handler_returns(setup: TransportSetup) -> None:
    """A connection ends when its handler returns; what the handler sent arrives before."""

    async def answer(stream: ByteStream, source: Address | None) -> None:
        await stream.send_all(b"goodbye")

    async with setup.serving(answer) as (dialer, address), dialer.dial(address) as stream:
        expect(await read_exactly(stream, 7) == b"goodbye", "what a handler sent before returning did not arrive")
        await expect_end(stream)


async def check_serve_cancelled(setup: TransportSetup) -> None:
    """Cancelling `serve` ends its connections, in whatever their handlers are; it can be called again."""
    async with setup.make_transports() as (dialer, listening), listening.listen(setup.listen_address) as listener:
        address = setup.dial_address(listener.addresses[0])
        for handler in (echo, _wait_forever):
            await _cancel_serving(listener, handler, dialer, address)


async def _wait_forever(stream: ByteStream, source: Address | None) -> None:
    await trio.sleep_forever()


async def _cancel_serving(listener: Listener, handler: StreamHandler, dialer: Transport, address: Address) -> None:
    scope = trio.CancelScope()

    async def serve() -> None:
        with scope:
            await listener.serve(handler)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        async with dialer.dial(address) as one, dialer.dial(address) as other:
            await one.send_all(b"x")
            await wait_all_tasks_blocked()
            scope.cancel()
            for stream in (one, other):
                with suppress(trio.BrokenResourceError):
                    while await stream.receive_some():
                        pass


async def check_dial_cancelled(setup: TransportSetup) -> None:
    """At each await of dialling, talking and hanging up, on the dialler's side only."""
    async with setup.serving(echo) as (dialer, address):

        async def call() -> None:
            async with dialer.dial(address) as stream:
                await stream.send_all(b"x")
                await stream.receive_some(1)

        await call()  # what a first call makes and keeps is there before anything is counted
        await wait_all_tasks_blocked()
        await cancel_at_every_await(call, timeout=setup.timeout / 3)


async def check_failing_dial_cancelled(setup: TransportSetup) -> None:
    """At each await of a dial that nobody answers."""
    async with setup.make_transports() as (dialer, listening):
        async with listening.listen(setup.listen_address) as listener:
            address = setup.dial_address(listener.addresses[0])

        async def call() -> None:
            with suppress(DialError):
                async with dialer.dial(address):
                    expect(False, "dialled a closed listener")

        await call()
        await wait_all_tasks_blocked()
        await cancel_at_every_await(call, timeout=setup.timeout / 3)


async def check_everything_cancelled(setup: TransportSetup) -> None:
    """At each await of listening, accepting, handling, dialling and talking, on both sides at once."""
    async with setup.make_transports() as (dialer, listening):

        async def listen_and_call() -> None:
            async with listening.listen(setup.listen_address) as listener, open_background() as nursery:
                nursery.start_soon(listener.serve, echo)
                async with dialer.dial(setup.dial_address(listener.addresses[0])) as stream:
                    await stream.send_all(b"x")
                    await stream.receive_some(1)

        await listen_and_call()
        await wait_all_tasks_blocked()
        await cancel_at_every_await(listen_and_call, timeout=setup.timeout / 3)


async def check_nothing_is_left(setup: TransportSetup) -> None:
    """Connections that ended in every way leave neither tasks nor sockets while their listener goes on."""
    async with setup.serving(echo) as (dialer, address):
        async with dialer.dial(address) as stream:
            await stream.send_all(b"x")
        await wait_all_tasks_blocked()
        async with leaves_nothing(setup.timeout / 3):
            async with dialer.dial(address) as stream:
                await stream.send_all(b"x")
                await trio.aclose_forcefully(stream)
            async with dialer.dial(address) as stream:
                await stream.send_all(b"x")
                await stream.aclose()
            async with dialer.dial(address):
                pass


CHECKS = (
    check_dial_block,
    check_handler_returns,
    check_serve_cancelled,
    check_dial_cancelled,
    check_failing_dial_cancelled,
    check_everything_cancelled,
    check_nothing_is_left,
)
