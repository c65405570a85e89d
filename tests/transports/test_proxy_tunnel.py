"""Dialling through an outbound proxy: honest ones, ones that refuse, and ones that are broken or hostile."""

import socket
import struct
from pathlib import Path

import pytest
import trio
import trio.testing

from agentmesh.errors import DialError, ProxyError
from agentmesh.runtime.nursery import open_background
from agentmesh.testing import cancel_at_every_await, leaves_nothing
from agentmesh.testing.transport_setup import echo
from agentmesh.transports.proxy import Proxy, ProxyRules
from agentmesh.transports.proxy_bypass import Bypass
from agentmesh.transports.proxy_connect import MAX_ANSWER_BYTES
from agentmesh.transports.proxy_tunnel import ANSWER_TIMEOUT, TunnelStream
from agentmesh.transports.tcp import TcpTransport
from agentmesh.types import Address
from tests.transports.certificates import Authority
from tests.transports.proxies import ESTABLISHED, Deed, open_deed, open_proxy, read_head, through
from tests.transports.test_tcp import LOOPBACK, LOOPBACK6, Names, port_of, serving

ROUTER = Address.parse("/dns4/router.example/tcp/4001")


async def talks(rules: ProxyRules, address: Address) -> bool:
    async with TcpTransport(proxies=rules).dial(address) as stream:
        await stream.send_all(b"hello")
        return await stream.receive_some() == b"hello"


async def failure(rules: ProxyRules, address: Address = ROUTER) -> ProxyError:
    with pytest.raises(ProxyError) as caught:
        async with TcpTransport(proxies=rules).dial(address):
            pass
    return caught.value


# ── honest proxies ──


@pytest.mark.parametrize("kind", ["dns", "dns4", "dns6"])
async def test_a_name_is_the_proxys_to_look_up(kind: str) -> None:
    trio.socket.set_custom_hostname_resolver(Names())
    async with serving() as listener, open_proxy({"router.example": "127.0.0.1"}) as proxy:
        port = port_of(listener)
        assert await talks(proxy.rules, Address.parse(f"/{kind}/router.example/tcp/{port}"))
        assert proxy.targets == [f"router.example:{port}"]


async def test_a_name_is_told_in_ascii() -> None:
    async with serving() as listener, open_proxy({"xn--strae-oqa.xn--exmple-cua": "127.0.0.1"}) as proxy:
        assert await talks(proxy.rules, Address.parse(f"/dns/straße.exämple/tcp/{port_of(listener)}"))


async def test_an_ipv6_address_is_told_in_brackets() -> None:
    async with serving(LOOPBACK6) as listener, open_proxy() as proxy:
        assert await talks(proxy.rules, listener.addresses[0])
        assert proxy.targets == [f"[::1]:{port_of(listener)}"]


async def test_credentials_reach_the_proxy() -> None:
    async with serving() as listener, open_proxy() as proxy:
        assert await talks(through(proxy.port, "us%40er:s3cret@"), listener.addresses[0])
        assert b"\r\nProxy-Authorization: Basic dXNAZXI6czNjcmV0\r\n" in proxy.heads[0]


async def test_what_the_rules_leave_out_is_reached_directly() -> None:
    async with serving() as listener, open_proxy() as proxy:
        bypass = Bypass.parse(f"127.0.0.1:{port_of(listener)}")
        assert await talks(ProxyRules(proxy.rules.proxy, bypass), listener.addresses[0])
        assert await talks(ProxyRules(proxy.rules.proxy), listener.addresses[0])  # this machine, by default
        assert proxy.targets == []


async def test_the_environment_counts_when_the_transport_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_proxy() as proxy:
        before = TcpTransport()
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
        after = TcpTransport()
        monkeypatch.delenv("HTTPS_PROXY")
        for transport, asked in ((after, 1), (before, 1)):
            trio.socket.set_custom_hostname_resolver(Names())
            with pytest.raises(DialError):
                async with transport.dial(ROUTER):
                    pass
            assert len(proxy.targets) == asked


async def test_a_proxy_behind_tls(tmp_path: Path) -> None:
    authority = Authority()
    context = authority.server_context(tmp_path, "127.0.0.1")
    async with serving() as listener, open_proxy(context=context) as proxy:
        url = f"https://127.0.0.1:{proxy.port}"
        trusting = ProxyRules(Proxy.parse(url, tls=authority.client_context()), Bypass())
        assert await talks(trusting, listener.addresses[0])
        assert proxy.targets == [f"127.0.0.1:{port_of(listener)}"]

        error = await failure(ProxyRules(Proxy.parse(url), Bypass()))
        assert "certificate verify failed" in str(error)
        assert (error.status, error.retryable) == (None, False)


async def test_the_targets_first_bytes_may_come_right_behind_the_answer() -> None:
    async def greet(stream: trio.abc.Stream) -> None:
        await read_head(stream)
        await stream.send_all(ESTABLISHED + b"hello")
        await stream.send_all(b" world")

    async with open_deed(greet) as port, TcpTransport(proxies=through(port)).dial(ROUTER) as stream:
        assert await stream.receive_some(2) == b"he"
        rest = b""
        while data := await stream.receive_some():
            rest += data
        assert rest == b"llo world"


async def test_a_tunnel_keeps_trios_contract_while_it_holds_first_bytes() -> None:
    one, other = trio.testing.memory_stream_pair()
    stream = TunnelStream(one, b"first")
    with pytest.raises(ValueError, match="at least 1"):
        await stream.receive_some(0)
    with trio.move_on_after(0) as scope:
        scope.cancel()
        await stream.receive_some()
    assert await stream.receive_some(1) == b"f"
    with pytest.raises(ExceptionGroup) as caught:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stream.receive_some, 1)
            nursery.start_soon(stream.receive_some, 1)
    assert caught.group_contains(trio.BusyResourceError)
    await other.send_all(b"then")
    await stream.aclose()
    with pytest.raises(trio.ClosedResourceError):
        await stream.receive_some()


async def test_a_tunnel_that_is_closed_under_a_reader_has_no_end() -> None:
    async def read(stream: TunnelStream) -> None:
        with pytest.raises(trio.ClosedResourceError):
            while True:
                assert await stream.receive_some() != b""

    for _ in range(20):  # whoever comes first
        one, _other = trio.testing.memory_stream_pair()
        stream = TunnelStream(one, b"first")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read, stream)
            nursery.start_soon(stream.aclose)


# ── proxies that refuse ──


@pytest.mark.parametrize(
    ("status", "named", "retryable"),
    [
        (302, "302 Found", False),
        (400, "400 Bad Request", False),
        (403, "403 Forbidden", False),
        (407, "407 Proxy Authentication Required", False),
        (429, "429 Too Many Requests", True),
        (502, "502 Bad Gateway", True),
        (503, "503 Service Unavailable", True),
        (504, "504 Gateway Timeout", True),
        (599, "599", False),
    ],
)
async def test_a_refusal_says_its_status_and_whether_to_retry(status: int, named: str, retryable: bool) -> None:
    async def refuse(stream: trio.abc.Stream) -> None:
        await read_head(stream)
        await stream.send_all(f"HTTP/1.1 {status} \x1b[31mlook here\r\nContent-Length: 2\r\n\r\nno".encode())

    async with open_deed(refuse) as port, leaves_nothing():
        error = await failure(through(port, "user:s3cret@"))
    assert (error.status, error.retryable) == (status, retryable)
    assert str(error) == f"no way to router.example:4001 through the proxy http://127.0.0.1:{port}: it answers {named}"


async def test_a_target_that_is_not_there() -> None:
    async with serving() as listener:
        address = listener.addresses[0]
    async with open_proxy() as proxy:
        assert (await failure(proxy.rules, address)).status == 502


async def test_a_proxy_that_is_not_there() -> None:
    async with open_deed(read_head) as port:  # type: ignore[arg-type]
        pass
    error = await failure(through(port))
    assert (error.status, error.retryable) == (None, True)
    assert isinstance(error.__cause__, OSError)
    assert f"http://127.0.0.1:{port}" in str(error)


# ── proxies that are broken, or hostile ──


async def hang_up(stream: trio.abc.Stream) -> None:
    await stream.aclose()


async def hang_up_in_the_head(stream: trio.abc.Stream) -> None:
    await read_head(stream)
    await stream.send_all(ESTABLISHED[:20])


async def reset(stream: trio.abc.Stream) -> None:
    await read_head(stream)
    assert isinstance(stream, trio.SocketStream)
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


async def send_garbage(stream: trio.abc.Stream) -> None:
    await read_head(stream)
    await stream.send_all(b"SSH-2.0-OpenSSH_9.2p1\r\n\r\n")


@pytest.mark.parametrize(
    ("deed", "reason", "retryable"),
    [
        (hang_up, "", True),  # by a reset or an end, whichever comes first
        (hang_up_in_the_head, "it hung up", True),
        (reset, "reset", True),
        (send_garbage, "no HTTP", False),
    ],
)
async def test_a_proxy_that_is_broken(deed: Deed, reason: str, retryable: bool) -> None:
    async with open_deed(deed) as port, leaves_nothing():
        error = await failure(through(port))
    assert (error.status, error.retryable) == (None, retryable)
    assert reason in str(error)


async def test_a_head_without_end_costs_no_more_than_its_bound() -> None:
    taken = 0

    async def bomb(stream: trio.abc.Stream) -> None:
        nonlocal taken
        await read_head(stream)
        await stream.send_all(b"HTTP/1.1 200 OK\r\n")
        while True:
            await stream.send_all(b"X-Bomb: " + b"x" * 1014 + b"\r\n")
            taken += 1024

    async with open_deed(bomb) as port, leaves_nothing():
        error = await failure(through(port))
    assert not error.retryable
    assert "does not end" in str(error)
    assert taken > MAX_ANSWER_BYTES - 2048


async def say_nothing(stream: trio.abc.Stream) -> None:
    while await stream.receive_some():
        pass


async def dribble(stream: trio.abc.Stream) -> None:
    await stream.send_all(b"HTTP/1.1 200 OK\r\nX: ")
    left = False
    while not left:
        with trio.move_on_after(3):
            left = not await stream.receive_some()
        await stream.send_all(b"x")


@pytest.mark.parametrize("deed", [say_nothing, dribble])
async def test_a_slow_proxy_has_its_time(deed: Deed, patient_clock: trio.testing.MockClock) -> None:
    async with open_deed(deed) as port, leaves_nothing():
        began = trio.current_time()
        error = await failure(through(port))
        assert trio.current_time() - began == pytest.approx(ANSWER_TIMEOUT, abs=1)
    assert (error.status, error.retryable) == (None, True)
    assert "no answer in time" in str(error)


async def test_tls_and_clear_text_that_meet(tmp_path: Path) -> None:
    context = Authority().server_context(tmp_path, "127.0.0.1")
    async with open_deed(read_and_forget) as clear, open_deed(read_and_forget, context) as secure:
        tls = ProxyRules(Proxy.parse(f"https://127.0.0.1:{clear}"), Bypass())
        for rules in (tls, through(secure)):
            assert (await failure(rules)).status is None


async def read_and_forget(stream: trio.abc.Stream) -> None:
    await stream.receive_some()


@pytest.mark.parametrize("deed", [hang_up, hang_up_in_the_head, send_garbage])
async def test_a_failing_dial_may_be_cancelled_at_every_await(deed: Deed) -> None:
    async with open_deed(deed) as port:

        async def dial() -> None:
            await failure(through(port))

        await cancel_at_every_await(dial)


async def test_a_dial_of_a_proxy_behind_tls_may_be_cancelled_at_every_await(tmp_path: Path) -> None:
    authority = Authority()
    async with serving() as listener, open_proxy(context=authority.server_context(tmp_path, "127.0.0.1")) as proxy:
        parsed = Proxy.parse(f"https://127.0.0.1:{proxy.port}", tls=authority.client_context())

        async def dial() -> None:
            assert await talks(ProxyRules(parsed, Bypass()), listener.addresses[0])

        await cancel_at_every_await(dial)


async def test_a_closed_tunnel_ends_its_connections() -> None:
    ended = trio.Event()

    async def note(stream: trio.abc.Stream, source: Address | None) -> None:
        await echo(stream, source)
        ended.set()

    async with TcpTransport().listen(LOOPBACK) as listener, open_background() as nursery, open_proxy() as proxy:
        nursery.start_soon(listener.serve, note)
        assert await talks(proxy.rules, listener.addresses[0])
        await ended.wait()
