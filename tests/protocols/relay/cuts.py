"""Circuits opened and cut at random points, over real sockets; then nothing may be left of them.

    python -m tests.protocols.relay.cuts --circuits 5000 --seed 1 --method splice

What is done is given by the seed; when it meets what, is the kernel's doing.
"""

import random
import time
from collections import Counter
from contextlib import suppress

import attrs
import click
import trio

from agentmesh.abc import ByteStream
from agentmesh.errors import ErrorCode, MeshError
from agentmesh.protocols.relay import CircuitLimits, CircuitStream, RelayConfig, reserve
from agentmesh.runtime.host import Host
from tests.protocols.relay.loopback import METHODS, Loopback, open_loopback
from tests.transports.socket_pairs import descriptors

WORKERS = 8
MAX_BYTES = 300_000  # of a circuit, each way
SIZES = (0, 1, 1000, 100_000, MAX_BYTES, MAX_BYTES + 1, 10 * MAX_BYTES)
PATIENCES = (0.01, 0.05, 5.0, 5.0, 5.0)  # seconds for a circuit, its opening included
ERRORS = (MeshError, trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError)
LIMITS = RelayConfig(circuit=CircuitLimits(max_bytes=MAX_BYTES))


@attrs.define
class Cutter:
    """Opens circuits, and has them end in all the ways there are.

    Attributes:
        left: how many are still to be opened.
        outcomes: what became of the others.
    """

    rng: random.Random
    left: int
    outcomes: Counter[str] = attrs.Factory(Counter[str])
    restoring: trio.Lock = attrs.Factory(trio.Lock)
    mesh: Loopback = attrs.field(init=False)
    near: Host = attrs.field(init=False)
    far: Host = attrs.field(init=False)

    async def run(self, mesh: Loopback) -> None:
        self.mesh = mesh
        self.near, self.far = await mesh.join(), await mesh.join(self.serve)
        mesh.held = descriptors()
        async with trio.open_nursery() as nursery:
            for _ in range(WORKERS):
                nursery.start_soon(self.work)
        await mesh.settle(self.near, self.far)

    async def work(self) -> None:
        while self.left > 0:
            outcome = await self.one()
            self.outcomes[outcome] += 1
            self.left -= outcome != "refused"

    async def one(self) -> str:
        """A circuit, from its opening to its end."""
        found = "not opened"
        with trio.move_on_after(self.rng.choice(PATIENCES)):
            try:
                async with await self.mesh.open_circuit(self.near, self.far) as circuit:
                    found = "cut" if circuit.is_spliced else "cut over streams"
                    if await self.use(circuit):
                        found = "whole" if circuit.is_spliced else "whole over streams"
            except ERRORS:
                found = "refused" if found == "not opened" else found
                await self.restore()
        return found

    async def use(self, circuit: CircuitStream) -> bool:
        """Send and receive, and do something to it meanwhile. Returns whether all came back."""
        size, received = self.rng.choice(SIZES), 0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.send, circuit, size)
            nursery.start_soon(self.disturb, circuit)
            try:
                while data := await circuit.receive_some():
                    received += len(data)
            except ERRORS:
                received = -1
            nursery.cancel_scope.cancel()
        assert received <= min(size, MAX_BYTES)
        return received == size

    async def send(self, circuit: CircuitStream, size: int) -> None:
        with suppress(*ERRORS):
            await circuit.send_all(bytes(size))
            await circuit.send_eof()

    async def disturb(self, circuit: CircuitStream) -> None:
        """In every second case, at a random point."""
        for _ in range(self.rng.randrange(30)):
            await trio.lowlevel.checkpoint()
        match self.rng.randrange(40):
            case choice if choice < 9:
                circuit.reset(self.rng.choice([ErrorCode.NO_ERROR, ErrorCode.SUPPLANTED]))
            case choice if choice < 18:
                await circuit.aclose()
            case 18:
                self.mesh.relay.drop(self.rng.choice([self.near, self.far]).peer)
            case 19:
                host = self.rng.choice([self.near, self.far])
                end = self.rng.choice([host.session(self.mesh.router.peer), self.mesh.router.session(host.peer)])
                if end is not None:
                    end.abort("cut")
            case _:
                pass

    async def serve(self, stream: ByteStream) -> None:
        """The far end: an echo, that does not always last."""
        assert isinstance(stream, CircuitStream)
        pieces = self.rng.choice([0, 1, 5, 1000, 1000, 1000])
        while pieces and (data := await stream.receive_some()):
            pieces -= 1
            await stream.send_all(data)
        if not pieces and self.rng.randrange(2):
            stream.reset(ErrorCode.SUPPLANTED)
        else:
            await stream.send_eof()

    async def restore(self) -> None:
        """Be attached again, whatever has been lost."""
        address = self.mesh.router.addresses[0]
        async with self.restoring:
            for host in (self.near, self.far):
                await host.connect(self.mesh.router.peer, [address])
            with suppress(*ERRORS):
                await reserve(self.far, self.mesh.router.peer)


async def cut_circuits(circuits: int, seed: int, method: str) -> dict[str, int]:
    """Open and cut so many, and see that nothing is left. Returns what became of them."""
    cutter = Cutter(random.Random(seed), circuits)
    async with open_loopback(method, LIMITS) as mesh:
        await cutter.run(mesh)
    return dict(cutter.outcomes)


@click.command()
@click.option("--circuits", default=5000, show_default=True)
@click.option("--seed", default=1, show_default=True)
@click.option("--method", type=click.Choice(METHODS), default=METHODS[0], show_default=True)
def main(circuits: int, seed: int, method: str) -> None:
    """Open and cut circuits at random points; fail if anything is left of them."""
    started = time.monotonic()
    outcomes = trio.run(cut_circuits, circuits, seed, method)
    click.echo(f"{circuits} circuits in {time.monotonic() - started:.0f} s, nothing left: {outcomes}")


if __name__ == "__main__":
    main()
