"""Spliced circuits over real sockets, in the kernel and by copying."""

from collections.abc import Awaitable, Callable

import pytest
import trio

from agentmesh.abc import ByteStream
from agentmesh.errors import ErrorCode, StreamResetError
from agentmesh.protocols.relay import CircuitLimits, CircuitStream, RelayConfig
from agentmesh.runtime.host import Host
from tests.protocols.relay.by_hand import Nowhere
from tests.protocols.relay.cuts import cut_circuits
from tests.protocols.relay.loopback import METHODS, Loopback, open_loopback, wait_until
from tests.protocols.relay.net import MIB, read_all, send_and_finish

pytestmark = pytest.mark.parametrize("method", METHODS)


async def spliced(mesh: Loopback, near: Host, far: Host) -> CircuitStream:
    circuit = await mesh.open_circuit(near, far)
    assert circuit.is_spliced
    return circuit


async def both_ways(circuit: CircuitStream, data: bytes) -> bytes:
    """What an echo gives back."""
    received: list[bytes] = []

    async def receive() -> None:
        received.append(await read_all(circuit))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(receive)
        await send_and_finish(circuit, data)
    return received[0]


async def test_bytes_go_both_ways_and_are_counted(method: str) -> None:
    data = bytes(range(256)) * (8 * MIB // 256)
    async with open_loopback(method) as mesh:
        near, far = await mesh.join(), await mesh.join()
        async with await spliced(mesh, near, far) as circuit:
            assert (circuit.peer, circuit.relay) == (far.peer, mesh.router.peer)
            assert await both_ways(circuit, data) == data
        await wait_until(lambda: not mesh.relay.statistics().circuits)
        found = mesh.relay.statistics()
        assert found.relayed_bytes == 2 * len(data)
        assert (found.data_paths.method, found.data_paths.spliced) == (method, 1)
        assert not any(found.data_paths.refusals.values())
        assert not any(found.data_paths.fallbacks.values())


async def test_many_circuits_at_once(method: str) -> None:
    async with open_loopback(method) as mesh:
        near, far = await mesh.join(), await mesh.join()

        async def use(number: int) -> None:
            data = bytes([number]) * (number * 10_000)
            async with await spliced(mesh, near, far) as circuit:
                assert await both_ways(circuit, data) == data

        async with trio.open_nursery() as nursery:
            for number in range(32):
                nursery.start_soon(use, number)
    assert mesh.relay.statistics().relayed_bytes == 2 * sum(number * 10_000 for number in range(32))


async def test_each_direction_ends_by_itself(method: str) -> None:
    heard: list[bytes] = []
    ended = trio.Event()

    async def answer_after_the_end(stream: ByteStream) -> None:
        heard.append(await read_all(stream))
        await ended.wait()
        await stream.send_all(b"late answer")

    async with open_loopback(method) as mesh:
        near, far = await mesh.join(), await mesh.join(answer_after_the_end)
        async with await spliced(mesh, near, far) as circuit:
            await send_and_finish(circuit, b"question")
            with pytest.raises(trio.ClosedResourceError):
                await circuit.send_all(b"more")
            await wait_until(lambda: heard == [b"question"])
            ended.set()
            assert await read_all(circuit) == b"late answer"
            assert await circuit.receive_some() == b""


async def test_a_small_piece_does_not_wait_for_more(method: str) -> None:
    async with open_loopback(method) as mesh:
        near, far = await mesh.join(), await mesh.join()
        async with await spliced(mesh, near, far) as circuit:
            for number in range(50):
                await circuit.send_all(b"%02d" % number)
                assert await circuit.receive_some() == b"%02d" % number


@pytest.mark.parametrize("size", [999, 1000, 1001, 300_000])
async def test_exactly_the_allowed_bytes_pass(method: str, size: int) -> None:
    heard: list[bytes] = []

    async def listen(stream: ByteStream) -> None:
        received = b""
        try:
            while data := await stream.receive_some():
                received += data
        except StreamResetError as cut:
            assert cut.code == ErrorCode.RESOURCE_LIMIT_EXCEEDED
        heard.append(received)

    async with open_loopback(method, RelayConfig(circuit=CircuitLimits(0.0, 1000))) as mesh:
        near, far = await mesh.join(), await mesh.join(listen)
        async with await spliced(mesh, near, far) as circuit:
            if size <= 1000:
                await send_and_finish(circuit, bytes(size))
                assert await read_all(circuit) == b""
            else:
                with pytest.raises(StreamResetError) as cut:
                    await circuit.send_all(bytes(size))
                    await circuit.receive_some()
                assert cut.value.code == ErrorCode.RESOURCE_LIMIT_EXCEEDED
        await wait_until(lambda: bool(heard) and not mesh.relay.statistics().circuits)
        assert mesh.relay.statistics().relayed_bytes == min(size, 1000)
        assert heard[0] == bytes(len(heard[0]))
        assert len(heard[0]) == size if size <= 1000 else len(heard[0]) <= 1000


@pytest.mark.parametrize("code", [ErrorCode.NO_ERROR, ErrorCode.SUPPLANTED])
@pytest.mark.parametrize("busy", [False, True])
async def test_a_reset_travels_with_its_code(method: str, code: int, busy: bool) -> None:
    """Also when nobody reads and the way is full of bytes."""
    seen: list[int] = []

    async def hear(stream: ByteStream) -> None:
        with pytest.raises(StreamResetError) as cut:
            if busy:
                await stream.send_all(bytes(64 * MIB))
            await stream.receive_some()
        seen.append(cut.value.code)

    async with open_loopback(method) as mesh:
        near, far = await mesh.join(), await mesh.join(hear)
        circuit = await spliced(mesh, near, far)
        if busy:
            await wait_until(lambda: mesh.relay.statistics().relayed_bytes > 0)
        circuit.reset(code)
        with pytest.raises(trio.ClosedResourceError):
            await circuit.receive_some()
        await wait_until(lambda: bool(seen))
        assert seen == [code]


async def test_a_member_that_loses_its_admission_loses_its_circuits(method: str) -> None:
    async with open_loopback(method) as mesh:
        near, far = await mesh.join(), await mesh.join()
        async with await spliced(mesh, near, far) as circuit:
            mesh.relay.drop(near.peer)
            with pytest.raises(StreamResetError) as cut:
                await read_all(circuit)
            assert cut.value.code == ErrorCode.GATED
        await wait_until(lambda: not mesh.relay.statistics().circuits)


async def _leave_session(mesh: Loopback, host: Host) -> None:
    session = host.session(mesh.router.peer)
    assert session is not None
    session.abort("gone")


async def _stop_relay(mesh: Loopback, host: Host) -> None:
    await mesh.router.stop()


async def _kill_relays_session(mesh: Loopback, host: Host) -> None:
    session = mesh.router.session(host.peer)
    assert session is not None
    session.abort("killed")


ENDINGS = {
    "its session ends": _leave_session,
    "the relay stops": _stop_relay,
    "the relay drops it": _kill_relays_session,
}


@pytest.mark.parametrize("busy", [False, True])
@pytest.mark.parametrize("end", ["near", "far"])
@pytest.mark.parametrize("ending", ENDINGS)
async def test_whatever_kills_a_circuit_both_ends_hear_of_it(method: str, ending: str, end: str, busy: bool) -> None:
    heard: list[BaseException] = []

    async def use(stream: ByteStream) -> None:
        try:
            await stream.send_all(b"hello")
            while busy:
                await stream.send_all(bytes(MIB))
            await read_all(stream)
        except (trio.BrokenResourceError, trio.Cancelled) as exc:  # the handler runs in its session
            heard.append(exc)
            raise

    act: Callable[[Loopback, Host], Awaitable[None]] = ENDINGS[ending]
    async with open_loopback(method) as mesh:
        near, far = await mesh.join(), await mesh.join(use)
        async with await spliced(mesh, near, far) as circuit:
            assert await circuit.receive_some(5) == b"hello"
            await act(mesh, near if end == "near" else far)
            with pytest.raises(trio.BrokenResourceError):
                await read_all(circuit)
            with pytest.raises(trio.BrokenResourceError):
                await circuit.send_all(b"x")
        await wait_until(lambda: len(heard) == 1)
        await wait_until(lambda: not mesh.relay.statistics().circuits)
        assert mesh.relay.statistics().data_paths.circuits == len(mesh.relay.book.circuits) == 0


async def test_what_was_sent_before_closing_arrives_though_bytes_come_in(method: str) -> None:
    """A socket that is closed with bytes unread takes back what it has sent; a circuit does not."""
    received: list[int] = []

    async def talk_and_listen(stream: ByteStream) -> None:
        count = 0
        async with trio.open_nursery() as nursery:

            async def talk() -> None:
                try:
                    for _ in range(1000):
                        await stream.send_all(b"chatter")
                except trio.BrokenResourceError:
                    return

            nursery.start_soon(talk)
            while data := await stream.receive_some():
                count += len(data)
        received.append(count)

    async with open_loopback(method) as mesh:
        near, far = await mesh.join(), await mesh.join(talk_and_listen)
        async with await spliced(mesh, near, far) as circuit:
            await circuit.send_all(bytes(2 * MIB))
        await wait_until(lambda: bool(received))
        assert received == [2 * MIB]


# ── who keeps to streams ──


@pytest.mark.parametrize("who", ["near", "far"])
async def test_members_over_websocket_keep_to_streams(method: str, who: str) -> None:
    async with open_loopback(method) as mesh:
        near = await mesh.join(over="/ws" if who == "near" else "")
        far = await mesh.join(over="/ws" if who == "far" else "")
        async with await mesh.open_circuit(near, far) as circuit:
            assert not circuit.is_spliced
            assert await both_ways(circuit, bytes(MIB)) == bytes(MIB)
        assert mesh.relay.statistics().data_paths.fallbacks["untaken"] == (who == "far")


@pytest.mark.parametrize("who", ["near", "far"])
async def test_members_that_cannot_come_keep_to_streams(method: str, who: str) -> None:
    async with open_loopback(method) as mesh:
        near = await mesh.join(dialer=Nowhere() if who == "near" else None)
        far = await mesh.join(dialer=Nowhere() if who == "far" else None)
        async with await mesh.open_circuit(near, far) as circuit:
            assert not circuit.is_spliced
            assert await both_ways(circuit, bytes(MIB)) == bytes(MIB)


async def test_circuits_cut_at_random_points_leave_nothing(method: str) -> None:
    """`python -m tests.protocols.relay.cuts` does it with as many as one likes."""
    outcomes = await cut_circuits(150, 1, method)
    assert outcomes["whole"]
    assert outcomes["cut"]
