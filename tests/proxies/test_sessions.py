"""A session through a proxy is a session: the same as on a bare line."""

from pathlib import Path

import pytest
import trio

from agentmesh.abc import Session
from agentmesh.protocols import identify, ping
from agentmesh.runtime.host import Host
from tests.interop.hosts import CHUNK, COUNT, ECHO, MIB, TEN_MIB, count, echo
from tests.proxies.site import HAPROXY_TCP, WAYS, Way, open_site

STREAMS = 64


@pytest.mark.parametrize("way", WAYS, ids=str)
async def test_a_session_is_as_on_a_bare_line(way: Way, tmp_path: Path) -> None:
    async with open_site(tmp_path) as site, site.proxies(), site.open_member() as member:
        router = site.router
        session = await member.connect(router.peer, [site.address(way)])
        async with await member.open_stream(router.peer, ping.PING_ID) as stream:
            assert await ping.ping(stream) > 0
        async with await member.open_stream(router.peer, identify.IDENTIFY_ID) as stream:
            assert (await identify.identify(stream)).public_key == router.identity.public_key_bytes
        async with trio.open_nursery() as nursery:
            nursery.start_soon(echo, await member.open_stream(router.peer, ECHO), TEN_MIB)
            nursery.start_soon(echo, await router.open_stream(member.peer, ECHO), TEN_MIB)
        await count(await member.open_stream(router.peer, COUNT), MIB)
        await count(await router.open_stream(member.peer, COUNT), MIB)
        await reset_one(member, router)
        await reset_one(router, member)
        await open_many(session)
        assert session.streams == ()


async def reset_one(host: Host, peer: Host) -> None:
    """One stream is cut, and one beside it goes on."""
    async with await host.open_stream(peer.peer, ECHO) as kept:
        stream = await host.open_stream(peer.peer, ECHO)
        await stream.send_all(b"x")
        assert await stream.receive_some() == b"x"
        stream.reset()
        await echo(kept, CHUNK)


async def open_many(session: Session) -> None:
    async with trio.open_nursery() as nursery:
        for _ in range(STREAMS):
            nursery.start_soon(echo, await session.open_stream(ECHO), CHUNK)


async def test_a_name_leads_to_its_router_whose_certificate_nobody_signed(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site, site.proxies(), site.open_member() as member:
        for name, router in (("r1.example", site.router), ("r2.example", site.other)):
            session = await member.connect(router.peer, [site.address(Way(HAPROXY_TCP, name, "/tls"))])
            assert session.peer == router.peer
