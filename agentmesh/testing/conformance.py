"""The one suite that every transport passes: `check_transport`.

    async def test_my_transport() -> None:
        @asynccontextmanager
        async def make() -> AsyncGenerator[tuple[Transport, Transport]]:
            yield MyTransport(), MyTransport()

        await check_transport(make, Address.parse("/ip4/127.0.0.1/tcp/0"))

It runs on the real clock and on a virtual one. A transport that uses sockets needs the real one.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager

import trio

from agentmesh.abc import Transport
from agentmesh.testing import transport_address_checks, transport_lifetime_checks, transport_stream_checks
from agentmesh.testing.expect import annotated, leaves
from agentmesh.testing.transport_setup import MIB, TransportSetup
from agentmesh.types import Address

Check = Callable[[TransportSetup], Awaitable[None]]

TRANSPORT_CHECKS: Sequence[Check] = (
    *transport_stream_checks.CHECKS,
    *transport_address_checks.CHECKS,
    *transport_lifetime_checks.CHECKS,
)

WRONG_ADDRESS = Address.parse("/ip4/127.0.0.1/udp/1/quic-v1")


def listeners_own(address: Address) -> Address:
    """Dial what the listener says."""
    return address


async def check_transport(
    make_transports: Callable[[], AbstractAsyncContextManager[tuple[Transport, Transport]]],
    listen_address: Address,
    *,
    dial_address: Callable[[Address], Address] = listeners_own,
    wrong_address: Address = WRONG_ADDRESS,
    exclusive: bool = True,
    connections: int = 32,
    transfer_bytes: int = 4 * MIB,
    max_buffered_bytes: int = 32 * MIB,
    timeout: float = 60.0,
    checks: Sequence[Check] = TRANSPORT_CHECKS,
) -> None:
    """Hold a transport to `agentmesh.abc.Transport` and its streams to Trio's contract.

    Streams that are `trio.abc.HalfCloseableStream`s are held to that too; others need not close by halves.

    Args:
        make_transports: gives, for the length of a block, a transport to dial with and one to listen with; they may be
            the same. It is entered anew for every check, and has to bring up whatever else they need.
        listen_address: what to listen on. It should leave the choice of a free place to the transport (port 0).
        dial_address: what to dial, given a listener's address; for transports whose dialled addresses say more.
        wrong_address: an address that the transport does not speak.
        exclusive: whether a place that is listened on is taken for others.
        connections: how many to have at once.
        transfer_bytes: how much to send each way where the amount matters.
        max_buffered_bytes: how much may be under way while the reader does not read; more is held to be unbounded.
        timeout: seconds, on Trio's clock, after which a check is held to hang.
        checks: which of `TRANSPORT_CHECKS` to run. Each is a function of a `TransportSetup`, for those who would rather
            make a test of each.
    Raises:
        AssertionError: what does not hold; its notes name the check.
        Whatever the transport raised that it must not raise.
    """
    setup = TransportSetup(
        make_transports=make_transports,
        listen_address=listen_address,
        dial_address=dial_address,
        wrong_address=wrong_address,
        exclusive=exclusive,
        connections=connections,
        transfer_bytes=transfer_bytes,
        max_buffered_bytes=max_buffered_bytes,
        timeout=timeout,
    )
    for check in checks:
        with annotated(f"in {check.__name__} of check_transport"):
            await run_check(check, setup)


async def run_check(check: Check, setup: TransportSetup) -> None:
    """One check within its time. What failed leaves bare, however many nurseries it came through.

    Raises:
        AssertionError: it does not hold, or hangs.
    """
    try:
        with trio.move_on_after(setup.timeout) as scope:
            await check(setup)
    except BaseExceptionGroup as group:
        failed = leaves(group)
        if len(failed) > 1 and not all(isinstance(failure, AssertionError) for failure in failed):
            raise
        failure = failed[0]
    else:
        if scope.cancelled_caught:
            raise AssertionError(f"hangs: not over after {setup.timeout} s")
        return
    raise failure
