"""A router that knows no pools, at the same URL as one that does: in virtual time."""

import itertools
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from agentmesh.abc import Session
from agentmesh.membership.gate import admission_book, auth_policy
from agentmesh.pool.agent.config import ConnectionsConfig
from agentmesh.pool.agent.controller import MAX_REDIALS
from agentmesh.protocols import auth
from agentmesh.protocols.pool import pool_protocol
from agentmesh.runtime.host import Host, open_host
from agentmesh.runtime.session import MuxSession
from tests.agent.fleet import AGENT, AgentFleet, open_agent_fleet, open_at, spread, wait_until
from tests.membership.plane import ROUTER_TOKEN
from tests.node.fleet import ANY
from tests.pool.old_router import OldRouter
from tests.pool.worlds import say

MANY = ConnectionsConfig(min=3, max=8)
LONG = 300.0  # seconds


@asynccontextmanager
async def open_old_router(fleet: AgentFleet) -> AsyncGenerator[tuple[OldRouter, Host]]:
    membership, router = await fleet.member(fleet.plane, ROUTER_TOKEN), OldRouter(AGENT)
    book = admission_book(membership)
    async with open_host(
        identity=membership.identity,
        transports=[fleet.network.transport("old")],
        protocols=[auth.protocol(auth_policy(membership, book)), pool_protocol(router.serve)],
        listen=[ANY],
        admissions=book,
    ) as host:
        yield router, host


async def use(router: OldRouter) -> None:
    """Open a stream on its connection."""
    stream = await router.open()
    assert stream is not None
    assert await say(stream) == b"hello"
    await stream.aclose()


def lose(sessions: Iterable[Session]) -> None:
    for session in list(sessions):
        assert isinstance(session, MuxSession)
        session.abort("the cable")


@pytest.mark.parametrize("order", ["no", "nno", "on"])
async def test_an_old_router_among_new_ones_is_served_and_not_flooded(
    autojump_clock: MockClock, tmp_path: Path, order: str
) -> None:
    """Whatever the order is in which they answer: "n" for the new one, "o" for the old one."""
    async with open_agent_fleet(tmp_path) as fleet, open_old_router(fleet) as (old, host):
        new = await fleet.router("new")
        addresses = {"n": new.addresses[0].without_peer(), "o": host.addresses[0].without_peer()}
        behind = map(addresses.__getitem__, itertools.cycle(order))
        agent = await fleet.process(connections=MANY, behind=behind.__next__)
        await trio.sleep(LONG)
        first_is_old = order.startswith("o")
        assert (spread(new), len(old.serving), old.hellos) == ([0 if first_is_old else 1], 1, 1)
        assert fleet.sessions_made("agent") <= MAX_REDIALS
        await use(old)
        if not first_is_old:
            assert await say(await open_at(new)) == b"hello"
        for times in (1, 2):  # the word of a router that is gone is forgotten, and learnt anew
            lose([old.serving[0].session])
            await trio.sleep(LONG)
            assert (spread(new), len(old.serving), old.hellos) == ([1], 1, 1 + times)
        lose(agent.host.connections.sessions_of(new.peer))
        await trio.sleep(LONG)
        assert (spread(new), len(old.serving), old.hellos) == ([0], 1, 3)  # what there is is kept
        assert fleet.sessions_made("agent") <= 3 * MAX_REDIALS
        await use(old)


async def test_when_the_last_old_router_has_gone_there_are_many(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with open_agent_fleet(tmp_path) as fleet:
        new = await fleet.router("new")
        behind = [new.addresses[0].without_peer()]
        async with open_old_router(fleet) as (_, host):
            behind.insert(0, host.addresses[0].without_peer())
            agent = await fleet.process(connections=MANY, behind=lambda: behind[0])
            await trio.sleep(LONG)
            assert (len(agent.connections), fleet.sessions_made("agent")) == (1, 1)
            del behind[0]
        await wait_until(lambda: spread(new) == [MANY.min])
