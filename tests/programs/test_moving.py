"""Routers that stop as they are told to: their members are elsewhere before they are gone, and no call fails."""

import signal
from collections import Counter

import trio

from agentmesh.router.departures import GRACE
from agentmesh.types import PeerId
from tests.programs.mesh import TICK, Mesh, open_mesh
from tests.programs.programs import PATIENCE, Machine

WEEK = 7 * 86400.0
MOVED_WITHIN = 1.0  # seconds
LOOK_INTERVAL = 0.005  # seconds


async def call(mesh: Mesh, ended: trio.Event, answers: Counter[int]) -> None:
    """Call again and again."""
    async with mesh.caller.http_client(timeout=PATIENCE) as client:
        while not ended.is_set():
            response = await client.get(mesh.url + "once")
            answers[response.status_code] += 1
            assert response.content == TICK, response.text


async def moved(mesh: Mesh, stopped: PeerId) -> float:
    """How long it takes until the caller holds two routers and not this one, but for the time that others had the
    processor: by how much each look comes late."""
    took = 0.0
    with trio.fail_after(PATIENCE):
        while len(mesh.caller.routers) < 2 or stopped in mesh.caller.routers:
            looked = trio.current_time()
            await trio.sleep(LOOK_INTERVAL)
            took += min(trio.current_time() - looked, 2 * LOOK_INTERVAL)
    return took


async def test_node_moves_when_its_router_stops(machine: Machine) -> None:
    """Of three routers a node holds two; with its monitor off one of them gets SIGTERM."""
    async with open_mesh(machine, ttls=["30s"] * 3, monitor_interval=WEEK) as mesh:
        ended, answers = trio.Event(), Counter[int]()
        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(call, mesh, ended, answers)
            with trio.fail_after(PATIENCE):
                while answers.total() < 50:  # noqa: ASYNC110 - only looking tells
                    await trio.sleep(0.01)
            stopped = mesh.relaying()
            mesh.routers[stopped].process.send_signal(signal.SIGTERM)
            took = await moved(mesh, stopped)
            assert await mesh.routers[stopped].ended() == 0, mesh.routers[stopped].text
            ended.set()
        assert took < MOVED_WITHIN
        assert set(answers) == {200}
        assert stopped != mesh.relaying()


async def test_router_graceful_shutdown_withdraws_lease(machine: Machine) -> None:
    """Of a router with a ttl of a second nobody hears any more after it; one that sends no last lease stays listed; and
    one that gets a second signal does not wait for its members."""
    async with open_mesh(machine, ttls=["1s", "0", "30s"]) as mesh:
        info, (short, silent, hasty) = mesh.caller.membership.client.info, mesh.routers
        mesh.routers[short].process.send_signal(signal.SIGINT)
        assert await mesh.routers[silent].told(signal.SIGTERM) == 0
        assert await mesh.routers[short].ended() == 0
        with trio.fail_after(PATIENCE):
            while short in {record.peer for record in (await info()).routers}:  # noqa: ASYNC110 - only asking tells
                await trio.sleep(0.05)
        assert {record.peer for record in (await info()).routers} == {silent, hasty}
        began = trio.current_time()
        mesh.routers[hasty].process.send_signal(signal.SIGTERM)
        await mesh.routers[hasty].said(" stopping")
        await mesh.routers[hasty].told(signal.SIGTERM)
        assert trio.current_time() - began < GRACE / 2
