"""Circuits on connections of their own: when they come about, and that nobody notices when they do not."""

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from agentmesh.protocols.relay import CircuitStream, DataPathConfig, DataPathStatistics, Relay, RelayConfig, reserve
from agentmesh.protocols.relay.data_paths import RETRY_INTERVAL
from agentmesh.protocols.relay.meetings import REASONS, REFUSALS
from agentmesh.runtime.host import Host
from agentmesh.types import Address
from tests.protocols.relay import net as nets
from tests.protocols.relay.by_hand import Hand, Nowhere, Silence, come, connection, join_by_hand, near_by_hand
from tests.protocols.relay.connections import MemorySplicer
from tests.protocols.relay.net import Net, assert_nothing_left, echo, open_net, read_all, send_and_finish

PAIRING_TIMEOUT = DataPathConfig().pairing_timeout
EXPIRED = {"expired": 1}


@pytest.fixture(autouse=True)
def on_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nets, "CARRIER", nets.CONNECTIONS)


def figures(net: Net) -> DataPathStatistics:
    return net.relay.statistics().data_paths


def fallbacks(net: Net) -> dict[str, int]:
    return {reason: count for reason, count in figures(net).fallbacks.items() if count}


def refusals(net: Net) -> dict[str, int]:
    return {reason: count for reason, count in figures(net).refusals.items() if count}


async def open_any(net: Net, near: Host, far: Host) -> CircuitStream:
    """A circuit, whatever carries it."""
    return await net.clients[near.peer].open_circuit(net.router.peer, far.peer)


async def works(circuit: CircuitStream) -> bool:
    """Whether bytes and ends go both ways."""
    await send_and_finish(circuit, b"there and back")
    return await read_all(circuit) == b"there and back"


async def test_what_there_is_is_told(autojump_clock: MockClock) -> None:
    async with open_net() as net:
        near, far = await net.join(), await net.join_reachable()
        nothing = dict.fromkeys(REASONS, 0), dict.fromkeys(REFUSALS, 0)
        assert figures(net) == DataPathStatistics("memory", 0, 0, *nothing)
        async with await net.circuit(near, far) as circuit:
            assert figures(net) == DataPathStatistics("memory", 1, 1, *nothing)
            assert await works(circuit)
        await assert_nothing_left(net, near, far)
        assert figures(net) == DataPathStatistics("memory", 0, 1, *nothing)


# ── who has none ──


async def test_a_far_end_without_gets_a_stream(autojump_clock: MockClock) -> None:
    async with open_net() as net:
        near, splicer = await net.join(), net.splicer
        net.splicer = None
        far = await net.join_reachable()
        net.splicer = splicer
        async with await open_any(net, near, far) as circuit:
            assert not circuit.is_spliced
            assert await works(circuit)
        assert (fallbacks(net), figures(net).spliced) == ({"untaken": 1}, 0)
        await assert_nothing_left(net, near, far)


async def test_a_near_end_without_is_offered_nothing(autojump_clock: MockClock) -> None:
    async with open_net() as net:
        far, splicer = await net.join_reachable(), net.splicer
        net.splicer = None
        near = await net.join()
        net.splicer = splicer
        async with await open_any(net, near, far) as circuit:
            assert not circuit.is_spliced
            assert await works(circuit)
        assert (fallbacks(net), figures(net).spliced) == ({}, 0)


@pytest.mark.parametrize("why", ["switched off", "no splicer"])
async def test_a_relay_without_has_no_door_and_offers_nothing(why: str, autojump_clock: MockClock) -> None:
    config = RelayConfig(data_path=DataPathConfig(enabled=why != "switched off"))
    splicer = MemorySplicer() if why == "switched off" else None
    assert Relay(config, splicer=splicer).protocol().doors == ()
    assert Relay(config, splicer=splicer).statistics().data_paths.method == "off"
    async with open_net(config if why == "switched off" else None) as net:
        if why == "switched off":
            near, far = await net.join(), await net.join_reachable()
            async with await open_any(net, near, far) as circuit:
                assert not circuit.is_spliced
                assert await works(circuit)
            assert fallbacks(net) == {}


async def test_a_peer_that_the_relay_dialled_has_none(autojump_clock: MockClock) -> None:
    """It does not know where the relay is."""
    async with open_net() as net:
        near, far = await net.join(), await net.join_reachable()
        session = far.session(net.router.peer)
        assert session is not None
        await session.aclose()
        async with far.listening(Address.parse("/memory/7")):
            await net.router.connect(far.peer, far.addresses)
            await wait_all_tasks_blocked()
            net.admit(far)
            await reserve(far, net.router.peer)
            async with await open_any(net, near, far) as circuit:
                assert not circuit.is_spliced
                assert await works(circuit)
        assert fallbacks(net) == {"untaken": 1}


# ── who cannot come ──


@pytest.mark.parametrize("stranded", ["near", "far", "both"])
async def test_an_end_that_cannot_come_says_so_and_is_not_asked_again_for_a_while(
    stranded: str, autojump_clock: MockClock
) -> None:
    async with open_net() as net:
        nowhere = Nowhere()
        near = await net.join(dialer=nowhere if stranded in ("near", "both") else None)
        far = await net.join(dialer=nowhere if stranded in ("far", "both") else None)
        await reserve(far, net.router.peer)
        start = trio.current_time()
        for _ in range(3):
            async with await open_any(net, near, far) as circuit:
                assert not circuit.is_spliced
                assert await works(circuit)
        assert trio.current_time() == start, "nobody waits"
        assert nowhere.dials == (2 if stranded == "both" else 1)
        # A near end asks no more; a far one is still offered connections, and does not take them.
        assert fallbacks(net) == {"declined": 1} | ({} if stranded == "near" else {"untaken": 2})
        await trio.sleep(RETRY_INTERVAL)
        async with await open_any(net, near, far) as circuit:
            assert await works(circuit)
        assert fallbacks(net)["declined"] == 2
        await assert_nothing_left(net, near, far)


@pytest.mark.parametrize("stranded", ["near", "far"])
async def test_an_end_on_whose_way_all_is_lost_is_waited_for_as_long_as_is_said(
    stranded: str, autojump_clock: MockClock
) -> None:
    async with open_net() as net:
        silence = Silence()
        near = await net.join(dialer=silence if stranded == "near" else None)
        far = await net.join(dialer=silence if stranded == "far" else None)
        await reserve(far, net.router.peer)
        start = trio.current_time()
        for _ in range(2):
            async with await open_any(net, near, far) as circuit:
                assert not circuit.is_spliced
                assert await works(circuit)
            assert trio.current_time() - start == pytest.approx(PAIRING_TIMEOUT)
        assert fallbacks(net)["timeout"] == silence.dials == 1
        await assert_nothing_left(net, near, far)


async def test_the_other_end_is_not_blamed(autojump_clock: MockClock) -> None:
    async with open_net() as net:
        near, far = await net.join(), await net.join(dialer=Nowhere())
        fine = await net.join_reachable()
        await reserve(far, net.router.peer)
        async with await open_any(net, near, far) as circuit:
            assert not circuit.is_spliced
        async with await net.circuit(near, fine) as circuit:
            assert await works(circuit)


@pytest.mark.parametrize("seconds", [1.0, 20.0])
async def test_the_time_to_come_is_a_setting(seconds: float, autojump_clock: MockClock) -> None:
    config = RelayConfig(data_path=DataPathConfig(pairing_timeout=seconds))
    async with open_net(config) as net:
        near, far = await net.join(dialer=Silence()), await net.join_reachable()
        start = trio.current_time()
        circuit = open_any(net, near, far)
        if seconds > 15:
            with pytest.raises(trio.TooSlowError):
                await circuit
            assert trio.current_time() - start == 15.0
        else:
            (await circuit).reset()
            assert trio.current_time() - start == seconds
        await assert_nothing_left(net, near, far)


# ── how many ──


async def test_circuits_beyond_the_bounds_go_over_streams(autojump_clock: MockClock) -> None:
    config = RelayConfig(data_path=DataPathConfig(max_circuits=3, max_circuits_per_peer=2))
    async with open_net(config) as net:
        greedy, modest, far = await net.join(), await net.join(), await net.join_reachable()
        circuits = [await open_any(net, near, far) for near in (greedy, greedy, greedy, modest, modest)]
        assert [circuit.is_spliced for circuit in circuits] == [True, True, False, True, False]
        assert figures(net).circuits == 3
        for circuit in circuits:
            assert await works(circuit)
            await circuit.aclose()
        await assert_nothing_left(net, greedy, modest, far)
        async with await net.circuit(modest, far) as circuit:
            assert await works(circuit)


# ── tickets ──


async def test_two_hands_can_do_it(autojump_clock: MockClock) -> None:
    async with open_net() as net:
        near, far = await net.join(), await join_by_hand(net, come)
        async with near_by_hand(net, near, far.peer) as hand, hand.connection() as stream:
            assert await stream.receive_some(1) == b"\xda"
            await stream.send_all(b"hello")
            assert await stream.receive_some() == b"hello"
            assert figures(net).spliced == 1
            assert isinstance(stream, trio.abc.HalfCloseableStream)
            await stream.send_eof()
            await hand.stream.send_eof()
            assert await stream.receive_some() == b""
            assert await hand.stream.receive_some() == b""
        await assert_nothing_left(net, near, far)


async def test_a_replayed_ticket_is_turned_away_and_disturbs_nobody(autojump_clock: MockClock) -> None:
    async def come_twice(hand: Hand) -> None:
        async with hand.connection() as stream:
            await wait_all_tasks_blocked()
            assert await hand.is_turned_away()
            assert await stream.receive_some(1) == b"\xda"
            assert await hand.is_turned_away()
            await stream.send_all(b"still here")
            await hand.stream.receive_some()

    async with open_net() as net:
        near, far = await net.join(), await join_by_hand(net, come_twice)
        async with await net.circuit(near, far) as circuit:
            assert await circuit.receive_some() == b"still here"
        assert refusals(net) == {"used": 2}
        await assert_nothing_left(net, near, far)


async def test_one_end_does_not_pose_as_both(autojump_clock: MockClock) -> None:
    async def wait(hand: Hand) -> None:
        await hand.stream.receive_some()

    async with open_net() as net:
        near, far = await net.join(), await join_by_hand(net, wait)
        async with near_by_hand(net, near, far.peer) as hand, hand.connection():
            await wait_all_tasks_blocked()
            assert await hand.is_turned_away()
        assert (figures(net).spliced, refusals(net)) == (0, {"used": 1})


@pytest.mark.parametrize("ticket", [bytes(32), b"\xff" * 32])
async def test_a_guessed_ticket_is_turned_away(ticket: bytes, autojump_clock: MockClock) -> None:
    async with open_net() as net:
        near, far = await net.join(), await net.join_reachable()
        async with await net.circuit(near, far) as circuit, connection(net) as stream:
            await stream.send_all(b"\xda" + ticket)
            assert await stream.receive_some() == b""
            assert refusals(net) == {"unknown": 1}
            assert await works(circuit)


@pytest.mark.parametrize(("delay", "lifetime", "fate"), [(9.9, 10.0, {}), (10.0, 10.0, EXPIRED), (2.0, 1.0, EXPIRED)])
async def test_a_ticket_expires(delay: float, lifetime: float, fate: dict[str, int], autojump_clock: MockClock) -> None:
    """From the offer on, however long the far end takes to answer."""

    async def come_or_not(hand: Hand) -> None:
        if not fate:
            await come(hand)
        else:
            assert await hand.is_turned_away()
            await hand.stream.receive_some()

    async with open_net(RelayConfig(data_path=DataPathConfig(ticket_lifetime=lifetime))) as net:
        near, far = await net.join(), await join_by_hand(net, come_or_not, delay=delay)
        with trio.move_on_after(delay + 1):
            async with await open_any(net, near, far) as circuit:
                assert circuit.is_spliced == (not fate)
        assert refusals(net) == fate
        assert figures(net).spliced == (not fate)


async def test_a_ticket_of_a_circuit_over_streams_comes_too_late(autojump_clock: MockClock) -> None:
    late: list[bool] = []

    async def come_late(hand: Hand) -> None:
        await trio.sleep(PAIRING_TIMEOUT + 1)
        late.append(await hand.is_turned_away())
        await hand.stream.receive_some()

    async with open_net() as net:
        near, far = await net.join(), await join_by_hand(net, come_late)
        async with near_by_hand(net, near, far.peer):
            await trio.sleep(PAIRING_TIMEOUT + 2)
        assert (late, refusals(net)) == ([True], {"late": 1})


async def test_a_ticket_of_a_circuit_that_has_ended_is_unknown(autojump_clock: MockClock) -> None:
    async with open_net() as net:
        near, far = await net.join(), await net.join_reachable()
        async with near_by_hand(net, near, far.peer) as hand:
            pass
        await wait_all_tasks_blocked()
        assert await hand.is_turned_away()
        assert refusals(net) == {"unknown": 1}
        await assert_nothing_left(net, near, far)


async def test_a_good_ticket_on_a_connection_that_cannot_be_spliced(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def take(splicer: MemorySplicer, stream: object) -> None:
        return None

    monkeypatch.setattr(MemorySplicer, "take", take)
    async with open_net() as net:
        near, far = await net.join(echo), await net.join_reachable()
        async with await open_any(net, near, far) as circuit:
            assert not circuit.is_spliced
            assert await works(circuit)
        assert fallbacks(net) == {"declined": 1}
        assert refusals(net)["unfit"] >= 1
