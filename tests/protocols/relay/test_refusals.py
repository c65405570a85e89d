"""Circuits that do not come about: who says no, and what the caller is told."""

import pytest
import trio
from trio.testing import MockClock

from agentmesh.abc import Stream
from agentmesh.errors import DialError, ErrorCode, RejectedError, RemoteProtocolError
from agentmesh.identity import Identity
from agentmesh.protocols.relay import (
    HOP_ID,
    STOP_ID,
    CircuitLimits,
    RelayClient,
    RelayConfig,
    Status,
    open_circuit,
    reserve,
)
from agentmesh.protocols.relay.client import CONNECT_TIMEOUT, Place
from agentmesh.protocols.relay.wire import (
    StatusMessage,
    decode_stop,
    encode_stop_connect,
    encode_stop_status,
)
from agentmesh.runtime.messages import read_message, write_message
from agentmesh.runtime.registry import Protocol
from agentmesh.types import PeerId
from agentmesh.wire.framing import FrameReader
from tests.protocols.relay.net import EPOCH, assert_nothing_left, assert_refused, open_net


async def test_both_ends_must_be_admitted(autojump_clock: MockClock) -> None:
    async with open_net() as net:
        near, stranger, far = await net.join(), await net.join(admitted=False), await net.join_reachable()
        await assert_refused(stranger, net, far.peer, Status.PERMISSION_DENIED)
        await assert_refused(near, net, stranger.peer, Status.NO_RESERVATION)


async def test_an_injected_predicate_is_asked_of_both_ends(autojump_clock: MockClock) -> None:
    banned: set[PeerId] = set()
    async with open_net(is_admitted=lambda peer: peer not in banned) as net:
        near, far = await net.join(admitted=False), await net.join(admitted=False)
        await reserve(far, net.router.peer)
        banned.add(far.peer)
        await assert_refused(near, net, far.peer, Status.PERMISSION_DENIED)
        banned.clear()
        (await open_circuit(near, net.router.peer, far.peer)).reset()


async def test_nobody_is_reachable_without_a_reservation(autojump_clock: MockClock) -> None:
    async with open_net() as net:
        near, far = await net.join(), await net.join()
        await assert_refused(near, net, far.peer, Status.NO_RESERVATION)
        await assert_refused(near, net, near.peer, Status.PERMISSION_DENIED)
        await assert_refused(near, net, Identity.generate().peer, Status.NO_RESERVATION)


async def test_a_destination_without_the_protocol_fails(autojump_clock: MockClock) -> None:
    async with open_net() as net:
        near, far = await net.join(), await net.join_raw()
        await reserve(far, net.router.peer)
        await assert_refused(near, net, far.peer, Status.CONNECTION_FAILED)
        await assert_nothing_left(net, near, far)


async def test_a_destination_that_talks_nonsense_fails(autojump_clock: MockClock) -> None:
    async def babble(stream: Stream) -> None:
        await stream.send_all(b"\x03\xff\xff\xff")

    async with open_net() as net:
        near, far = await net.join(), await net.join_raw(Protocol(STOP_ID, babble))
        await reserve(far, net.router.peer)
        await assert_refused(near, net, far.peer, Status.CONNECTION_FAILED)
        await assert_nothing_left(net, near, far)


async def hang(stream: Stream) -> None:
    await trio.sleep_forever()


async def test_a_destination_that_hangs_is_given_up(autojump_clock: MockClock) -> None:
    async with open_net(RelayConfig(connect_timeout=7.0)) as net:
        near, far = await net.join(), await net.join_raw(Protocol(STOP_ID, hang))
        await reserve(far, net.router.peer)
        start = trio.current_time()
        await assert_refused(near, net, far.peer, Status.CONNECTION_FAILED)
        assert trio.current_time() - start == pytest.approx(7)


async def test_a_relay_that_hangs_is_given_up(autojump_clock: MockClock) -> None:
    async with open_net(RelayConfig(connect_timeout=1000.0)) as net:
        near, far = await net.join(), await net.join_raw(Protocol(STOP_ID, hang))
        await reserve(far, net.router.peer)
        start = trio.current_time()
        with pytest.raises(trio.TooSlowError):
            await open_circuit(near, net.router.peer, far.peer)
        assert trio.current_time() - start == pytest.approx(CONNECT_TIMEOUT)


async def test_a_caller_that_leaves_while_the_far_end_hangs_leaves_nothing(autojump_clock: MockClock) -> None:
    async with open_net() as net:
        near, far = await net.join(), await net.join_raw(Protocol(STOP_ID, hang))
        await reserve(far, net.router.peer)
        with trio.move_on_after(1):
            await open_circuit(near, net.router.peer, far.peer)
        await trio.sleep(net.relay.config.connect_timeout + 1)
        assert net.relay.statistics().circuits == 0


async def test_a_far_end_that_accepts_when_the_caller_has_left_is_told(autojump_clock: MockClock) -> None:
    told = trio.Event()

    async def accept_late(stream: Stream) -> None:
        await trio.sleep(5)
        await write_message(stream, encode_stop_status(Status.OK))
        with pytest.raises(trio.BrokenResourceError):
            async for _ in stream:
                pass
        told.set()

    async with open_net() as net:
        near, far = await net.join(), await net.join_raw(Protocol(STOP_ID, accept_late))
        await reserve(far, net.router.peer)
        with trio.move_on_after(1):
            await open_circuit(near, net.router.peer, far.peer)
        with trio.fail_after(10):
            await told.wait()
        await assert_nothing_left(net, near, far)


@pytest.mark.parametrize("lapsing", ["near", "far"])
async def test_an_admission_may_end_while_the_far_end_is_asked(lapsing: str, autojump_clock: MockClock) -> None:
    async with open_net() as net:
        near, far = await net.join(), await net.join_raw(Protocol(STOP_ID, hang))
        await reserve(far, net.router.peer)
        net.admit({"near": near, "far": far}[lapsing], EPOCH + trio.current_time() + 2)
        start = trio.current_time()
        with pytest.raises(RejectedError) as refused:
            await open_circuit(near, net.router.peer, far.peer)
        assert refused.value.code == ErrorCode.GATED
        assert trio.current_time() - start == pytest.approx(2)
        assert net.relay.statistics().circuits == 0


async def test_a_far_end_without_a_session_fails(autojump_clock: MockClock) -> None:
    """Its session drains: no stream can be opened there, but its reservation stands until the session ends."""
    async with open_net() as net:
        near, far = await net.join(), await net.join_reachable()
        session = net.router.session(far.peer)
        assert session is not None
        session.drain()
        await assert_refused(near, net, far.peer, Status.CONNECTION_FAILED)


async def test_there_is_no_circuit_without_a_session_to_the_relay() -> None:
    async with open_net() as net:
        near = await net.join()
        with pytest.raises(DialError):
            await open_circuit(near, Identity.generate().peer, near.peer)


async def test_an_offer_that_is_none_costs_its_stream_only(autojump_clock: MockClock) -> None:
    async with open_net() as net:
        far = await net.join_reachable()
        async with await net.router.open_stream(far.peer, STOP_ID) as stream:
            await stream.send_all(b"\x01\xff")
            message = decode_stop(await read_message(stream, FrameReader(4096)))
            assert message == StatusMessage(Status.MALFORMED_MESSAGE)
        async with await net.router.open_stream(far.peer, STOP_ID) as stream:
            await stream.send_eof()
            assert await stream.receive_some() == b""
        await assert_nothing_left(net, far)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RejectedError("full", ErrorCode.RESOURCE_LIMIT_EXCEEDED), Status.RESOURCE_LIMIT_EXCEEDED),
        (RejectedError("nobody", ErrorCode.GATED), Status.PERMISSION_DENIED),
    ],
)
async def test_a_member_that_takes_no_circuit_says_so(
    error: RejectedError, status: Status, autojump_clock: MockClock
) -> None:
    def refuse(source: PeerId, relay: PeerId) -> Place:
        raise error

    async with open_net() as net:
        far = await net.join_raw(RelayClient().protocol(refuse))
        async with await net.router.open_stream(far.peer, STOP_ID) as stream:
            await write_message(stream, encode_stop_connect(net.router.peer, CircuitLimits()))
            assert decode_stop(await read_message(stream, FrameReader(4096))) == StatusMessage(status)
        near = await net.join()
        await reserve(far, net.router.peer)
        told = status if status is Status.RESOURCE_LIMIT_EXCEEDED else Status.CONNECTION_FAILED
        await assert_refused(near, net, far.peer, told)


async def test_a_relay_that_breaks_the_protocol_is_found_out(autojump_clock: MockClock) -> None:
    async def babble(stream: Stream) -> None:
        await stream.send_all(b"\x03\xff\xff\xff")

    async with open_net() as net:
        near = await net.join()
        broken = await net.join_raw(Protocol(HOP_ID, babble), listen="/memory/2")
        await near.connect(broken.peer, broken.addresses)
        with pytest.raises(RemoteProtocolError):
            await open_circuit(near, broken.peer, net.router.peer)
