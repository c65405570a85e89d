"""Processes that vanish under a call, a router killed or a member frozen: the caller is told, and the mesh goes on."""

import signal

import httpx
import pytest
import trio

from tests.programs.mesh import PING_INTERVAL, TICK, open_mesh
from tests.programs.programs import PATIENCE, Machine


async def test_a_killed_router_breaks_the_call_and_the_next_goes_over_the_other(machine: Machine) -> None:
    async with open_mesh(machine) as mesh, mesh.caller.http_client(timeout=PATIENCE) as client:
        async with client.stream("GET", mesh.url) as response:
            chunks = response.aiter_raw()
            assert TICK in await anext(chunks)
            killed = mesh.relaying()
            assert await mesh.routers[killed].told(signal.SIGKILL) == -signal.SIGKILL
            with pytest.raises(httpx.ReadError), trio.fail_after(3 * PING_INTERVAL):
                async for _ in chunks:
                    pass
        response = await client.get(mesh.url + "once")
        assert (response.status_code, response.content) == (200, TICK), response.text
        assert mesh.relaying() != killed


async def test_a_frozen_member_is_noticed_by_its_silence(machine: Machine) -> None:
    async with open_mesh(machine) as mesh, mesh.caller.http_client(timeout=PATIENCE) as client:
        async with client.stream("GET", mesh.url) as response:
            chunks = response.aiter_raw()
            assert TICK in await anext(chunks)
            mesh.provider.process.send_signal(signal.SIGSTOP)
            with pytest.raises(httpx.ReadError), trio.fail_after(3 * PING_INTERVAL + 1):
                async for _ in chunks:
                    pass
        assert mesh.caller.host.session(mesh.provider_peer) is None
