"""Reservations, between hosts."""

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from agentmesh.abc import Stream
from agentmesh.errors import DialError, RejectedError, RemoteProtocolError
from agentmesh.identity import Identity
from agentmesh.protocols.relay import (
    HOP_ID,
    BookLimits,
    CircuitLimits,
    RelayConfig,
    ReservationGranted,
    Status,
    keep_reservation,
    reserve,
)
from agentmesh.protocols.relay.book import RESERVATION_TTL, source_of
from agentmesh.protocols.relay.events import RequestBroken
from agentmesh.protocols.relay.hop import HopListener
from agentmesh.protocols.relay.listener import REQUEST_TIMEOUT
from agentmesh.protocols.relay.voucher import open_voucher
from agentmesh.protocols.relay.wire import decode_hop, encode_hop_status
from agentmesh.runtime.host import Host, open_host
from agentmesh.runtime.messages import flush, read_message, wait_event
from agentmesh.runtime.registry import Protocol
from agentmesh.testing.cancellation import cancel_at_every_await
from agentmesh.transports.memory import MemoryHub, MemoryTransport
from agentmesh.types import Address
from agentmesh.wire.framing import FrameReader, encode_frame
from tests.protocols.relay.net import EPOCH, Net, open_net, wall_clock


async def test_a_reservation_says_until_when_and_where(autojump_clock: MockClock) -> None:
    config = RelayConfig(circuit=CircuitLimits(60.0, 1000))
    async with open_net(config) as net:
        member = await net.join()
        granted = await reserve(member, net.router.peer)
        assert granted.expires_at == EPOCH + RESERVATION_TTL
        assert granted.addresses == (net.router.addresses[0] / "p2p-circuit",)
        assert granted.limits == config.circuit
        assert open_voucher(granted.voucher, net.router.peer, member.peer) == granted.expires_at
        assert [held.peer for held in net.relay.book.reservations] == [member.peer]


async def test_a_reservation_ends_with_the_admission(autojump_clock: MockClock) -> None:
    async with open_net() as net:
        member = await net.join()
        net.admit(member, EPOCH + 100)
        assert (await reserve(member, net.router.peer)).expires_at == EPOCH + 100
        await trio.sleep(99)
        assert net.relay.statistics().reservations == 1
        await trio.sleep(2)
        assert net.relay.statistics().reservations == 0
        await assert_refused(member, net, Status.PERMISSION_DENIED)


async def test_a_reservation_ends_with_its_hour(autojump_clock: MockClock) -> None:
    async with open_net() as net:
        member = await net.join()
        await reserve(member, net.router.peer)
        await trio.sleep(RESERVATION_TTL + 1)
        assert net.relay.statistics().reservations == 0


async def test_a_reservation_ends_with_the_last_session(autojump_clock: MockClock) -> None:
    async with open_net() as net:
        member = await net.join()
        await reserve(member, net.router.peer)
        session = member.session(net.router.peer)
        assert session is not None
        await session.aclose()
        await wait_all_tasks_blocked()
        assert net.relay.statistics().reservations == 0


async def test_a_stranger_is_denied(autojump_clock: MockClock) -> None:
    async with open_net() as net:
        stranger = await net.join(admitted=False)
        await assert_refused(stranger, net, Status.PERMISSION_DENIED)


async def test_the_relay_says_when_it_is_full(autojump_clock: MockClock) -> None:
    async with open_net(RelayConfig(book=BookLimits(max_reservations=2))) as net:
        for _ in range(2):
            await net.join_reachable()
        await assert_refused(await net.join(), net, Status.RESERVATION_REFUSED)
        assert net.relay.statistics().reservations == 2


async def test_one_source_has_its_share(autojump_clock: MockClock) -> None:
    """Each member of this network has an address of its own, so a share of one is enough for all but itself."""
    async with open_net(RelayConfig(book=BookLimits(max_reservations_per_source=1))) as net:
        members = [await net.join_reachable() for _ in range(3)]
        assert net.relay.statistics().reservations == 3
        address = net.router.session(members[0].peer)
        assert address is not None
        assert net.relay.book.reservation_count_of(source_of(address.address)) == 1
        await reserve(members[0], net.router.peer)
    async with open_net(RelayConfig(book=BookLimits(max_reservations_per_source=0))) as net:
        await assert_refused(await net.join(), net, Status.RESOURCE_LIMIT_EXCEEDED)


async def test_there_is_no_reserving_without_a_session() -> None:
    async with open_net() as net:
        member = await net.join()
        with pytest.raises(DialError):
            await reserve(member, Identity.generate().peer)


async def assert_refused(member: Host, net: Net, status: Status) -> None:
    before = net.relay.statistics().refusals[status]
    with pytest.raises(RejectedError) as refused:
        await reserve(member, net.router.peer)
    assert refused.value.code is status
    assert status.name in str(refused.value)
    assert net.relay.statistics().refusals[status] == before + 1


async def renewals(net: Net, during: float) -> list[float]:
    """When a kept reservation was granted, counted from the start of keeping it."""
    member = await net.join()
    start, at = trio.current_time(), list[float]()

    def note(granted: ReservationGranted) -> None:
        at.append(trio.current_time() - start)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep_reservation, member, net.router.peer, note, wall_clock)
        await trio.sleep(during)
        nursery.cancel_scope.cancel()
    return at


async def test_a_kept_reservation_is_renewed_two_minutes_before_its_end(autojump_clock: MockClock) -> None:
    async with open_net() as net:
        assert await renewals(net, 3 * RESERVATION_TTL) == pytest.approx([0, 3480, 6960, 10440])
        assert net.relay.statistics().granted == 4
        assert net.relay.statistics().reservations == 1


@pytest.mark.parametrize(("ttl", "expected"), [(200.0, [0, 100, 200, 300]), (1.0, [0, 1, 2, 3])])
async def test_short_reservations_are_renewed_at_half_time(
    ttl: float, expected: list[float], autojump_clock: MockClock
) -> None:
    async with open_net(RelayConfig(book=BookLimits(reservation_ttl=ttl))) as net:
        assert await renewals(net, expected[-1] + expected[1] / 2) == pytest.approx(expected)


async def test_keeping_ends_with_the_refusal(autojump_clock: MockClock) -> None:
    async with open_net() as net:
        member = await net.join()
        net.admit(member, EPOCH + 1000)
        granted: list[ReservationGranted] = []
        with pytest.raises(RejectedError):
            await keep_reservation(member, net.router.peer, granted.append, wall_clock)
        assert len(granted) > 1


async def test_reserving_cancelled_anywhere_leaves_nothing(autojump_clock: MockClock) -> None:
    async with open_net() as net:
        member = await net.join()

        async def check() -> None:
            await wait_all_tasks_blocked()
            session = member.session(net.router.peer)
            assert session is not None
            assert session.streams == ()
            assert net.router.statistics().streams.serving == 0
            assert net.relay.statistics().reservations <= 1

        assert await cancel_at_every_await(lambda: reserve(member, net.router.peer), check=check) >= 2


# ── peers that misbehave ──


async def exchange(member: Host, net: Net, data: bytes) -> bytes:
    async with await member.open_stream(net.router.peer, HOP_ID) as stream:
        await stream.send_all(data)
        return await read_message(stream, FrameReader(4096))


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\x00", Status.MALFORMED_MESSAGE),
        (b"\xff\xff\x01", Status.MALFORMED_MESSAGE),
        (encode_frame(encode_hop_status(Status.OK, CircuitLimits())), Status.UNEXPECTED_MESSAGE),
    ],
)
async def test_a_broken_request_is_answered(data: bytes, status: Status, autojump_clock: MockClock) -> None:
    async with open_net() as net:
        member = await net.join()
        answer = decode_hop(await exchange(member, net, data))
        assert answer == decode_hop(encode_hop_status(status, CircuitLimits()))
        assert net.relay.statistics().refusals[status] == 1


async def test_a_silent_peer_costs_its_stream_and_no_more(autojump_clock: MockClock) -> None:
    async with open_net() as net:
        member = await net.join()
        async with await member.open_stream(net.router.peer, HOP_ID) as stream:
            start = trio.current_time()
            await stream.send_all(b"\x05")
            assert await stream.receive_some() == b""
            assert trio.current_time() - start == REQUEST_TIMEOUT
        assert set(net.relay.statistics().refusals.values()) == {0}


async def with_relay(answer: bytes | None) -> ReservationGranted:
    """What `reserve` makes of a relay that answers this, or nothing at all."""

    async def serve(stream: Stream) -> None:
        hop = HopListener(trio.current_time())
        assert not isinstance(await wait_event(hop, stream), RequestBroken)
        if answer is None:
            await trio.sleep_forever()
        await stream.send_all(encode_frame(answer or b""))
        await flush(hop, stream)

    hub, address = MemoryHub(), Address.parse("/memory/1")
    async with (
        open_host(
            identity=Identity.generate(),
            transports=[MemoryTransport(hub)],
            protocols=[Protocol(HOP_ID, serve)],
            listen=[address],
        ) as relay,
        open_host(identity=Identity.generate(), transports=[MemoryTransport(hub)]) as member,
    ):
        await member.connect(relay.peer, [address])
        granted = await reserve(member, relay.peer)
        return ReservationGranted(
            granted.expires_at,
            tuple(Address(tuple(part for part in a.parts if part[0] != "p2p")) for a in granted.addresses),
            granted.limits,
        )


def granting(*addresses: str, voucher: bytes = b"") -> bytes:
    parsed = tuple(Address.parse(address) for address in addresses)
    return encode_hop_status(Status.OK, CircuitLimits(), ReservationGranted(9.0, parsed, CircuitLimits(), voucher))


async def test_a_relay_without_addresses_is_where_it_was_dialled(autojump_clock: MockClock) -> None:
    for answer in (granting(), granting("/ip4/0.0.0.0/tcp/1", f"/ip4/192.0.2.1/tcp/1/p2p/{Identity.generate().peer}")):
        assert (await with_relay(answer)).addresses == (Address.parse("/memory/1/p2p-circuit"),)


async def test_addresses_are_taken_once_and_in_order(autojump_clock: MockClock) -> None:
    answer = granting("/ip4/192.0.2.1/tcp/1", "/ip4/192.0.2.1/tcp/1", "/ip6/2001:db8::1/tcp/2/ws")
    assert [str(address) for address in (await with_relay(answer)).addresses] == [
        "/ip4/192.0.2.1/tcp/1/p2p-circuit",
        "/ip6/2001:db8::1/tcp/2/ws/p2p-circuit",
    ]


@pytest.mark.parametrize("answer", [b"\xff", encode_hop_status(Status.OK, CircuitLimits()), granting(voucher=b"x")])
async def test_a_relay_that_breaks_the_protocol_is_found_out(answer: bytes, autojump_clock: MockClock) -> None:
    with pytest.raises(RemoteProtocolError):
        await with_relay(answer)


async def test_a_relay_that_says_nothing_is_not_waited_for_forever(autojump_clock: MockClock) -> None:
    with pytest.raises(trio.TooSlowError):
        await with_relay(None)
