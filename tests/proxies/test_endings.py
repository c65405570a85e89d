"""What ends a session through a proxy, and what does not: idle timeouts, restarts, reloads."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio

from agentmesh.errors import SessionClosedError
from agentmesh.protocols import ping
from agentmesh.runtime.config import SessionConfig
from agentmesh.runtime.host import Host
from agentmesh.runtime.session import MuxSession
from agentmesh.types import Address
from tests.interop.hosts import ECHO
from tests.proxies.site import WAYS, Site, Way, open_site

IDLE_TIMEOUT = "1s"  # of the proxies, in their words
QUIET = 3.5  # seconds: several of these timeouts
OFTEN = SessionConfig(ping_interval=0.3)
NOTICED = 10.0  # seconds of real time, for what happens at once


@attrs.frozen
class Visit:
    """A member's session to the router."""

    member: Host
    session: MuxSession
    address: Address


@asynccontextmanager
async def open_members(site: Site) -> AsyncGenerator[dict[Way, Host]]:
    """One for each way in."""
    async with AsyncExitStack() as stack:
        yield {way: await stack.enter_async_context(site.open_member()) for way in WAYS}


async def connect(site: Site, members: Mapping[Way, Host]) -> list[Visit]:
    addresses = {way: site.address(way) for way in members}
    return [
        Visit(member, await member.connect(site.router.peer, [addresses[way]]), addresses[way])
        for way, member in members.items()
    ]


async def dial_again(site: Site, visit: Visit) -> None:
    """The session has ended, and says so to whoever uses it; another takes its place."""
    with pytest.raises(SessionClosedError):
        await visit.session.open_stream(ECHO)
    assert visit.member.session(site.router.peer) is None
    session = await visit.member.connect(site.router.peer, [visit.address])
    assert session is not visit.session
    async with await session.open_stream(ping.PING_ID) as stream:
        assert await ping.ping(stream) > 0


async def test_a_quiet_session_outlives_idle_timeouts_by_its_keep_alive(tmp_path: Path) -> None:
    async with open_site(tmp_path, OFTEN) as site, site.proxies(IDLE_TIMEOUT), open_members(site) as members:
        visits = await connect(site, members)
        with trio.move_on_after(QUIET):
            await wait_any_ended(visits)
        assert [str(visit.address) for visit in visits if not visit.session.is_open] == []


async def wait_any_ended(visits: Sequence[Visit]) -> None:
    async with trio.open_nursery() as nursery:
        for visit in visits:
            nursery.start_soon(wait_ended, visit, nursery.cancel_scope)


async def wait_ended(visit: Visit, scope: trio.CancelScope) -> None:
    await visit.session.ended.wait()
    scope.cancel()


async def test_a_keep_alive_that_is_too_slow_loses_the_session_and_no_more(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site, site.proxies(IDLE_TIMEOUT), open_members(site) as members:
        for visit in await connect(site, members):
            with trio.fail_after(NOTICED):
                await visit.session.ended.wait()
            await dial_again(site, visit)


async def test_a_proxy_that_restarts_costs_the_session_and_no_more(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site, open_members(site) as members:
        async with site.proxies():
            visits = await connect(site, members)
            streams = [await visit.session.open_stream(ECHO) for visit in visits]
            for stream in streams:
                await stream.send_all(b"x")
                assert await stream.receive_some() == b"x"
        for stream in streams:
            with trio.fail_after(NOTICED), pytest.raises(SessionClosedError):
                await stream.receive_some()
        async with site.proxies():
            for visit in visits:
                await dial_again(site, visit)


async def test_a_proxy_that_is_reloaded_leaves_the_sessions_alone(tmp_path: Path) -> None:
    """Over HTTP/2 too, where it says GOAWAY when the next frame passes."""
    async with open_site(tmp_path, OFTEN) as site, site.proxies() as running, open_members(site) as members:
        visits = await connect(site, members)
        async with site.reloaded(running), open_members(site) as others:
            for visit in [*visits, *await connect(site, others), *visits]:
                async with await visit.session.open_stream(ping.PING_ID) as stream:
                    assert await ping.ping(stream) > 0
            assert [str(visit.address) for visit in visits if not visit.session.is_open] == []
