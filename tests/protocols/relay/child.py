"""A relay or a member in a process of its own, to be killed.

    python -m tests.protocols.relay.child relay
    python -m tests.protocols.relay.child far RELAY
    python -m tests.protocols.relay.child near RELAY PEER

Says where or who it is on a line of its own, and when it has a circuit, "spliced". What it has then never stops.
"""

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio

from agentmesh.abc import ByteStream
from agentmesh.identity import Identity
from agentmesh.protocols.relay import CircuitStream, Relay, RelayClient, reserve
from agentmesh.runtime.host import Host, open_host
from agentmesh.transports.circuit import CircuitTransport
from agentmesh.transports.splice import open_splicer
from agentmesh.transports.tcp import TcpTransport
from agentmesh.types import Address, PeerId
from tests.protocols.relay.net import MIB, Inbox

LOOPBACK = Address.parse("/ip4/127.0.0.1/tcp/0")


def say(text: object) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def flood(stream: ByteStream) -> None:
    assert isinstance(stream, CircuitStream)
    await stream.send_all(b"hello")
    say("spliced" if stream.is_spliced else "over streams")
    while True:
        await stream.send_all(bytes(MIB))


async def relay() -> None:
    with open_splicer() as splicer:
        protocol = Relay(is_admitted=lambda peer: True, splicer=splicer).protocol()
        async with open_host(
            identity=Identity.generate(), transports=[TcpTransport()], protocols=[protocol], listen=[LOOPBACK]
        ) as host:
            say(host.addresses[0])
            await trio.sleep_forever()


@asynccontextmanager
async def member(at: Address) -> AsyncGenerator[tuple[Host, RelayClient]]:
    client = RelayClient(TcpTransport())
    circuits = CircuitTransport(client.connect, client.open_circuit)
    async with open_host(
        identity=Identity.generate(), transports=[TcpTransport(), circuits], protocols=[client.protocol(Inbox(flood))]
    ) as host:
        assert at.peer is not None
        await host.connect(at.peer, [at])
        yield host, client


async def far(at: Address) -> None:
    async with member(at) as (host, _):
        assert at.peer is not None
        await reserve(host, at.peer)
        say(host.peer)
        await trio.sleep_forever()


async def near(at: Address, peer: PeerId) -> None:
    async with member(at) as (host, client):
        say(host.peer)
        assert at.peer is not None
        await flood(await client.open_circuit(at.peer, peer))


def main(role: str, *arguments: str) -> None:
    match role, arguments:
        case "relay", ():
            trio.run(relay)
        case "far", (at,):
            trio.run(far, Address.parse(at))
        case "near", (at, peer):
            trio.run(near, Address.parse(at), PeerId.parse(peer))
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main(*sys.argv[1:])
