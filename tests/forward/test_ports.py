"""Ports of this machine over TCP: what a reset becomes, all bytes of much, and where it does not listen."""

import hashlib
import re
import struct
from pathlib import Path
from socket import SO_LINGER, SOL_SOCKET

import pytest
import trio

from agentmesh.forward import Forward, ForwardConfig, Outcome, serve_forwards
from agentmesh.forward.ports import PROBE_INTERVAL
from agentmesh.membership import StateError
from agentmesh.node import TunnelTarget
from agentmesh.protocols.pool import Code
from tests.forward.worlds import ANY_PORT, NODE, TARGET, HalfCloseable, open_loopback, read_all, read_exactly, refusal

BULK_BYTES = 100 * 1024 * 1024
PIECE = bytes(range(256)) * 1024
PATIENCE = 30.0


async def reset(stream: trio.SocketStream) -> None:
    stream.setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
    await stream.aclose()


async def no_tunnel(target: TunnelTarget) -> HalfCloseable:
    await trio.lowlevel.checkpoint()
    raise refusal(Code.AGENT_OFFLINE)


async def echo(stream: trio.SocketStream) -> None:
    async for data in stream:
        await stream.send_all(data)
    await stream.send_eof()


async def test_a_client_that_is_cut_cuts_its_target() -> None:
    heard = trio.Event()

    async def serve(stream: trio.SocketStream) -> None:
        with pytest.raises(trio.BrokenResourceError):
            await read_all(stream)
        heard.set()

    with trio.fail_after(PATIENCE):
        async with open_loopback(serve) as world:
            client = await world.connect()
            await client.send_all(b"a part")
            await reset(client)
            await heard.wait()
            while world.forwarder.statistics().open:
                await trio.lowlevel.checkpoint()
            assert world.forwarder.statistics().ended[Outcome.CUT] == 1


async def test_a_target_that_is_cut_cuts_its_client() -> None:
    async def serve(stream: trio.SocketStream) -> None:
        await stream.send_all(b"a part")
        await read_exactly(stream, 4)
        await reset(stream)

    with trio.fail_after(PATIENCE):
        async with open_loopback(serve) as world, await world.connect() as client:
            assert await read_exactly(client, 6) == b"a part"
            await client.send_all(b"seen")
            with pytest.raises(trio.BrokenResourceError):
                await client.receive_some()


async def test_no_tunnel_is_a_reset_and_no_end() -> None:
    """Nobody is to take a connection that was never made for a target that has nothing to say."""

    config = ForwardConfig(node=NODE, agent="devbox", forwards=(Forward(ANY_PORT, TARGET),))
    with trio.fail_after(PATIENCE):
        async with serve_forwards(no_tunnel, config) as forwards:
            listen = forwards.listening[0].listen
            async with await trio.open_tcp_stream(listen.host, listen.port) as client:
                with pytest.raises(trio.BrokenResourceError):
                    await client.receive_some()


async def test_a_target_that_closes_at_once() -> None:
    async def serve(stream: trio.SocketStream) -> None:
        pass

    with trio.fail_after(PATIENCE):
        async with open_loopback(serve) as world, await world.connect() as client:
            assert await client.receive_some() == b""
            await client.aclose()
            while world.forwarder.statistics().open:
                await trio.lowlevel.checkpoint()


async def test_all_of_much_arrives_and_comes_back() -> None:
    async def serve(stream: trio.SocketStream) -> None:
        digest = hashlib.sha256()
        async for data in stream:
            digest.update(data)
        await stream.send_all(digest.digest())
        await stream.send_eof()

    with trio.fail_after(PATIENCE):
        async with open_loopback(serve) as world, await world.connect() as client:
            digest = hashlib.sha256()
            for _ in range(BULK_BYTES // len(PIECE)):
                await client.send_all(PIECE)
                digest.update(PIECE)
            await client.send_eof()
            assert await read_all(client) == digest.digest()
            while world.forwarder.statistics().open:
                await trio.lowlevel.checkpoint()
            statistics = world.forwarder.statistics()
            assert (statistics.bytes_forth, statistics.bytes_back) == (BULK_BYTES, 32)
            assert statistics.ended[Outcome.WHOLE] == 1


def timer_of(client: trio.SocketStream) -> tuple[str, float]:
    """The timer of the other end of a connection, as the kernel shows it: which, and in how many seconds."""
    ends = (client.socket.getpeername(), client.socket.getsockname())
    wanted = [f"0100007F:{port:04X}" for _, port in ends]
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
    [timer] = [row[5] for row in rows if row[1:3] == wanted]
    kind, _, left = timer.partition(":")
    return kind, int(left, 16) / 100


async def test_a_client_that_is_silent_is_asked_whether_it_is_there() -> None:
    keep_alive = "02"  # as long as nothing is under way
    with trio.fail_after(PATIENCE):
        async with open_loopback(echo) as world, await world.connect() as client:
            await client.send_all(b"hello")
            await read_exactly(client, 5)
            while timer_of(client)[0] != keep_alive:
                await trio.lowlevel.checkpoint()
            assert timer_of(client)[1] <= PROBE_INTERVAL


async def test_several_ports_each_with_its_target_and_proxies() -> None:
    other = TunnelTarget("192.0.2.7", 22)
    forwards = (Forward(ANY_PORT, TARGET), Forward(ANY_PORT, other))
    with trio.fail_after(PATIENCE):
        async with open_loopback(echo, forwards=forwards, socks=ANY_PORT, http_proxy=ANY_PORT) as world:
            kinds = [(one.kind, one.target) for one in world.forwards.listening]
            assert kinds == [("forward", str(TARGET)), ("forward", str(other)), ("socks", ""), ("http_proxy", "")]
            assert len({one.listen.port for one in world.forwards.listening}) == 4
            for number in (1, 0):
                async with await world.connect(number) as client:
                    await client.send_all(b"hello")
                    assert await read_exactly(client, 5) == b"hello"
            async with await world.connect(2) as client:
                await client.send_all(b"\x05\x01\x00\x05\x01\x00\x03\x01h\x00\x50")
                assert await read_exactly(client, 12) == b"\x05\x00\x05\x00\x00\x01" + bytes(6)
            async with await world.connect(3) as client:
                await client.send_all(b"CONNECT [::1]:80 HTTP/1.1\r\nHost: h\r\n\r\n")
                assert (await client.receive_some()).startswith(b"HTTP/1.1 200 ")
            assert world.asked == [other, TARGET, TunnelTarget("h", 80), TunnelTarget("::1", 80)]


async def test_a_password_is_asked_for_by_both_proxies(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.touch(0o600)
    path.write_text("me:secret\n")
    with trio.fail_after(PATIENCE):
        async with open_loopback(echo, socks=ANY_PORT, http_proxy=ANY_PORT, password_path=path) as world:
            async with await world.connect(0) as client:
                await client.send_all(b"\x05\x01\x00")
                assert await read_all(client) == b"\x05\xff"
            async with await world.connect(1) as client:
                await client.send_all(b"CONNECT h:80 HTTP/1.1\r\nHost: h\r\n\r\n")
                assert (await read_all(client)).startswith(b"HTTP/1.1 407 ")
            assert world.asked == []
            async with await world.connect(0) as client:
                await client.send_all(b"\x05\x01\x02\x01\x02me\x06secret\x05\x01\x00\x03\x01h\x00\x50")
                assert (await read_exactly(client, 14)).startswith(b"\x05\x02\x01\x00\x05\x00")


async def test_a_port_that_is_taken_is_said() -> None:
    async with open_loopback(echo) as world:
        taken = world.forwards.listening[0].listen
        config = ForwardConfig(node=NODE, agent="devbox", socks=ANY_PORT, forwards=(Forward(taken, TARGET),))
        with pytest.raises(OSError, match=f"cannot listen on {re.escape(str(taken))}: Address already in use"):
            async with serve_forwards(no_tunnel, config):
                pass


async def test_a_password_that_others_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text("me:secret")
    path.chmod(0o640)
    config = ForwardConfig(node=NODE, agent="devbox", socks=ANY_PORT, password_path=path)
    with pytest.raises(StateError, match="others may read this password; chmod 600"):
        async with serve_forwards(no_tunnel, config):
            pass
