"""A stream through two routers is as one through a single router: nobody at either end can tell."""

from collections.abc import Sequence

import pytest
import trio
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from agentmesh.protocols.pool import DIAL_ID, Code, Open
from agentmesh.protocols.pool.open_wire import decode_result, encode_open
from agentmesh.testing.cancellation import cancel_at_every_await
from agentmesh.testing.clock import run
from agentmesh.wire.framing import FrameReader, encode_frame
from tests.pool.relays import Relays, Through, open_relays
from tests.pool.scripts import CUT_SCRIPTS, SCRIPTS, End, Script, Transcript, play
from tests.pool.worlds import ECHO, HELD, REFUSED, SLOW
from tests.router.agents.agency import AGENT, dial

FEW = settings(max_examples=3, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
RELAYED, LOCAL = 0, 1  # the client's router: one that has connections of the agent, and one that has none


async def stream_by(world: Relays, ingress: int) -> Through:
    found = await world.open(ingress)
    assert isinstance(found, Through)
    assert (found.owner == ingress) == (ingress == LOCAL)
    return found


async def transcripts_of(scripts: Sequence[Script]) -> list[list[Transcript]]:
    """What is heard of each, by way of one router and of two, all of them at once."""
    async with open_relays() as world:
        found: list[list[Transcript]] = [[], []]

        async def play_all(ingress: int) -> None:
            for script in scripts:
                stream = streams[ingress].pop()
                found[ingress].append(await play(script, stream.client, stream.target))

        streams = [[await stream_by(world, ingress) for _ in scripts] for ingress in (RELAYED, LOCAL)]
        async with trio.open_nursery() as nursery:
            for ingress in (RELAYED, LOCAL):
                nursery.start_soon(play_all, ingress)
        await trio.sleep(5)
        assert not +world.load()
        assert world.complaints() == []
        hosts = [router.host for router in world.routers]
        assert [host.statistics().connections.held_bytes for host in hosts] == [0, 0, 0]
        return found


@FEW
@given(st.lists(SCRIPTS, min_size=1, max_size=5))
def test_whatever_is_said_is_heard_the_same(scripts: list[Script]) -> None:
    relayed, local = run(transcripts_of, scripts)
    assert local == relayed
    for script, heard in zip(scripts, local, strict=True):
        is_whole = heard.forth.is_all_of(script.forth) and heard.back.is_all_of(script.back)
        assert is_whole, heard


@FEW
@given(st.lists(CUT_SCRIPTS, min_size=1, max_size=5))
def test_what_is_broken_off_is_broken_the_same(scripts: list[Script]) -> None:
    for found in run(transcripts_of, scripts):
        for script, heard in zip(scripts, found, strict=True):
            for way, part in ((script.forth, heard.forth), (script.back, heard.back)):
                is_honest = part.is_part_of(way) or (part.is_all_of(way) and way.end is End.EOF)
                assert is_honest, heard


@pytest.mark.parametrize("host", [ECHO, REFUSED, SLOW, "127.0.0.1"])
async def test_every_answer_is_the_same(autojump_clock: MockClock, host: str) -> None:
    """How far it got, what was wrong, whether to try again, and how long it took to say so."""
    async with open_relays() as world:
        answers: list[object] = []
        for ingress in (LOCAL, RELAYED):
            began, reached = trio.current_time(), len(world.agency.targets.reached)
            opening = await dial(world.clients[ingress], host=host)
            took = trio.current_time() - began
            answers.append((opening.result, round(took, 1), len(world.agency.targets.reached) - reached))
            if opening.stream is not None:
                await opening.stream.aclose()
        assert answers[0] == answers[1]


@pytest.mark.parametrize("ingress", [LOCAL, RELAYED])
async def test_what_a_client_says_at_once_is_the_targets(autojump_clock: MockClock, ingress: int) -> None:
    """Bytes that come before the answer wait for the target, however long that takes to connect."""
    async with open_relays() as world:
        session = world.clients[ingress].host.session(world.routers[ingress].peer)
        assert session is not None
        stream = await session.open_stream(DIAL_ID)
        early = bytes(range(256)) * 500
        await stream.send_all(encode_frame(encode_open(Open(AGENT, "tcp", HELD, 22))) + early)
        await stream.send_eof()
        await trio.sleep(1)
        heard = bytearray()
        while data := await world.agency.targets.held[-1].receive_some():
            heard += data
        assert heard == early
        await world.agency.targets.held[-1].send_all(b"answer")
        await world.agency.targets.held[-1].send_eof()
        reader, answer = FrameReader(1024), bytearray()
        while data := await stream.receive_some():
            answer += data
        reader.receive_data(bytes(answer))
        frame = reader.next_frame()
        assert frame is not None
        assert decode_result(frame).code is Code.OK
        assert answer.endswith(b"answer")


async def test_a_stream_that_nobody_reads_is_bounded_on_every_hop(autojump_clock: MockClock) -> None:
    """Each hop has its own credit: what a client may send is what its router has room for, and no more."""
    async with open_relays() as world:
        stream = await stream_by(world, RELAYED)
        poured = 0
        with trio.move_on_after(30):
            while True:
                await stream.client.send_all(bytes(64 * 1024))
                poured += 64 * 1024
        hosts = [*(router.host for router in world.routers), world.clients[RELAYED].host]
        held = sum(host.statistics().connections.held_bytes for host in hosts)
        assert held <= poured + 64 * 1024  # nothing is kept twice
        assert poured < 3 * 16 * 1024 * 1024
        heard = 0
        while heard < poured:
            heard += len(await stream.target.receive_some())
        stream.client.reset()
        await trio.sleep(1)
        assert [host.statistics().connections.held_bytes for host in hosts] == [0] * 4


@pytest.mark.parametrize("ingress", [RELAYED, LOCAL])
async def test_an_open_cancelled_anywhere_leaves_nothing_anywhere(autojump_clock: MockClock, ingress: int) -> None:
    """Not at the client's router, not at the other, not at the agent, not at the target."""
    async with open_relays() as world:

        async def use() -> None:
            opening = await dial(world.clients[ingress])
            if opening.stream is not None:
                await opening.stream.aclose()

        async def check() -> None:
            await trio.sleep(1)
            assert not +world.load()
            assert world.complaints() == []
            assert world.agency.targets.open == 0

        assert await cancel_at_every_await(use, check=check) >= 3


async def test_a_client_that_goes_while_its_target_is_dialled_leaves_nothing(autojump_clock: MockClock) -> None:
    async with open_relays() as world:
        for ingress in (RELAYED, LOCAL):
            with trio.move_on_after(2):
                await dial(world.clients[ingress], host=SLOW)
        await trio.sleep(10)
        assert not +world.load()
        assert world.complaints() == []
        counts = [router.host.statistics().streams.outcomes["failed"] for router in world.routers]
        assert counts == [0, 0, 0]
