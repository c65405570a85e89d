"""Checks of where a transport listens and dials, and of what it says when it cannot."""

import trio
from trio.testing import wait_all_tasks_blocked

from agentmesh.errors import AddressError, DialError
from agentmesh.runtime.nursery import open_background
from agentmesh.testing.expect import expect, expect_error
from agentmesh.testing.transport_setup import TransportSetup, echo, read_exactly
from agentmesh.types import Address


async def check_addresses(setup: TransportSetup) -> None:
    """A listener says where it is, and what it says can be dialled."""
    async with setup.make_transports() as (dialer, listening):
        expect(listening.can_listen(setup.listen_address), f"cannot listen on {setup.listen_address}")
        async with listening.listen(setup.listen_address) as listener:
            addresses = list(listener.addresses)
            expect(len(addresses) > 0, "a listener without addresses")
            for address in addresses:
                expect(address.peer is None, f"{address} ends in a peer: that is not the transport's to say")
                expect(dialer.can_dial(setup.dial_address(address)), f"cannot dial {address}, where it listens")


async def check_wrong_address(setup: TransportSetup) -> None:
    """An address of another transport is refused, by the questions and by the deeds."""
    async with setup.make_transports() as (dialer, listening):
        wrong = setup.wrong_address
        expect(not dialer.can_dial(wrong), f"says it can dial {wrong}")
        expect(not listening.can_listen(wrong), f"says it can listen on {wrong}")
        with expect_error(AddressError, when=f"for dialling {wrong}"):
            async with dialer.dial(wrong):
                expect(False, f"dialled {wrong}")
        with expect_error(AddressError, when=f"for listening on {wrong}"):
            async with listening.listen(wrong):
                expect(False, f"listens on {wrong}")


async def check_nobody_there(setup: TransportSetup) -> None:
    async with setup.make_transports() as (dialer, listening):
        async with listening.listen(setup.listen_address) as listener:
            address = listener.addresses[0]
        with expect_error(DialError, when="for dialling where nobody listens any more"):
            async with dialer.dial(setup.dial_address(address)):
                expect(False, "dialled a closed listener")


async def check_place_is_taken(setup: TransportSetup) -> None:
    if not setup.exclusive:
        return
    async with setup.make_transports() as (_, listening), listening.listen(setup.listen_address) as listener:
        with expect_error(OSError, when="for listening where somebody does"):
            async with listening.listen(listener.addresses[0]):
                expect(False, "two listeners on one address")


async def check_place_is_freed(setup: TransportSetup) -> None:
    """A closed listener's address can be listened on again at once, connections or not."""
    async with setup.make_transports() as (dialer, listening):
        place = setup.listen_address
        for _ in range(3):
            async with listening.listen(place) as listener, open_background() as nursery:
                nursery.start_soon(listener.serve, echo)
                place = listener.addresses[0]
                async with dialer.dial(setup.dial_address(place)) as stream:
                    await stream.send_all(b"again")
                    expect(await read_exactly(stream, 5) == b"again", "no echo from a place listened on again")


async def check_early_caller(setup: TransportSetup) -> None:
    """Listening begins with the block: a caller that comes before `serve` is served when that begins."""
    answers: list[bytes] = []

    async def call(dialer_address: Address) -> None:
        async with dialer.dial(dialer_address) as stream:
            await stream.send_all(b"early")
            answers.append(await read_exactly(stream, 5))

    async with (
        setup.make_transports() as (dialer, listening),
        listening.listen(setup.listen_address) as listener,
        open_background() as nursery,
    ):
        async with trio.open_nursery() as callers:
            callers.start_soon(call, setup.dial_address(listener.addresses[0]))
            await wait_all_tasks_blocked()
            nursery.start_soon(listener.serve, echo)
        expect(answers == [b"early"], "a caller that was early got no answer")


CHECKS = (
    check_addresses,
    check_wrong_address,
    check_nobody_there,
    check_place_is_taken,
    check_place_is_freed,
    check_early_caller,
)
