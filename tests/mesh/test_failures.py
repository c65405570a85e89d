"""What ends a circuit, and what an end leaves behind, in virtual time over a network that fails on command."""

import pytest
import trio
from trio.testing import MockClock

from agentmesh.errors import SessionClosedError
from agentmesh.runtime.config import SessionConfig
from agentmesh.runtime.host import Host
from agentmesh.testing import Conditions, MemoryNetwork
from tests.mesh.trio_mesh import ECHO, SINK, Mesh, open_mesh

PING_DEADLINE = 3 * SessionConfig().ping_interval
PIECE = bytes(64 * 1024)


def network() -> MemoryNetwork:
    return MemoryNetwork(seed=1, conditions=Conditions(latency=0.01, bandwidth=20e6))


def open_streams(host: Host) -> int:
    return sum(len(session.streams) for session in host.connections)


async def wait_for(condition: object, *, within: float) -> float:
    """Wait, in steps of virtual time, until `condition()` holds. Returns how long it took."""
    assert callable(condition)
    started = trio.current_time()
    with trio.fail_after(within):
        while not condition():  # noqa: ASYNC110 - there is no event to wait for: the test looks from outside
            await trio.sleep(0.1)
    return trio.current_time() - started


async def test_half_close_travels_through_a_circuit_each_direction_on_its_own(autojump_clock: MockClock) -> None:
    async with open_mesh(network().transport) as mesh:
        alice, bob = await mesh.member("alice"), await mesh.member("bob")
        session = await mesh.circuit(alice, bob)
        async with await session.open_stream(SINK) as stream:
            for _ in range(10):
                await stream.send_all(PIECE)
            await stream.send_eof()
            assert await stream.receive_some() == str(10 * len(PIECE)).encode()
            assert await stream.receive_some() == b""


async def test_a_circuit_whose_session_ended_leaves_nothing(autojump_clock: MockClock) -> None:
    async with open_mesh(network().transport) as mesh:
        alice, bob = await mesh.member("alice"), await mesh.member("bob")
        await trio.sleep(1)
        before = [open_streams(host) for host in (mesh.router, alice, bob)]
        for _ in range(5):
            session = await mesh.circuit(alice, bob)
            async with await session.open_stream(ECHO) as stream:
                await stream.send_all(b"hello")
                assert await stream.receive_some() == b"hello"
            assert mesh.relay.statistics().circuits == 1
            await session.aclose()
            await trio.sleep(1)
            assert mesh.relay.statistics().circuits == 0
            assert [open_streams(host) for host in (mesh.router, alice, bob)] == before
        assert alice.session(bob.peer) is None
        assert bob.session(alice.peer) is None


async def test_a_member_that_vanished_is_taken_down_by_the_ping_deadline_on_both_sides(
    autojump_clock: MockClock,
) -> None:
    net = network()
    async with open_mesh(net.transport) as mesh:
        alice, bob = await mesh.member("alice"), await mesh.member("bob")
        session = await mesh.circuit(alice, bob)
        stream = await session.open_stream(ECHO)
        await stream.send_all(b"hello")
        assert await stream.receive_some() == b"hello"
        net.freeze("bob")  # no FIN, no RST: a process that is stopped, a cable that is cut
        started = trio.current_time()
        with pytest.raises(SessionClosedError):
            await stream.receive_some()
        assert trio.current_time() - started <= PING_DEADLINE + 1
        await wait_for(lambda: mesh.router.session(bob.peer) is None, within=PING_DEADLINE + 1 - _since(started))
        await trio.sleep(1)
        assert mesh.relay.statistics().circuits == 0
        assert mesh.relay.statistics().reservations == 1  # alice's own
        assert alice.session(bob.peer) is None
        net.thaw("bob")


async def test_a_router_that_vanished_breaks_both_ends_within_the_ping_deadline(autojump_clock: MockClock) -> None:
    net = network()
    async with open_mesh(net.transport) as mesh:
        alice, bob = await mesh.member("alice"), await mesh.member("bob")
        session = await mesh.circuit(alice, bob)
        stream = await session.open_stream(SINK)
        await stream.send_all(PIECE)
        await trio.sleep(1)
        (far,) = [one for one in bob.connections if one.peer == alice.peer]

        async with trio.open_nursery() as nursery:
            nursery.start_soon(_freeze_after, net, "router", 1.0)
            started = trio.current_time()
            with pytest.raises(trio.BrokenResourceError):
                while True:
                    await stream.send_all(PIECE)
        assert trio.current_time() - started <= 1 + PING_DEADLINE + 1
        with trio.fail_after(PING_DEADLINE):
            await far.ended.wait()
        net.thaw("router")


async def test_a_stalled_receiver_behind_a_circuit_slows_nobody_else(autojump_clock: MockClock) -> None:
    async with open_mesh(network().transport) as mesh:
        alice, bob = await mesh.member("alice"), await mesh.member("bob")
        session = await mesh.circuit(alice, bob)
        async with await session.open_stream(ECHO) as stalled, await session.open_stream(ECHO) as other:
            with trio.move_on_after(5):  # echoed and never read: both windows fill, and the sender waits
                while True:
                    await stalled.send_all(PIECE)
            started = trio.current_time()
            for _ in range(10):
                await other.send_all(b"quick")
                assert await other.receive_some() == b"quick"
            assert trio.current_time() - started < 10 * 0.05  # four hops of 10 ms each time, and next to nothing else


async def _freeze_after(net: MemoryNetwork, name: str, seconds: float) -> None:
    await trio.sleep(seconds)
    net.freeze(name)


def _since(started: float) -> float:
    return trio.current_time() - started


async def test_members_find_no_router_between_them_when_it_holds_no_reservation(autojump_clock: MockClock) -> None:
    async with open_mesh(network().transport) as mesh:
        alice = await mesh.member("alice")
        hidden = await mesh.member("hidden", reachable=False)
        await _expect_no_circuit(mesh, alice, hidden)


async def _expect_no_circuit(mesh: Mesh, caller: Host, callee: Host) -> None:
    with pytest.raises(Exception, match="NO_RESERVATION"):
        await mesh.circuit(caller, callee)
    assert mesh.relay.statistics().circuits == 0
