"""Connections that do not become sessions: told by their first byte, and bounded like all strangers."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from agentmesh.abc import ByteStream
from agentmesh.runtime.config import ConnectionLimits, HostConfig
from agentmesh.runtime.doors import Door
from agentmesh.runtime.host import Host
from agentmesh.runtime.registry import Protocol, ProtocolRegistry
from agentmesh.testing.network import MemoryNetwork
from agentmesh.types import ProtocolId
from tests.runtime.hosts import ECHO, echo, open_named, serve_echo

FIRST, LENGTH, TIMEOUT = 0xDA, 33, 5.0
PREAMBLE = bytes([FIRST]) + bytes(LENGTH - 1)
LIMITS = ConnectionLimits(max_handshakes=4)


@attrs.define
class House:
    """Bob, whose door leads to somebody who welcomes each visitor and stays until it leaves."""

    network: MemoryNetwork = attrs.Factory(MemoryNetwork)
    preambles: list[bytes] = attrs.Factory(list[bytes])
    inside: int = 0
    bob: Host = attrs.field(init=False)

    async def serve(self, stream: ByteStream, preamble: bytes) -> None:
        self.preambles.append(preamble)
        self.inside += 1
        with suppress(trio.BrokenResourceError):
            await stream.send_all(b"welcome")
            await stream.receive_some()
        self.inside -= 1

    @asynccontextmanager
    async def visit(self) -> AsyncGenerator[ByteStream]:
        (address,) = self.bob.addresses
        async with self.network.transport("mallory").dial(address.without_peer()) as stream:
            yield stream

    @property
    def failed(self) -> dict[str, int]:
        return {kind: count for kind, count in self.bob.statistics().handshakes_failed.items() if count}


@asynccontextmanager
async def open_house(limits: ConnectionLimits = LIMITS) -> AsyncGenerator[House]:
    house = House()
    door = Door(FIRST, LENGTH, TIMEOUT, house.serve)
    protocol = Protocol(ECHO, serve_echo, doors=(door,))
    async with open_named(house.network, "bob", [protocol], config=HostConfig(connections=limits)) as house.bob:
        yield house
    assert house.inside == 0, "the host's end is the end of those who came through a door"


async def test_a_visitor_is_served_whatever_pieces_his_words_come_in(autojump_clock: MockClock) -> None:
    async with open_house() as house:
        for size in (1, 2, 32, LENGTH):
            async with house.visit() as stream:
                for start in range(0, LENGTH, size):
                    await stream.send_all(PREAMBLE[start : start + size])
                    await wait_all_tasks_blocked()
                assert await stream.receive_some() == b"welcome"
        assert house.preambles == [PREAMBLE] * 4


async def test_sessions_come_in_as_ever(autojump_clock: MockClock) -> None:
    async with open_house() as house, open_named(house.network, "alice") as alice:
        await alice.connect(house.bob.peer, house.bob.addresses)
        assert await echo(alice, house.bob.peer, b"hello") == b"hello"
        assert house.preambles == []


async def test_a_visitor_counts_as_a_handshake_until_he_has_spoken(autojump_clock: MockClock) -> None:
    async with open_house() as house, house.visit() as one, house.visit() as other:
        connections = house.bob.connections
        await one.send_all(PREAMBLE[:5])
        await other.send_all(PREAMBLE)
        await wait_all_tasks_blocked()
        assert connections.statistics().handshakes == 1
        await one.send_all(PREAMBLE[5:])
        await wait_all_tasks_blocked()
        assert connections.statistics().handshakes == 0
        assert house.inside == 2


async def test_half_a_preamble_is_waited_for_as_long_as_the_door_says(autojump_clock: MockClock) -> None:
    async with open_house() as house, house.visit() as stream:
        start = trio.current_time()
        for byte in PREAMBLE[:4]:
            await stream.send_all(bytes([byte]))
            await trio.sleep(1)
        assert await stream.receive_some() == b""
        assert trio.current_time() - start == pytest.approx(TIMEOUT)
        assert (house.failed, house.preambles) == ({"timeout": 1}, [])


async def test_a_visitor_who_says_nothing_is_a_handshake_that_says_nothing(autojump_clock: MockClock) -> None:
    async with open_house() as house, house.visit() as stream:
        start = trio.current_time()
        assert await stream.receive_some() == b""
        assert trio.current_time() - start == pytest.approx(HostConfig().handshake_timeout)
        assert house.failed == {"timeout": 1}


async def test_who_says_more_than_he_was_asked_is_turned_away(autojump_clock: MockClock) -> None:
    async with open_house() as house, house.visit() as stream:
        await stream.send_all(PREAMBLE + b"!")
        assert await stream.receive_some() == b""
        assert (house.failed, house.preambles) == ({"too_long": 1}, [])


async def test_who_leaves_before_he_has_spoken_was_never_there(autojump_clock: MockClock) -> None:
    async with open_house() as house:
        for said in (b"", PREAMBLE[:1], PREAMBLE[:-1]):
            async with house.visit() as stream:
                await stream.send_all(said)
        await wait_all_tasks_blocked()
        assert (house.failed, house.preambles) == ({"left": 3}, [])
        assert house.bob.connections.statistics().handshakes == 0


async def test_a_crowd_at_the_door_takes_no_more_places_than_there_are(autojump_clock: MockClock) -> None:
    async with open_house() as house, open_named(house.network, "alice") as alice, trio.open_nursery() as nursery:

        async def loiter() -> None:
            async with house.visit() as stream:
                await stream.send_all(PREAMBLE[:1])
                await stream.receive_some()

        for _ in range(100):
            nursery.start_soon(loiter)
        await wait_all_tasks_blocked()
        found = house.bob.connections.statistics()
        assert (found.handshakes, found.refused["handshake_limit"]) == (4, 96)
        await trio.sleep(TIMEOUT)
        await alice.connect(house.bob.peer, house.bob.addresses)
        await wait_all_tasks_blocked()
        assert house.bob.connections.statistics().handshakes == 0


def test_two_doors_are_not_alike_nor_like_a_session() -> None:
    async def serve(stream: ByteStream, preamble: bytes) -> None:
        raise NotImplementedError

    def registry(*first_bytes: int) -> ProtocolRegistry:
        doors = [Door(first, LENGTH, TIMEOUT, serve) for first in first_bytes]
        return ProtocolRegistry(
            [Protocol(ProtocolId(f"/test/{number}"), serve_echo, doors=(door,)) for number, door in enumerate(doors)]
        )

    assert set(registry(1, 2).doors) == {1, 2}
    for bytes_ in ([1, 1], [0x13], [0x16]):
        with pytest.raises(ValueError, match="begin with the byte"):
            registry(*bytes_)
