"""One member to another through one router: three processes on loopback, a circuit carried in streams.

    python -m benchmarks.relay_throughput [--seconds 2] [--repeat 3] [--members 200] [--json FILE]

Beside it, in the same run and between the same two processes: plain TCP, and TLS over TCP. The ratios are the result.
"""

import json
import os
import platform
import ssl
import statistics
import sys
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import click
import trio
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from rich.console import Console
from rich.table import Table

from agentmesh.abc import Stream
from agentmesh.certificates import make_certificate
from agentmesh.identity import Identity
from agentmesh.protocols.relay import Relay, RelayClient, reserve
from agentmesh.runtime.config import ConnectionLimits, HostConfig
from agentmesh.runtime.host import Host, open_host
from agentmesh.runtime.registry import Protocol
from agentmesh.transports.circuit import CircuitTransport
from agentmesh.transports.tcp import TcpTransport
from agentmesh.types import Address, PeerId, ProtocolId
from benchmarks.workers import Answer, Worker, open_worker, serve_commands

MODULE = "benchmarks.relay_throughput"
BULK, ECHO = ProtocolId("/bench/bulk/1.0.0"), ProtocolId("/bench/echo/1.0.0")
LOOPBACK = Address.parse("/ip4/127.0.0.1/tcp/0")
PIECE = bytes(256 * 1024)
PING = bytes(64)
SETUPS = 30
CONFIG = HostConfig(connections=ConnectionLimits(high_watermark=10_000, low_watermark=9_000, max_handshakes=1000))

Dial = Callable[[], Awaitable[trio.abc.HalfCloseableStream]]


# ── what streams do, at both ends ──


async def take_bulk(stream: trio.abc.Stream) -> None:
    """Count bytes to the end, then say how many came."""
    received = 0
    while data := await stream.receive_some():
        received += len(data)
    await stream.send_all(received.to_bytes(8))


async def echo(stream: trio.abc.Stream) -> None:
    while data := await stream.receive_some():
        await stream.send_all(data)


async def send_bulk(stream: trio.abc.HalfCloseableStream, seconds: float) -> tuple[int, float]:
    """Send for a while. Returns bytes, and the seconds until the other side had confirmed every one."""
    started, sent = trio.current_time(), 0
    while trio.current_time() - started < seconds:
        await stream.send_all(PIECE)
        sent += len(PIECE)
    await stream.send_eof()
    confirmed = b""
    while len(confirmed) < 8:
        confirmed += await stream.receive_some()
    assert int.from_bytes(confirmed) == sent
    return sent, trio.current_time() - started


async def round_trips(stream: trio.abc.Stream, seconds: float) -> float:
    """Median seconds of a 64-byte round trip."""
    times: list[float] = []
    ending = trio.current_time() + seconds
    while (started := trio.current_time()) < ending:
        await stream.send_all(PING)
        received = 0
        while received < len(PING):
            received += len(await stream.receive_some())
        times.append(trio.current_time() - started)
    return statistics.median(times)


# ── the processes ──


@asynccontextmanager
async def member(listen: tuple[Address, ...] = (), identity: Identity | None = None) -> AsyncGenerator[Host]:
    relay = RelayClient()
    circuits = CircuitTransport(relay.connect, relay.open_circuit)
    protocols = [relay.protocol(circuits.incoming), Protocol(BULK, take_bulk), Protocol(ECHO, echo)]
    async with open_host(
        identity=identity or Identity.generate(),
        transports=[TcpTransport(), circuits],
        protocols=protocols,
        listen=listen,
        config=CONFIG,
    ) as host:
        yield host


async def run_router() -> None:
    relay = Relay(is_admitted=lambda peer: True)
    async with open_host(
        identity=Identity.generate(),
        transports=[TcpTransport()],
        protocols=[relay.protocol()],
        listen=[LOOPBACK],
        config=CONFIG,
    ) as host:

        async def address() -> Answer:
            return {"address": str(host.addresses[0])}

        await serve_commands({"address": address})


async def run_callee() -> None:
    """B: reachable through the router, and by plain TCP and TLS."""
    async with member() as host, trio.open_nursery() as nursery, AsyncExitStack() as stack:
        tcp = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
        tls = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
        context = _tls_context(host.identity)

        async def attach(router: str) -> Answer:
            relay = Address.parse(router)
            assert relay.peer is not None
            await host.connect(relay.peer, [relay])
            await stack.enter_async_context(host.listening(relay / "p2p-circuit"))
            await reserve(host, relay.peer)
            ports = {"tcp": tcp.socket.getsockname()[1], "tls": tls.socket.getsockname()[1]}
            return {"peer": str(host.peer), **ports}

        nursery.start_soon(trio.serve_listeners, _serve_direct, [tcp])
        nursery.start_soon(trio.serve_listeners, _serve_direct, [trio.SSLListener(tls, context)])
        await serve_commands({"attach": attach})
        nursery.cancel_scope.cancel()


async def _serve_direct(stream: trio.abc.Stream) -> None:
    """The first byte says what the rest is."""
    async with stream:
        with suppress(trio.BrokenResourceError):  # the caller leaves as it likes
            kind = await stream.receive_some(1)
            wide = Wide(stream)
            await (take_framed(wide) if kind == b"b" else echo(wide))


class Wide(trio.abc.HalfCloseableStream):
    """A Trio stream that reads in pieces as large as a mesh stream's, so that the comparison is of paths."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        data: bytes | bytearray = await self._stream.receive_some(max_bytes or len(PIECE))
        return data

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def send_eof(self) -> None:
        """TLS has no half-close in Trio: a length no honest sender reaches ends the bytes instead."""
        await self._stream.send_all(END)

    async def aclose(self) -> None:
        await self._stream.aclose()


END = b"end of the bulk!"


async def take_framed(stream: trio.abc.Stream) -> None:
    """As `take_bulk`, with END for an end of stream."""
    received, tail = 0, b""
    while not tail.endswith(END):
        data = await stream.receive_some()
        received += len(data)
        tail = (tail + bytes(data[-len(END) :]))[-len(END) :]
    await stream.send_all((received - len(END)).to_bytes(8))


async def run_caller() -> None:
    """A: measures."""
    async with member() as host:
        dialers: dict[str, Callable[[str], Awaitable[trio.abc.HalfCloseableStream]]] = {}

        async def prepare(path: str, peer: str, router: str, port: int) -> Answer:
            dialers[path] = await _dialer(host, path, peer, router, port)
            return {}

        async def bulk(path: str, seconds: float) -> Answer:
            async with await dialers[path]("bulk") as stream:
                sent, took = await send_bulk(stream, seconds)
            return {"sent": sent, "seconds": took}

        async def rtt(path: str, seconds: float) -> Answer:
            async with await dialers[path]("echo") as stream:
                return {"rtt": await round_trips(stream, seconds)}

        async def set_up(peer: str, router: str) -> Answer:
            return {"seconds": [await _one_set_up(PeerId.parse(peer), router) for _ in range(SETUPS)]}

        await serve_commands({"prepare": prepare, "bulk": bulk, "rtt": rtt, "set_up": set_up})


async def _dialer(
    host: Host, path: str, peer: str, router: str, port: int
) -> Callable[[str], Awaitable[trio.abc.HalfCloseableStream]]:
    if path != "circuit":
        return lambda kind: _dial_direct(path, port, kind)
    relay, callee = Address.parse(router), PeerId.parse(peer)
    assert relay.peer is not None
    await host.connect(relay.peer, [relay])
    session = await host.connect(callee, [relay / f"p2p-circuit/p2p/{callee}"])

    async def open_stream(kind: str) -> Stream:
        return await session.open_stream(BULK if kind == "bulk" else ECHO)

    return open_stream


async def _dial_direct(path: str, port: int, kind: str) -> Wide:
    stream: Any = await trio.open_tcp_stream("127.0.0.1", port)
    if path == "tls":
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        stream = trio.SSLStream(stream, context, https_compatible=True)
    await stream.send_all(kind[:1].encode())
    return Wide(stream)


async def _one_set_up(peer: PeerId, router: str) -> float:
    """From "A wants B" to the first byte echoed on a fresh circuit; A is attached to the router already."""
    relay = Address.parse(router)
    assert relay.peer is not None
    async with member() as host:
        await host.connect(relay.peer, [relay])
        started = trio.current_time()
        session = await host.connect(peer, [relay / f"p2p-circuit/p2p/{peer}"])
        async with await session.open_stream(ECHO) as stream:
            await stream.send_all(b"?")
            await stream.receive_some()
            return trio.current_time() - started


async def run_crowd() -> None:
    """M: many idle members in one process."""
    async with AsyncExitStack() as stack:

        async def attach(router: str, count: int) -> Answer:
            relay = Address.parse(router)
            assert relay.peer is not None
            for _ in range(count):
                host = await stack.enter_async_context(member())
                await host.connect(relay.peer, [relay])
                await reserve(host, relay.peer)
            return {}

        await serve_commands({"attach": attach})


def _tls_context(identity: Identity) -> ssl.SSLContext:
    certificate, key = make_certificate(identity)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        chain = Path(folder) / "chain.pem"
        pem = x509.load_der_x509_certificate(certificate).public_bytes(serialization.Encoding.PEM)
        chain.write_bytes(
            pem
            + key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        context.load_cert_chain(chain)
    return context


# ── the boss ──


async def run_benchmark(seconds: float, repeat: int, members: int) -> Answer:
    async with (
        open_worker(MODULE, "router") as router,
        open_worker(MODULE, "callee") as callee,
        open_worker(MODULE, "caller") as caller,
    ):
        address = (await router.ask("address"))["address"]
        callee_is = await callee.ask("attach", router=address)
        paths: dict[str, list[Answer]] = {"tcp": [], "tls": [], "circuit": []}
        for path in paths:
            port = callee_is.get(path, 0)
            await caller.ask("prepare", path=path, peer=callee_is["peer"], router=address, port=port)
        for _ in range(repeat):
            for path, results in paths.items():
                results.append(await _measure(router, caller, path, seconds))
        set_ups = (await caller.ask("set_up", peer=callee_is["peer"], router=address))["seconds"]
        return {"paths": paths, "set_ups": set_ups, **await _memory(router, address, members)}


async def _measure(router: Worker, caller: Worker, path: str, seconds: float) -> Answer:
    before = router.cpu_seconds()
    bulk = await caller.ask("bulk", path=path, seconds=seconds)
    used = router.cpu_seconds() - before
    rtt = await caller.ask("rtt", path=path, seconds=seconds / 2)
    return {"bulk": bulk["sent"] / bulk["seconds"], "rtt": rtt["rtt"], "router_cpu": used / (bulk["sent"] / 2**30)}


async def _memory(router: Worker, address: str, members: int) -> Answer:
    """How much larger the router is for each member that is attached and idle."""
    async with open_worker(MODULE, "crowd") as crowd:
        await crowd.ask("attach", router=address, count=20)  # what the first ones cost is not theirs
        before = router.resident_bytes()
        started = trio.current_time()
        await crowd.ask("attach", router=address, count=members)
        rate = members / (trio.current_time() - started)
        return {"bytes_per_member": (router.resident_bytes() - before) / members, "attach_rate": rate}


def show(console: Console, results: Answer) -> None:
    paths = results["paths"]
    bulk = {path: statistics.median(one["bulk"] for one in ones) for path, ones in paths.items()}
    rtt = {path: statistics.median(one["rtt"] for one in ones) for path, ones in paths.items()}
    table = Table(title="One member to another, median [min-max]")
    for column in ("path", "bulk MB/s", "of TLS", "64-byte rtt us", "of TLS"):
        table.add_column(column, justify="right", no_wrap=True)
    for path, ones in paths.items():
        rates = [one["bulk"] / 1e6 for one in ones]
        table.add_row(
            {"tcp": "direct TCP", "tls": "direct TLS", "circuit": "through a router"}[path],
            f"{bulk[path] / 1e6:,.0f} [{min(rates):,.0f}-{max(rates):,.0f}]",
            f"{bulk[path] / bulk['tls']:.2f}",
            f"{rtt[path] * 1e6:,.0f}",
            f"{rtt[path] / rtt['tls']:.2f}",
        )
    console.print(table)
    cpu = statistics.median(one["router_cpu"] for one in paths["circuit"])
    set_ups = sorted(results["set_ups"])
    console.print(
        f"circuit set-up to first byte: {statistics.median(set_ups) * 1e3:.1f} ms (worst of {len(set_ups)}: "
        f"{set_ups[-1] * 1e3:.1f} ms)\nrouter CPU: {cpu:.2f} s per GiB\n"
        f"router memory: {results['bytes_per_member'] / 1024:.0f} KiB per idle attached member "
        f"({results['attach_rate']:.0f} attached per second)"
    )
    console.print(f"[dim]{os.cpu_count()} CPUs, {platform.machine()}, Python {platform.python_version()}[/]")


ROLES = {"router": run_router, "callee": run_callee, "caller": run_caller, "crowd": run_crowd}


@click.command()
@click.option("--seconds", default=2.0, show_default=True, help="Duration of each bulk transfer.")
@click.option("--repeat", default=3, show_default=True, help="Repeats of each measurement.")
@click.option("--members", default=200, show_default=True, help="Idle members for the memory figure.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write the raw results here.")
def main(seconds: float, repeat: int, members: int, json_path: Path | None) -> None:
    """Measure a circuit through a router beside direct TCP and TLS."""
    with Console(stderr=True).status("measuring: tcp, tls and a circuit, then set-up and memory"):
        results = trio.run(run_benchmark, seconds, repeat, members)
    if json_path:
        json_path.write_text(json.dumps(results, indent=2))
    show(Console(), results)


if __name__ == "__main__":
    if len(sys.argv) == 2 and sys.argv[1] in ROLES:
        trio.run(ROLES[sys.argv[1]])
    else:
        main()
