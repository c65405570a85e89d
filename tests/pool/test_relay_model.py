"""Streams through several routers in whatever happens: each is where it was meant to be, or nowhere."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial

import attrs
import trio
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from agentmesh.pool.router.attached import attached_to
from agentmesh.pool.router.connection import State
from agentmesh.protocols.pool import (
    RELAY_ID,
    Closing,
    Code,
    ConnEpoch,
    DrainReason,
    Open,
    OpenResult,
    Stage,
    open_target,
)
from tests.pool.machines import TrioMachine
from tests.pool.relays import Relays, Through, open_relays
from tests.pool.worlds import HELD
from tests.router.agents.agency import AGENT

CALM = 5.0  # seconds after which a lost connection is known to be lost, and another is there
UNLISTED = 130.0  # the same of a router that was lost: its leases have run out
ROUTERS = st.integers(0, 2)


class RelayMachine(TrioMachine[Relays]):
    def __init__(self) -> None:
        super().__init__()
        self.streams: list[Through] = []
        self.calm_at = 0.0

    def open_world(self) -> AbstractAsyncContextManager[Relays]:
        return open_relays()

    def clean(self, ended: Through | None = None) -> None:
        """What is over is closed, and what is not has its place, on its own connection and no other."""

        async def close() -> None:
            if ended is not None:
                self.streams.remove(ended)
                await ended.client.aclose()
                await ended.target.aclose()
                await trio.sleep(1)
            complaints = self.world.complaints()
            assert not complaints, complaints
            load = self.world.load()
            for stream in self.streams:
                if not stream.is_doomed:
                    same = [one for one in self.streams if one.key == stream.key]
                    assert load[stream.owner, stream.key] == len(same)

        self.do(close)

    @rule(ingress=ROUTERS)
    def open(self, ingress: int) -> None:
        if ingress in self.world.dead or len(self.streams) > 12:
            return
        here = [one for one in self.world.connections(ingress) if one.state is State.OPEN]
        found = self.do(lambda: self.world.open(ingress))
        if isinstance(found, OpenResult):
            assert found.code in (Code.AGENT_OFFLINE, Code.NETWORK_UNREACHABLE, Code.TIMEOUT), found
            assert found.retryable
            assert self.do(self.now) < self.calm_at, "refused for no reason"
        else:
            self.streams.append(found)
            assert not here or found.owner == ingress or self.do(self.now) < self.calm_at
        self.clean()

    async def now(self) -> float:
        await trio.lowlevel.checkpoint()
        return trio.current_time()

    @precondition(lambda self: self.streams)
    @rule(data=st.data(), size=st.sampled_from([1, 5_000, 400_000]), forth=st.booleans())
    def use(self, data: st.DataObject, size: int, forth: bool) -> None:
        stream = data.draw(st.sampled_from(self.streams))
        if not (stream.forth if forth else stream.back):
            return
        said = bytes([size % 251]) * size
        try:
            assert self.do(lambda: stream.say(said, forth=forth)) == said
        except* trio.BrokenResourceError:
            assert stream.is_doomed
            self.clean(stream)

    @precondition(lambda self: self.streams)
    @rule(data=st.data(), forth=st.booleans())
    def half_close(self, data: st.DataObject, forth: bool) -> None:
        """One way ends, once; the other goes on."""
        stream = data.draw(st.sampled_from(self.streams))
        if stream.is_doomed or not (stream.forth if forth else stream.back):
            return

        async def end() -> None:
            source, sink = (stream.client, stream.target) if forth else (stream.target, stream.client)
            await source.send_eof()
            assert await sink.receive_some() == b""

        self.do(end)
        stream = self.told(stream, forth)
        self.clean(None if stream.forth or stream.back else stream)

    @staticmethod
    def told(stream: Through, forth: bool) -> Through:
        if forth:
            stream.forth = False
        else:
            stream.back = False
        return stream

    @precondition(lambda self: self.streams)
    @rule(data=st.data(), by_client=st.booleans())
    def reset(self, data: st.DataObject, by_client: bool) -> None:
        """Either side breaks off: the other hears of it."""
        stream = data.draw(st.sampled_from(self.streams))
        if not (stream.forth if by_client else stream.back):
            return  # what it has ended it cannot break off

        async def break_off() -> None:
            if by_client:
                stream.client.reset()
            else:
                stream.target.reset()
            other, may_come = (stream.target, stream.forth) if by_client else (stream.client, stream.back)
            with trio.fail_after(5):
                try:
                    assert await other.receive_some() == b""
                    assert not may_come or stream.is_doomed
                except trio.BrokenResourceError:
                    pass

        self.do(break_off)
        self.clean(stream)

    @precondition(lambda self: len(self.streams) > 1)
    @rule(data=st.data())
    def slow_reader(self, data: st.DataObject) -> None:
        """It holds up no other stream, and no word between routers; nothing of what waits for it is lost."""
        slow, other = data.draw(st.permutations(self.streams))[:2]
        if slow.is_doomed or other.is_doomed or not (slow.back and other.back):
            return

        async def read_late() -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(slow.target.send_all, bytes(1_000_000))
                await trio.sleep(3)
                with trio.fail_after(1):
                    assert await other.say(b"meanwhile", forth=False) == b"meanwhile"
                    stale = attrs.evolve(slow.key, epoch=ConnEpoch(slow.key.epoch + 1))
                    assert await self.world.routers[slow.ingress].agents.close(stale) is Closing.STALE
                heard = 0
                while heard < 1_000_000:
                    heard += len(await slow.client.receive_some())

        self.do(read_late)
        self.clean()

    @rule(data=st.data(), owner=st.integers(1, 2), drained=st.booleans())
    def lose_connection(self, data: st.DataObject, owner: int, drained: bool) -> None:
        """Its agent makes another in its place; routers that have heard of this one know it for a while yet."""
        if owner in self.world.dead or not self.world.connections(owner):
            return
        lost = data.draw(st.sampled_from(self.world.connections(owner)))
        pinned = [stream for stream in self.streams if stream.key == lost.key]

        async def lose() -> None:
            if drained:
                service = self.world.routers[owner].agents.service
                service.drain(lost, DrainReason.SERVER_SHUTDOWN, timeout=20.0)
            else:
                attached_to(lost).session.abort("the cable")
                for stream in pinned:
                    await stream.ends_broken(within=5)
            self.calm_at = max(self.calm_at, trio.current_time() + CALM)

        self.do(lose)
        self.doom(pinned)
        for stream in pinned if not drained else []:
            self.clean(stream)
        self.clean()

    @staticmethod
    def doom(streams: Sequence[Through]) -> None:
        for stream in streams:
            stream.is_doomed = True

    @precondition(lambda self: not self.world.dead and self.streams)
    @rule(owner=st.integers(1, 2))
    def lose_router(self, owner: int) -> None:
        """Nobody is told. What was on its connections, or came through it, is lost, and nothing else."""
        lost = [stream for stream in self.streams if owner in (stream.ingress, stream.owner)]

        async def lose() -> None:
            self.world.agency.fleet.network.block(f"r{owner}")
            self.world.dead.add(owner)
            self.calm_at = trio.current_time() + UNLISTED
            for stream in lost:
                with trio.fail_after(80):
                    try:
                        while await (stream.client if stream.ingress != owner else stream.target).receive_some():
                            pass
                    except trio.BrokenResourceError:
                        pass
            await trio.sleep(60)

        self.do(lose)
        self.doom(lost)
        for stream in lost:
            self.clean(stream)
        for stream in self.streams:
            if not stream.is_doomed and stream.back:
                assert self.do(partial(stream.say, b"still here", forth=False)) == b"still here"

    @rule(data=st.data(), asker=ROUTERS, asked=ROUTERS, epoch=st.sampled_from([-1, 1, 2**40]))
    def relay_amiss(self, data: st.DataObject, asker: int, asked: int, epoch: int) -> None:
        """For another life of a connection, or for a connection of a third router: it is opened nowhere."""
        if asker == asked or {asker, asked} & self.world.dead:
            return
        others = [one.key for n in range(3) if n != asked for one in self.world.connections(n)]
        stale = [attrs.evolve(one.key, epoch=ConnEpoch(one.epoch + epoch)) for one in self.world.connections(asked)]
        if not others + stale:
            return
        key = data.draw(st.sampled_from(others + stale))

        async def ask() -> OpenResult:
            session = self.world.routers[asker].host.session(self.world.routers[asked].peer)
            assert session is not None
            request = Open(AGENT, "tcp", HELD, 22, target_connection_id=key.connection_id)
            request = attrs.evolve(request, target_connection_epoch=key.epoch)
            return (await open_target(session, request, protocol=RELAY_ID)).result

        held = len(self.world.agency.targets.held)
        result = self.do(ask)
        assert (result.stage, result.code) == (Stage.RELAY, Code.AGENT_OFFLINE)
        assert len(self.world.agency.targets.held) == held
        self.clean()

    @rule(seconds=st.sampled_from([0.3, 2.0, 10.0]))
    def wait(self, seconds: float) -> None:
        self.do(partial(trio.sleep, seconds))
        self.clean()

    def teardown(self) -> None:
        try:
            for stream in list(self.streams):
                self.clean(stream)
            if not self.world.dead:
                self.do(partial(trio.sleep, 25))
                assert not +self.world.load()
        finally:
            super().teardown()


TestRelays = RelayMachine.TestCase
TestRelays.settings = settings(
    max_examples=6,
    stateful_step_count=25,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # a shorter history takes minutes to find
)
