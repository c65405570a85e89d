"""Members and a circuit relay (v2) of py-libp2p, Noise and yamux: a worker for the Python of `.venv-peers`.

All its limits on connections, reservations and circuits are raised beyond what a benchmark reaches; by default it takes
4 reservations and 8 circuits.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import multiaddr
import trio
from libp2p import new_host
from libp2p.exceptions import BaseLibp2pError
from libp2p.network.config import ConnectionConfig
from libp2p.network.stream.exceptions import StreamEOF, StreamReset
from libp2p.peer.id import ID
from libp2p.peer.peerinfo import info_from_p2p_addr
from libp2p.pubsub.floodsub import PROTOCOL_ID as FLOODSUB
from libp2p.pubsub.floodsub import FloodSub
from libp2p.pubsub.pubsub import Pubsub
from libp2p.rcmgr.connection_limits import ConnectionLimits
from libp2p.rcmgr.manager import ResourceLimits, ResourceManager
from libp2p.relay.circuit_v2.config import RelayConfig, RelayRole
from libp2p.relay.circuit_v2.protocol import PROTOCOL_ID as HOP
from libp2p.relay.circuit_v2.protocol import CircuitV2Protocol
from libp2p.relay.circuit_v2.resources import RelayLimits
from libp2p.relay.circuit_v2.transport import CircuitV2Transport
from libp2p.tools.anyio_service import background_trio_service

from benchmarks.audience import TOPIC, Audience, publisher_command
from benchmarks.commands import Answer, Serve, run_worker
from benchmarks.crowd import attach_many
from benchmarks.traffic import caller_commands, serve

BENCH = "/bench/1.0.0"
PLENTY = 1 << 20
TRIES = 5
PATIENCE = 60.0  # seconds; its own time limits are short for a busy machine
READ_BYTES = 64 * 1024
COUNTS = (
    *("max_pending_inbound", "max_pending_outbound", "max_established_inbound", "max_established_outbound"),
    *("max_established_per_peer", "max_established_total"),
)
TIMEOUTS = (
    *("inbound_upgrade_timeout", "outbound_upgrade_timeout", "dial_timeout"),
    *("inbound_stream_protocol_negotiation_timeout", "outbound_stream_protocol_negotiation_timeout"),
)
LIMITS = RelayLimits(duration=0, data=1 << 50, max_circuit_conns=PLENTY, max_reservations=PLENTY)


class Stream(trio.abc.Stream):
    """One of its streams as a Trio stream."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        try:
            return await self._stream.read(max_bytes or READ_BYTES)
        except (StreamEOF, StreamReset):
            return b""

    async def send_all(self, data: bytes) -> None:
        await self._stream.write(data)

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        await self._stream.close()


def make_host() -> Any:
    return new_host(
        muxer_preference="YAMUX",
        # Without the zeros it dials every known peer twice a minute.
        connection_config=ConnectionConfig(
            max_connections=PLENTY,
            high_watermark=PLENTY,
            low_watermark=0,
            min_connections=0,
            max_connections_per_peer=64,
            **dict.fromkeys(TIMEOUTS, PATIENCE),
        ),
        resource_manager=ResourceManager(
            ResourceLimits(max_connections=PLENTY, max_memory_mb=PLENTY, max_streams=PLENTY),
            connection_limits=ConnectionLimits(**dict.fromkeys(COUNTS, PLENTY)),
            enable_rate_limiting=False,
        ),
    )


class Member:
    """A host with a session to the relay, and a reservation there if it is to be reached."""

    def __init__(self, host: Any, circuits: CircuitV2Transport, relay: str) -> None:
        self.host = host
        self.pubsub: Any = None
        self._circuits = circuits
        self._relay = relay

    async def attach(self, nursery: trio.Nursery | None) -> None:
        """`nursery` keeps the reservation; without one there is none."""
        info = info_from_p2p_addr(multiaddr.Multiaddr(self._relay))
        await self.host.connect(info)
        if nursery is not None:
            stream = await self.host.new_stream(info.peer_id, [HOP])
            if not await self._circuits.reserve(stream, info.peer_id, nursery):
                raise RuntimeError("the relay refused a reservation")

    async def dial(self, peer: str) -> None:
        await self._circuits.dial(multiaddr.Multiaddr(f"{self._relay}/p2p-circuit/p2p/{peer}"))


@asynccontextmanager
async def talking(member: Member, settings: Answer, *, subscribe: bool) -> AsyncIterator[None]:
    """Speak floodsub, where that is measured; it has to be up before the member is attached."""
    if "S7" not in settings["scenarios"]:
        yield
        return
    member.pubsub = Pubsub(member.host, FloodSub([FLOODSUB]))  # with signatures, as ours
    async with background_trio_service(member.pubsub):
        await member.pubsub.wait_until_ready()
        if subscribe:
            await member.pubsub.subscribe(TOPIC)
        yield


@asynccontextmanager
async def open_member(relay: str, role: RelayRole = RelayRole.STOP | RelayRole.CLIENT) -> AsyncIterator[Member]:
    host = make_host()
    is_relay = RelayRole.HOP in role
    protocol = CircuitV2Protocol(host, limits=LIMITS, allow_hop=is_relay)
    listen = [multiaddr.Multiaddr("/ip4/127.0.0.1/tcp/0")] if is_relay else []
    async with host.run(listen_addrs=listen), background_trio_service(protocol):
        await protocol.event_started.wait()
        yield Member(host, CircuitV2Transport(host, protocol, RelayConfig(roles=role, limits=LIMITS)), relay)


async def run_relay(settings: Answer, ready: Serve) -> None:
    role = RelayRole.HOP | RelayRole.STOP | RelayRole.CLIENT
    async with open_member("", role) as member, talking(member, settings, subscribe=True):
        await ready({"address": str(member.host.get_addrs()[0])})


async def run_server(settings: Answer, ready: Serve) -> None:
    async def handle(stream: Any) -> None:
        taken = Stream(stream)
        await serve(taken)
        await taken.aclose()

    async with open_member(settings["R"]["address"]) as member, trio.open_nursery() as nursery:
        member.host.set_stream_handler(BENCH, handle)
        await member.attach(nursery)
        await ready({"peer": str(member.host.get_id())})


async def run_caller(settings: Answer, ready: Serve) -> None:
    peer = settings["B"]["peer"]
    there = ID.from_string(peer)
    async with open_member(settings["R"]["address"]) as member, talking(member, settings, subscribe=True):
        await member.attach(None)

        async def open_once() -> Stream:
            if there not in member.host.get_connected_peers():
                await member.dial(peer)
            return Stream(await member.host.new_stream(there, [BENCH]))

        async def open_stream() -> Stream:
            """When its relay ends the last circuit late, the new one may go with it: then it is tried again."""
            for _ in range(TRIES - 1):
                with suppress(BaseLibp2pError):
                    return await open_once()
                await member.host.get_network().close_peer(there)
            return await open_once()

        @asynccontextmanager
        async def fresh() -> AsyncIterator[Stream]:
            yield await open_stream()
            await member.host.get_network().close_peer(there)

        publish = publisher_command(lambda event: member.pubsub.publish(TOPIC, event))
        await ready({}, {**caller_commands(open_stream, fresh), "publish": publish})


async def run_crowd(settings: Answer, ready: Serve) -> None:
    async with trio.open_nursery() as nursery:

        async def stay(task_status: trio.TaskStatus) -> None:
            async with open_member(settings["R"]["address"]) as member, trio.open_nursery() as keeping:
                await member.attach(keeping)
                task_status.started()
                await trio.sleep_forever()

        audience = Audience()

        async def listen(task_status: trio.TaskStatus) -> None:
            async with (
                open_member(settings["R"]["address"]) as member,
                talking(member, settings, subscribe=False),
                trio.open_nursery() as keeping,
            ):
                messages = await member.pubsub.subscribe(TOPIC)
                await member.attach(keeping)
                audience.listeners += 1
                task_status.started()
                while True:
                    audience.hear((await messages.get()).data)

        attach: Callable[[], Awaitable[None]] = partial(nursery.start, stay)
        come: Callable[[], Awaitable[None]] = partial(nursery.start, listen)
        commands = {"attach": partial(attach_many, attach), "listen": partial(attach_many, come)}
        await ready({}, {**commands, "heard": audience.heard})


if __name__ == "__main__":
    logging.getLogger("libp2p").setLevel(logging.ERROR)
    run_worker({"R": run_relay, "B": run_server, "A": run_caller, "M": run_crowd})
