"""A peer that nobody here wrote: a py-libp2p host, told what to do by JSON lines.

Run by the Python of `.venv-peers`, never imported. One command a line on standard input, one answer a line on standard
output; commands run side by side and an answer carries its command's `id`:

    {"id": 1, "do": "connect", "address": "/ip4/127.0.0.1/tcp/4001/p2p/12D3…"}
    {"id": 1, "ok": true, …}                     or {"id": 1, "ok": false, "error": "SwarmException: …"}

The first line out is {"ready": true, "peer": …, "addresses": […]}; the end of standard input ends the program.

Commands: connect (address), identify (peer), ping (peer, count), echo (peer, size), many (peer, size, streams: echoes
side by side), count (peer, size), reset (peer, protocol), reserve (relay), relay_connect (address), refused (peer,
protocol), connections, disconnect (peer), wait_connected (peer, connected), exchange (peer, protocol, sent in
hexadecimal: all that comes back), floodsub (peer, topic: it speaks it from then on, with that peer, and subscribes),
publish (topic, text), heard (topic, count: waits for so many messages, gives all so far; their signatures are good).
The host serves `/test/echo/1.0.0`: everything that comes goes back, and the end of the one direction ends the other;
and `/test/count/1.0.0`: after the end of what comes, how many bytes it was, in decimal.
"""

import argparse
import hashlib
import json
import logging
import random
import sys
import traceback
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import multiaddr
import trio
from libp2p import generate_new_ed25519_identity, new_host
from libp2p.crypto.x25519 import create_new_key_pair as create_new_x25519_key_pair
from libp2p.host.ping import ID as PING
from libp2p.host.ping import perform_ping_roundtrip
from libp2p.identity.identify.identify import ID as IDENTIFY
from libp2p.identity.identify.identify import parse_identify_response
from libp2p.network.config import ConnectionConfig
from libp2p.network.stream.exceptions import StreamEOF
from libp2p.peer.id import ID
from libp2p.peer.peerinfo import info_from_p2p_addr
from libp2p.pubsub.floodsub import PROTOCOL_ID as FLOODSUB
from libp2p.pubsub.floodsub import FloodSub
from libp2p.pubsub.pubsub import Pubsub
from libp2p.relay.circuit_v2.config import RelayConfig, RelayRole
from libp2p.relay.circuit_v2.protocol import PROTOCOL_ID as HOP
from libp2p.relay.circuit_v2.protocol import CircuitV2Protocol
from libp2p.relay.circuit_v2.transport import CircuitV2Transport
from libp2p.security.noise.transport import PROTOCOL_ID as NOISE
from libp2p.security.noise.transport import Transport as NoiseTransport
from libp2p.security.tls.transport import PROTOCOL_ID as TLS
from libp2p.security.tls.transport import TLSTransport
from libp2p.tools.anyio_service import background_trio_service

ECHO = "/test/echo/1.0.0"
COUNT = "/test/count/1.0.0"
CHUNK = 64 * 1024
COMMAND_TIMEOUT = 60.0  # seconds


class Peer:
    """The host and what it can be told to do. Each method named `do_…` is a command."""

    def __init__(self, host: Any, relay_protocol: CircuitV2Protocol, nursery: trio.Nursery) -> None:
        self.host = host
        self.nursery = nursery
        self.circuits = CircuitV2Transport(host, relay_protocol, RelayConfig(roles=RelayRole.STOP))
        self.pubsub: Pubsub | None = None
        self.messages: dict[str, list[dict[str, str]]] = {}

    async def do_connect(self, address: str) -> dict[str, Any]:
        info = info_from_p2p_addr(multiaddr.Multiaddr(address))
        await self.host.connect(info)
        return {"peer": str(info.peer_id)}

    async def do_identify(self, peer: str) -> dict[str, Any]:
        stream = await self.host.new_stream(ID.from_string(peer), [IDENTIFY])
        found = parse_identify_response(await read_to_end(stream))
        await stream.close()
        return {
            "agent": found.agent_version,
            "protocol_version": found.protocol_version,
            "public_key": found.public_key.hex(),
            "protocols": list(found.protocols),
            "listen": [str(multiaddr.Multiaddr(raw)) for raw in found.listen_addrs],
            "observed": str(multiaddr.Multiaddr(found.observed_addr)) if found.observed_addr else None,
            "signed_record": bool(found.signedPeerRecord),
        }

    async def do_ping(self, peer: str, count: int = 1) -> dict[str, Any]:
        stream = await self.host.new_stream(ID.from_string(peer), [PING])
        times = [await perform_ping_roundtrip(stream) for _ in range(count)]
        await stream.close()
        return {"milliseconds": times}

    async def do_echo(self, peer: str, size: int) -> dict[str, Any]:
        stream = await self.host.new_stream(ID.from_string(peer), [ECHO])
        sent, received, count = hashlib.sha256(), hashlib.sha256(), 0
        source = random.Random(size)

        async def send() -> None:
            left = size
            while left:
                chunk = source.randbytes(min(CHUNK, left))
                sent.update(chunk)
                await stream.write(chunk)
                left -= len(chunk)
            await stream.close_write()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            while chunk := await read_some(stream):
                received.update(chunk)
                count += len(chunk)
        await stream.close()
        return {"sent": sent.hexdigest(), "received": received.hexdigest(), "size": count}

    async def do_many(self, peer: str, size: int, streams: int) -> dict[str, Any]:
        found: list[dict[str, Any]] = []

        async def echo() -> None:
            found.append(await self.do_echo(peer, size))

        async with trio.open_nursery() as nursery:
            for _ in range(streams):
                nursery.start_soon(echo)
        return {"intact": sum(each["received"] == each["sent"] and each["size"] == size for each in found)}

    async def do_count(self, peer: str, size: int) -> dict[str, Any]:
        stream = await self.host.new_stream(ID.from_string(peer), [COUNT])
        await stream.write(bytes(size))
        await stream.close_write()
        answer = await read_to_end(stream)
        await stream.close()
        return {"count": int(answer)}

    async def do_reset(self, peer: str, protocol: str) -> dict[str, Any]:
        """Reset a stream once something has come on it."""
        stream = await self.host.new_stream(ID.from_string(peer), [protocol])
        await stream.write(b"x")
        await read_some(stream)
        await stream.reset()
        return {}

    async def do_reserve(self, relay: str) -> dict[str, Any]:
        peer = ID.from_string(relay)
        stream = await self.host.new_stream(peer, [HOP])
        granted = await self.circuits.reserve(stream, peer, self.nursery)
        await stream.close()
        return {"granted": granted, "expires": self.circuits._reservations.get(peer)}

    async def do_relay_connect(self, address: str) -> dict[str, Any]:
        """Open a circuit: `address` is /…/p2p/<relay>/p2p-circuit/p2p/<peer>."""
        await self.circuits.dial(multiaddr.Multiaddr(address))
        return {}

    async def do_refused(self, peer: str, protocol: str) -> dict[str, Any]:
        """Open a stream that is to be refused; says how."""
        try:
            stream = await self.host.new_stream(ID.from_string(peer), [protocol])
            found = await stream.read(1)
        except Exception as error:  # which of its many it raises is what we ask
            return {"refused": describe(error)}
        return {"refused": None, "read": found.hex()}

    async def do_connections(self) -> dict[str, Any]:
        return {"peers": sorted(str(peer) for peer in self.host.get_connected_peers())}

    async def do_wait_connected(self, peer: str, connected: bool = True) -> dict[str, Any]:
        """Until there is a connection, or none: a connection that it was dialled on is known to it a moment later."""
        for _ in range(1000):
            if (ID.from_string(peer) in self.host.get_connected_peers()) is connected:
                return {}
            await trio.sleep(0.01)
        raise TimeoutError(f"{'no' if connected else 'still a'} connection to {peer}")

    async def do_disconnect(self, peer: str) -> dict[str, Any]:
        await self.host.disconnect(ID.from_string(peer))
        return {}

    async def do_exchange(self, peer: str, protocol: str, sent: str) -> dict[str, Any]:
        stream = await self.host.new_stream(ID.from_string(peer), [protocol])
        await stream.write(bytes.fromhex(sent))
        answer = await read_to_end(stream)
        await stream.close()
        return {"received": answer.hex()}

    async def do_floodsub(self, peer: str, topic: str) -> dict[str, Any]:
        """Not before: what the host says to a peer that has not admitted it yet is said once, and to nobody."""
        self.pubsub = Pubsub(self.host, FloodSub([FLOODSUB]))
        await self.nursery.start(self._run_pubsub, topic)
        await self.pubsub._handle_new_peer(ID.from_string(peer))
        while ID.from_string(peer) not in self.pubsub.peer_topics.get(topic, ()):  # noqa: ASYNC110
            await trio.sleep(0.01)
        return {}

    async def _run_pubsub(self, topic: str, task_status: Any) -> None:
        async with background_trio_service(self.pubsub):
            await self.pubsub.wait_until_ready()
            subscription = await self.pubsub.subscribe(topic)
            heard = self.messages[topic] = []
            task_status.started()
            while True:
                message = await subscription.get()
                heard.append({"author": str(ID(message.from_id)), "text": message.data.decode()})

    async def do_publish(self, topic: str, text: str) -> dict[str, Any]:
        await self.pubsub.publish(topic, text.encode())
        return {}

    async def do_heard(self, topic: str, count: int) -> dict[str, Any]:
        me = str(self.host.get_id())  # it tells itself what it publishes
        while len(heard := [one for one in self.messages[topic] if one["author"] != me]) < count:  # noqa: ASYNC110
            await trio.sleep(0.01)
        return {"messages": heard}

    async def answer(self, command: dict[str, Any]) -> None:
        number, do = command.pop("id"), command.pop("do")
        method: Callable[..., Awaitable[dict[str, Any]]] = getattr(self, f"do_{do}")
        try:
            with trio.fail_after(COMMAND_TIMEOUT):
                say(id=number, ok=True, **await method(**command))
        except Exception as error:  # told to whoever asked, whatever it was
            traceback.print_exc()
            say(id=number, ok=False, error=describe(error))


def describe(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(describe(each) for each in error.exceptions)
    cause = f" <- {describe(error.__cause__)}" if error.__cause__ else ""
    return f"{type(error).__name__}: {error}{cause}"


def say(**answer: Any) -> None:
    print(json.dumps(answer), flush=True)


async def read_some(stream: Any) -> bytes:
    """b"" at the end of the stream, which py-libp2p raises."""
    try:
        return await stream.read(CHUNK)
    except StreamEOF:
        return b""


async def read_to_end(stream: Any) -> bytes:
    found = bytearray()
    while chunk := await read_some(stream):
        found += chunk
    return bytes(found)


async def serve_echo(stream: Any) -> None:
    while chunk := await read_some(stream):
        await stream.write(chunk)
    await stream.close()


async def serve_count(stream: Any) -> None:
    """Says nothing before the other's end has come."""
    await stream.write(str(len(await read_to_end(stream))).encode())
    await stream.close()


async def read_commands(peer: Peer) -> None:
    async with trio.open_nursery() as nursery:
        async for line in trio.wrap_file(sys.stdin):
            nursery.start_soon(peer.answer, json.loads(line))
        nursery.cancel_scope.cancel()


async def run(arguments: argparse.Namespace) -> None:
    keys = generate_new_ed25519_identity()
    security = {
        "tls": lambda: TLSTransport(keys),
        "noise": lambda: NoiseTransport(keys, noise_privkey=create_new_x25519_key_pair().private_key),
    }
    host = new_host(
        key_pair=keys,
        # No ALPN list of muxers: py-libp2p negotiates the muxer by multistream whatever ALPN agreed.
        sec_opt={{"tls": TLS, "noise": NOISE}[name]: security[name]() for name in arguments.security},
        muxer_preference="YAMUX",
        # Without the zeros it dials every known peer twice a minute.
        enable_websocket=True,
        connection_config=ConnectionConfig(min_connections=0, low_watermark=0),
    )
    host.set_stream_handler(ECHO, serve_echo)
    host.set_stream_handler(COUNT, serve_count)
    relay = CircuitV2Protocol(host, allow_hop=arguments.relay)
    listen = [multiaddr.Multiaddr(address) for address in arguments.listen]
    async with host.run(listen_addrs=listen), background_trio_service(relay), trio.open_nursery() as nursery:
        await relay.event_started.wait()
        say(ready=True, peer=str(host.get_id()), addresses=[str(address) for address in host.get_addrs()])
        await read_commands(Peer(host, relay, nursery))
        nursery.cancel_scope.cancel()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--listen", action="append", default=[], metavar="MULTIADDR")
    parser.add_argument("--security", action="append", default=None, choices=["tls", "noise"])
    parser.add_argument("--relay", action="store_true", help="serve as a circuit relay")
    parser.add_argument("--debug", action="store_true", help="py-libp2p's own log, on standard error")
    arguments = parser.parse_args()
    arguments.security = arguments.security or ["tls"]
    logging.basicConfig(
        stream=sys.stderr, level=logging.WARNING, format="%(relativeCreated)d %(name)s %(levelname)s %(message)s"
    )
    if arguments.debug:
        logging.getLogger("libp2p").setLevel(logging.DEBUG)
    trio.run(partial(run, arguments))


if __name__ == "__main__":
    main()
