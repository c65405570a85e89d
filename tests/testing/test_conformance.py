"""check_transport can fail: each fault planted in a good transport is found, by the check that is there for it."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import pytest
import trio

from agentmesh.abc import Transport
from agentmesh.testing import TRANSPORT_CHECKS, TransportSetup, check_transport
from agentmesh.testing.conformance import Check
from agentmesh.transports.memory import MemoryHub
from tests.testing.faults import (
    ANY,
    ClosesBothHalves,
    Faulty,
    ForgetsThatItClosed,
    IgnoresMaxBytes,
    LetsTwoSend,
    LosesAByte,
    LosesWhatIsLeftOver,
    ResetsOnClose,
    SignalsNoEnd,
    SwapsBytes,
    TakesEverything,
)
from tests.testing.place_faults import (
    DialsAnything,
    KeepsItsPlace,
    LeavesASocket,
    LeavesATask,
    ListensOnAnything,
    NobodyIsAnOSError,
    OutlivesItsBlock,
    OutlivesItsHandler,
    RefusesEarlyCallers,
    SharesItsPlace,
    WaitsForNobody,
    WrapsExceptions,
    left,
)

FAULTS: dict[type[Faulty], tuple[str, str]] = {
    LosesAByte: ("check_transfer_both_ways", "bytes changed, or are missing"),
    SwapsBytes: ("check_transfer_both_ways", "bytes changed, or are missing, from"),
    LosesWhatIsLeftOver: ("check_transfer_both_ways", "bytes changed, or are missing"),
    IgnoresMaxBytes: ("check_transfer_both_ways", "receive_some"),
    SignalsNoEnd: ("check_end", "hangs"),
    ResetsOnClose: ("check_end", "the stream was cut"),
    TakesEverything: ("check_back_pressure", "nobody reads"),
    ForgetsThatItClosed: ("check_own_close", "no ClosedResourceError"),
    LetsTwoSend: ("check_concurrent_use", "hangs"),
    ClosesBothHalves: ("check_half_close", "closed"),
    NobodyIsAnOSError: ("check_nobody_there", "refused"),
    WaitsForNobody: ("check_nobody_there", "hangs"),
    DialsAnything: ("check_wrong_address", "says it can dial"),
    ListensOnAnything: ("check_wrong_address", "listens on"),
    SharesItsPlace: ("check_place_is_taken", "two listeners"),
    KeepsItsPlace: ("check_nobody_there", "dialled a closed listener"),
    RefusesEarlyCallers: ("check_echo", "not yet"),
    WrapsExceptions: ("check_dial_block", "comes in a group"),
    OutlivesItsBlock: ("check_dial_block", "hangs"),
    OutlivesItsHandler: ("check_handler_returns", "hangs"),
    LeavesASocket: ("check_dial_cancelled", "left behind"),
    LeavesATask: ("check_dial_cancelled", "left behind"),
}


async def check(transport: type[Faulty], checks: Sequence[Check] = TRANSPORT_CHECKS) -> None:
    @asynccontextmanager
    async def make() -> AsyncGenerator[tuple[Transport, Transport]]:
        faulty = transport(MemoryHub())
        yield faulty, faulty

    await check_transport(make, ANY, transfer_bytes=1 << 20, max_buffered_bytes=1 << 20, checks=checks)


async def test_no_fault_is_no_failure(autojump_clock: trio.testing.MockClock) -> None:
    await check(Faulty)


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_planted_fault_is_found(fault: type[Faulty], autojump_clock: trio.testing.MockClock) -> None:
    check_name, says = FAULTS[fault]
    with pytest.raises(Exception, match=says) as caught:
        await check(fault)
    assert caught.value.__notes__[-1] == f"in {check_name} of check_transport"
    while left:
        left.pop().close()


def test_every_check_has_a_name_of_its_own() -> None:
    names = [check.__name__ for check in TRANSPORT_CHECKS]
    assert len(set(names)) == len(names)
    assert {name for name, _ in FAULTS.values()} <= set(names)


async def test_failures_of_several_kinds_stay_together() -> None:
    async def fails(setup: TransportSetup) -> None:
        await trio.lowlevel.checkpoint()
        raise ExceptionGroup("two", [AssertionError("the check's"), KeyError("the transport's")])

    with pytest.raises(ExceptionGroup) as caught:
        await check(Faulty, [fails])
    assert caught.group_contains(KeyError)
    assert caught.group_contains(AssertionError)
