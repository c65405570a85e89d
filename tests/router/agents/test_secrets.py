"""No credential, invitation or token is in a log, a page, an event, an error, or the registry, whatever happens."""

import base64
import logging
from collections.abc import Iterable
from pathlib import Path

import httpx
import pytest
import trio

from agentmesh.logging import FORMATTERS
from agentmesh.pool.admin_client import PREFIX
from agentmesh.pool.registry.opening import open_registry
from agentmesh.pool.router.limits import PoolLimits
from agentmesh.router.agents.admin import serve_admin
from agentmesh.router.config import AgentsConfig
from agentmesh.router.pages import router_pages
from tests.membership.plane import NODE_TOKEN, ROUTER_TOKEN
from tests.pool.worlds import REFUSED, say
from tests.router.agents.agency import AGENT, Agency, dial, dialled, open_agency

ONLY_ONE = AgentsConfig(limits=PoolLimits(max_connections_per_agent=1))


def spellings(secret: bytes) -> Iterable[str]:
    """How it might be written: in part, too."""
    for piece in (secret[:24], secret[-24:], secret[len(secret) // 2 :][:24]):
        yield piece.hex()
        yield repr(piece)[2:-1]
        for skipped in range(3):  # where a group of three bytes begins is not known
            whole = piece[skipped : skipped + (len(piece) - skipped) // 3 * 3]
            yield base64.b64encode(whole).decode()
            yield base64.urlsafe_b64encode(whole).decode()


def contents(folder: Path, pattern: str) -> list[str]:
    return [path.read_bytes().decode("latin-1") for path in folder.glob(pattern)]


async def pages_of(agency: Agency, url: str, token: str, client: httpx.AsyncClient) -> list[str]:
    shown = {"Authorization": f"Bearer {token}"}
    paths = (
        "",
        f"/{AGENT}",
        *(f"/{AGENT}/{what}" for what in ("connections", "metadata", "traces", "scaling")),
        "/a b",
    )
    return [(await client.get(f"{url}{PREFIX}{path}", headers=shown)).text for path in paths]


async def test_no_secret_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    said: list[str] = []
    async with open_registry(str(tmp_path / "pool.db")) as registry, open_agency(registry) as agency:
        router = await agency.router("r1", agents=ONLY_ONE)
        with router.agents.events.listen() as listener:
            await agency.agent("i1")
            agency.fleet.nursery.start_soon(agency.agent, "i2")  # which is refused
            client = await agency.client("c", router)
            async with await dialled(client) as stream:
                assert await say(stream) == b"hello"
            said.append(repr(await dial(client, host=REFUSED)))
            with trio.fail_after(60):
                while not sum(router.agents.service.table.refused.values()):  # noqa: ASYNC110 - seen from outside
                    await trio.sleep(0.02)
            [pool] = router.agents.service.table
            [first] = pool.connections
            said += [repr(one.claim) + repr(one) for one in pool.connections]
            async with (
                serve_admin(router.agents, router.membership.wall_clock, "127.0.0.1:0", tmp_path / "token") as url,
                httpx.AsyncClient() as http,
            ):
                assert url is not None
                token = (tmp_path / "token").read_text().strip()
                said += await pages_of(agency, url, token, http)
                said += await pages_of(agency, url, "another" + token, http)
                path = f"{url}{PREFIX}/{AGENT}/connections/{first.connection_id}?connectionEpoch={first.epoch}"
                said.append((await http.delete(path, headers={"Authorization": f"Bearer {token}"})).text)
            async with httpx.AsyncClient(transport=httpx.ASGITransport(router_pages(router))) as http:
                said += [(await http.get(f"http://r{path}")).text for path in ("/metrics", "/debug/members")]
            said += [repr(one) for one in await listener.receive()]
        secrets = [issued.credential for issued in agency.fleet.plane.last.values()]
        assert len(secrets) == 4
        said += [repr(router.agents.service.table.audit.close()), repr(router.agents.service.__dict__)]
    said += [formatter().format(record) for record in caplog.records for formatter in FORMATTERS.values()]
    said += contents(tmp_path, "pool.db*")
    everything = "\n".join(said)
    assert f'"agentId":"{AGENT}"' in everything  # it was looked at
    assert "agent.connection.rejected" in everything
    assert "connection_epoch" in everything
    for secret in (token, NODE_TOKEN, ROUTER_TOKEN, *(text for one in secrets for text in spellings(one))):
        assert secret not in everything
