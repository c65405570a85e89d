"""A relay and members on the loopback interface: real sockets, and the kernel between them."""

from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager

import attrs
import trio

from agentmesh.abc import DataDialer, Splicer, Transport
from agentmesh.identity import Identity
from agentmesh.protocols.relay import CircuitStream, Relay, RelayClient, RelayConfig, reserve
from agentmesh.runtime.host import Host, open_host
from agentmesh.runtime.registry import Protocol
from agentmesh.transports.circuit import CircuitTransport
from agentmesh.transports.pipe_pool import PipePool
from agentmesh.transports.splice import CopyingSplicer, KernelSplicer
from agentmesh.transports.standard import standard_transports
from agentmesh.transports.tcp import TcpTransport
from agentmesh.types import Address, PeerId
from tests.protocols.relay.net import Inbox, Serve, echo
from tests.transports.socket_pairs import descriptors

LISTEN = tuple(Address.parse(f"/ip4/127.0.0.1/tcp/0{over}") for over in ("", "/ws"))
SETTLED = 10.0  # seconds in which everything that ends has ended
METHODS = ("splice", "copy")


@contextmanager
def open_method(method: str) -> Generator[Splicer]:
    if method == "copy":
        yield CopyingSplicer()
        return
    with PipePool() as pipes:
        yield KernelSplicer(pipes)
        assert pipes.taken == 0


@attrs.define
class Loopback:
    """A relay that admits everybody, and its members.

    Attributes:
        held: descriptors that may be open when there are no circuits.
    """

    relay: Relay
    router: Host
    stack: AsyncExitStack
    held: int = 1_000_000
    clients: dict[PeerId, RelayClient] = attrs.Factory(dict[PeerId, RelayClient])

    async def join(
        self,
        serve: Serve | None = echo,
        *,
        over: str = "",
        dialer: DataDialer | None = None,
        protocol: Protocol | None = None,
    ) -> Host:
        """A member, reachable through the relay, to the end.

        Args:
            serve: takes each circuit; None to have sessions over them.
            over: "/ws" to come by WebSocket.
            dialer: of its data paths; its transport over TCP if it is None.
            protocol: what it speaks beside.
        """
        return await self.stack.enter_async_context(self.member(serve, over=over, dialer=dialer, protocol=protocol))

    @asynccontextmanager
    async def member(
        self,
        serve: Serve | None = echo,
        *,
        over: str = "",
        dialer: DataDialer | None = None,
        protocol: Protocol | None = None,
    ) -> AsyncGenerator[Host]:
        """As `join`, for as long as the block lasts."""
        client = RelayClient(dialer or TcpTransport())
        circuits = CircuitTransport(client.connect, client.open_circuit)
        transports: list[Transport] = [*standard_transports(), circuits]
        protocols = [client.protocol(circuits.incoming if serve is None else Inbox(serve))]
        if protocol is not None:
            protocols.append(protocol)
        async with open_host(identity=Identity.generate(), transports=transports, protocols=protocols) as host:
            (address,) = (one for one in self.router.addresses if ("ws" in one.names) == (over == "/ws"))
            await host.connect(self.router.peer, [address])
            async with host.listening(address / "p2p-circuit"):
                await reserve(host, self.router.peer)
                self.clients[host.peer] = client
                yield host

    async def open_circuit(self, near: Host, far: Host) -> CircuitStream:
        return await self.clients[near.peer].open_circuit(self.router.peer, far.peer)

    async def settle(self, *members: Host) -> None:
        """Wait until every circuit has ended, in the relay and at the members, and every descriptor is closed."""
        try:
            await wait_until(lambda: not self.left(*members))
        except trio.TooSlowError:
            assert self.left(*members) == {}

    def left(self, *members: Host) -> dict[str, int]:
        """What there is of circuits."""
        found = self.relay.statistics()
        hosts = (self.router, *members)
        counts = {
            "circuits": found.circuits,
            "data paths": found.data_paths.circuits,
            "in the book": len(self.relay.book.circuits),
            "served": sum(host.statistics().streams.serving for host in hosts),
            "streams": sum(len(session.streams) for host in hosts for session in host.connections),
            "descriptors": max(descriptors() - self.held, 0),
        }
        return {name: count for name, count in counts.items() if count}


@asynccontextmanager
async def open_loopback(
    method: str, config: RelayConfig | None = None, listen: tuple[Address, ...] = LISTEN
) -> AsyncGenerator[Loopback]:
    """The relay; whatever was opened since then is closed at the end."""
    before = descriptors()
    with open_method(method) as splicer:
        relay = Relay(config, is_admitted=lambda peer: True, splicer=splicer)
        async with AsyncExitStack() as stack:
            router = await stack.enter_async_context(
                open_host(
                    identity=Identity.generate(),
                    transports=standard_transports(),
                    protocols=[relay.protocol()],
                    listen=listen,
                )
            )
            yield Loopback(relay, router, stack)
    assert descriptors() == before


Condition = Callable[[], bool]


async def wait_until(condition: Condition) -> None:
    """Wait for what another task, or the kernel, is about to do."""
    with trio.fail_after(SETTLED):
        while True:
            if condition():
                return
            await trio.sleep(0.005)
