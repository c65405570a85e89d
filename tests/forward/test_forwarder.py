"""One connection after the other in virtual time: half-closes, slow readers, refusals, limits, stopping."""

import hashlib
from functools import partial

import pytest
import trio
from trio.testing import MockClock, lockstep_stream_pair, wait_all_tasks_blocked

from agentmesh.errors import NotConnectedError
from agentmesh.forward import Forwarder, Outcome
from agentmesh.forward.forwarder import LINGER_TIMEOUT, REQUEST_TIMEOUT, STOP_TIMEOUT
from agentmesh.forward.http_connect import ConnectServer
from agentmesh.forward.socks import SocksServer
from agentmesh.node import TunnelTarget
from agentmesh.pool.copying import COPY_BYTES
from agentmesh.protocols.pool import Code, Stage
from tests.forward.worlds import TARGET, ChannelListener, HalfCloseable, Tunnels, read_all, read_exactly, refusal

SOCKS_REQUEST = bytes((5, 1, 0, 5, 1, 0, 1, 192, 0, 2, 7, 0, 22))
SOCKS_REPLY = bytes((5, 0, 5, 0, 0, 1, 0, 0, 0, 0, 0, 0))
CONNECT = b"CONNECT h:22 HTTP/1.1\r\nHost: h:22\r\n\r\n"
ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"


def start(nursery: trio.Nursery, forwarder: Forwarder, way: str = "plain") -> HalfCloseable:
    """A client's end of a connection that is served."""
    ways = {
        "plain": forwarder.lead_to(TARGET),
        "socks": forwarder.ask(SocksServer),
        "http": forwarder.ask(ConnectServer),
    }
    client, accepted = lockstep_stream_pair()
    nursery.start_soon(forwarder.serve, ways[way], accepted)
    return client


async def tunnel_of(tunnels: Tunnels) -> HalfCloseable:
    await wait_all_tasks_blocked()
    return tunnels.far[-1]


async def test_the_client_ends_first_and_the_answer_comes_long_after(autojump_clock: MockClock) -> None:
    tunnels = Tunnels()
    forwarder = Forwarder(tunnels.open)
    async with trio.open_nursery() as nursery:
        client = start(nursery, forwarder)
        target = await tunnel_of(tunnels)
        nursery.start_soon(client.send_all, b"question")
        assert await read_exactly(target, 8) == b"question"
        nursery.start_soon(client.send_eof)
        assert await target.receive_some() == b""
        await trio.sleep(3600)
        nursery.start_soon(target.send_all, b"answer")
        assert await read_exactly(client, 6) == b"answer"
        nursery.start_soon(target.send_eof)
        assert await client.receive_some() == b""
    assert tunnels.asked == [TARGET]
    statistics = forwarder.statistics()
    assert (statistics.open, statistics.bytes_forth, statistics.bytes_back) == (0, 8, 6)
    assert statistics.ended == {**dict.fromkeys(Outcome, 0), Outcome.WHOLE: 1}


async def test_the_target_ends_first_and_the_client_goes_on(autojump_clock: MockClock) -> None:
    tunnels = Tunnels()
    forwarder = Forwarder(tunnels.open)
    async with trio.open_nursery() as nursery:
        client = start(nursery, forwarder)
        target = await tunnel_of(tunnels)
        nursery.start_soon(target.send_eof)
        assert await client.receive_some() == b""
        await trio.sleep(3600)
        nursery.start_soon(client.send_all, b"all the same")
        assert await read_exactly(target, 12) == b"all the same"
        nursery.start_soon(client.send_eof)
        assert await target.receive_some() == b""
    assert forwarder.statistics().ended[Outcome.WHOLE] == 1


@pytest.mark.parametrize("way", ["client", "target"])
async def test_a_reader_that_waits_makes_its_sender_wait(way: str, autojump_clock: MockClock) -> None:
    """And what lies between them meanwhile is one piece of the copy."""
    tunnels, total = Tunnels(), 40 * COPY_BYTES
    forwarder = Forwarder(tunnels.open)
    async with trio.open_nursery() as nursery:
        client = start(nursery, forwarder)
        target = await tunnel_of(tunnels)
        source, sink = (client, target) if way == "client" else (target, client)
        sent, digest = 0, hashlib.sha256()

        async def send() -> None:
            nonlocal sent
            for number in range(total // 1024):
                piece = number.to_bytes(4) * 256
                await source.send_all(piece)
                digest.update(piece)
                sent += 1024
            await source.send_eof()

        nursery.start_soon(send)
        await wait_all_tasks_blocked()
        assert sent <= COPY_BYTES + 1024
        await trio.sleep(3600)
        assert sent <= COPY_BYTES + 1024
        assert hashlib.sha256(await read_all(sink)).digest() == digest.digest()
        assert sent == total
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("way", "request_", "reply"),
    [("socks", SOCKS_REQUEST, SOCKS_REPLY), ("http", CONNECT, ESTABLISHED)],
    ids=["socks", "http"],
)
async def test_what_comes_right_behind_a_request_reaches_the_target(
    way: str, request_: bytes, reply: bytes, autojump_clock: MockClock
) -> None:
    tunnels = Tunnels(opening=trio.Event())
    forwarder = Forwarder(tunnels.open)
    assert tunnels.opening is not None
    async with trio.open_nursery() as nursery:
        client = start(nursery, forwarder, way)
        nursery.start_soon(client.send_all, request_ + b"early ")
        await trio.sleep(REQUEST_TIMEOUT / 2)
        tunnels.opening.set()
        assert await read_exactly(client, len(reply)) == reply
        target = await tunnel_of(tunnels)
        nursery.start_soon(client.send_all, b"late")
        assert await read_exactly(target, 10) == b"early late"
        nursery.start_soon(client.send_eof)
        assert await target.receive_some() == b""
        nursery.start_soon(target.send_eof)
        assert await client.receive_some() == b""
    host = TunnelTarget("192.0.2.7", 22) if way == "socks" else TunnelTarget("h", 22)
    assert tunnels.asked == [host]
    assert forwarder.statistics().bytes_forth == 10


@pytest.mark.parametrize("sent", [b"", SOCKS_REQUEST[:5]])
async def test_a_client_that_asks_for_nothing_is_left(sent: bytes, autojump_clock: MockClock) -> None:
    forwarder, began = Forwarder(Tunnels().open), trio.current_time()
    async with trio.open_nursery() as nursery:
        client = start(nursery, forwarder, "socks")
        if sent:
            nursery.start_soon(client.send_all, sent)
            assert await read_exactly(client, 2) == b"\x05\x00"
        assert await client.receive_some() == b""
    assert trio.current_time() - began == pytest.approx(REQUEST_TIMEOUT + LINGER_TIMEOUT)
    assert forwarder.statistics().ended[Outcome.NO_REQUEST] == 1


async def test_a_client_that_drips_has_no_more_time(autojump_clock: MockClock) -> None:
    forwarder, began = Forwarder(Tunnels().open), trio.current_time()
    async with trio.open_nursery() as nursery:
        client = start(nursery, forwarder, "http")
        with pytest.raises(trio.BrokenResourceError):
            for byte in CONNECT[:-1]:
                await client.send_all(bytes((byte,)))
                await trio.sleep(1)
    assert trio.current_time() - began <= REQUEST_TIMEOUT + LINGER_TIMEOUT + 1
    assert forwarder.statistics().ended[Outcome.NO_REQUEST] == 1


async def test_no_tunnel_for_a_plain_port_is_a_cut(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    forwarder = Forwarder(Tunnels(error=refusal(Code.AGENT_OFFLINE, Stage.SELECTION)).open)
    async with trio.open_nursery() as nursery:
        client = start(nursery, forwarder)
        assert await client.receive_some() == b""
    assert forwarder.statistics().ended[Outcome.NO_TUNNEL] == 1
    [record] = caplog.records
    assert vars(record)["reason"] == str(refusal(Code.AGENT_OFFLINE, Stage.SELECTION))
    assert (vars(record)["target"], vars(record)["trace"]) == (str(TARGET), "trace-1")


async def test_a_refusal_is_read_before_the_connection_ends(autojump_clock: MockClock) -> None:
    forwarder = Forwarder(Tunnels(error=refusal(Code.QUEUE_FULL, Stage.QUEUE, retry_after_ms=1500)).open)
    async with trio.open_nursery() as nursery:
        client = start(nursery, forwarder, "http")
        nursery.start_soon(client.send_all, CONNECT + b"early")
        answer = await read_all(client)
        await client.aclose()
    assert answer.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
    assert b"\r\nRetry-After: 2\r\n" in answer
    assert forwarder.statistics().ended[Outcome.NO_TUNNEL] == 1


async def test_a_node_without_a_router_is_a_503(autojump_clock: MockClock) -> None:
    forwarder = Forwarder(Tunnels(error=NotConnectedError("this node is attached to no router")).open)
    async with trio.open_nursery() as nursery:
        client = start(nursery, forwarder, "http")
        nursery.start_soon(client.send_all, CONNECT)
        assert (await read_all(client)).startswith(b"HTTP/1.1 503 ")
        await client.aclose()


async def test_one_connection_too_many_is_closed_at_once_and_counted(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    tunnels, began = Tunnels(), trio.current_time()
    forwarder = Forwarder(tunnels.open, max_connections=2)
    async with trio.open_nursery() as nursery:
        first, second = start(nursery, forwarder), start(nursery, forwarder, "socks")
        await wait_all_tasks_blocked()
        for count in (1, 2):
            assert await start(nursery, forwarder).receive_some() == b""
            assert forwarder.statistics().ended[Outcome.TOO_MANY] == count
        assert forwarder.statistics().open == 2
        assert [record.message for record in caplog.records] == ["too many connections"]
        assert trio.current_time() == began
        await trio.aclose_forcefully(second)
        await wait_all_tasks_blocked()
        third = start(nursery, forwarder)
        target = await tunnel_of(tunnels)
        nursery.start_soon(third.send_all, b"room again")
        assert await read_exactly(target, 10) == b"room again"
        await trio.aclose_forcefully(first)
        nursery.cancel_scope.cancel()
    assert forwarder.statistics().open == 0


async def test_stopping_accepts_no_more_and_gives_those_that_are_there_a_moment(autojump_clock: MockClock) -> None:
    tunnels, listener = Tunnels(), ChannelListener.make()
    forwarder = Forwarder(tunnels.open)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(forwarder.run, [(listener, forwarder.lead_to(TARGET))])
        quick, slow = await listener.connect(), await listener.connect()
        await wait_all_tasks_blocked()
        forwarder.stop()
        stopped = trio.current_time()
        await wait_all_tasks_blocked()
        with pytest.raises(trio.BrokenResourceError):
            await listener.connect()
        target = tunnels.far[0]
        nursery.start_soon(quick.send_all, b"the last words")
        assert await read_exactly(target, 14) == b"the last words"
        for stream in (quick, target):
            nursery.start_soon(stream.send_eof)
        assert forwarder.statistics().open == 2
        assert await slow.receive_some() == b""
        assert trio.current_time() - stopped == pytest.approx(STOP_TIMEOUT)
    ended = forwarder.statistics().ended
    assert (ended[Outcome.WHOLE], ended[Outcome.CUT]) == (1, 1)


async def test_cancelling_ends_both_sides_at_once(autojump_clock: MockClock) -> None:
    tunnels, began = Tunnels(), trio.current_time()
    forwarder = Forwarder(tunnels.open)
    client, accepted = lockstep_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(forwarder.serve, forwarder.lead_to(TARGET)), accepted)
        target = await tunnel_of(tunnels)
        nursery.cancel_scope.cancel()
    assert await client.receive_some() == b""
    assert await target.receive_some() == b""
    assert trio.current_time() == began
    assert forwarder.statistics().ended[Outcome.CUT] == 1
    assert forwarder.statistics().open == 0


@pytest.mark.parametrize("way", ["socks", "http"])
async def test_a_client_that_leaves_while_its_tunnel_is_opened_leaves_none(way: str, autojump_clock: MockClock) -> None:
    tunnels = Tunnels(opening=trio.Event())
    forwarder = Forwarder(tunnels.open)
    assert tunnels.opening is not None
    async with trio.open_nursery() as nursery:
        client = start(nursery, forwarder, way)
        nursery.start_soon(client.send_all, SOCKS_REQUEST if way == "socks" else CONNECT)
        await wait_all_tasks_blocked()
        if way == "socks":
            assert await read_exactly(client, 2) == b"\x05\x00"
            await wait_all_tasks_blocked()
        await trio.aclose_forcefully(client)
        tunnels.opening.set()
        assert await (await tunnel_of(tunnels)).receive_some() == b""
    assert forwarder.statistics().ended[Outcome.CUT] == 1
