"""`agentmesh agent run` as a process: reached by a member through a router, stopped by signals."""

import re
import signal
from contextlib import suppress
from pathlib import Path

import httpx
import trio

from agentmesh.node import Node
from agentmesh.protocols.pool import DIAL_ID, Code, Open, Opening, open_target
from agentmesh.router import Router
from tests.agent.test_loopback import open_target as open_echo
from tests.node.loopback import Loopback, open_loopback
from tests.pool.worlds import say
from tests.programs.programs import Machine, Running

CONFIG = """\
control-plane: {control_plane}
agent:
  id: devbox
  server_url: ws://127.0.0.1:{port}/ws/agent/v1
  access: [{{protocols: [tcp], networks: [127.0.0.1/32]}}]
metrics-addr: 127.0.0.1:0
"""


async def write_config(machine: Machine, mesh: Loopback, router: Router) -> None:
    port = next(one.value("tcp") for one in router.addresses if "ws" in one.names)
    text = CONFIG.format(control_plane=mesh.control_plane.url, port=port)
    (machine.folder / "agent.yaml").write_text(text)
    enrollment = await mesh.enrollment()
    (machine.folder / "token").write_text(enrollment.token or "")


async def dial(node: Node, router: Router, port: int) -> Opening:
    """What becomes of a stream that a member asks a router for."""
    session = node.host.session(router.peer)
    assert session is not None
    return await open_target(session, Open("devbox", "tcp", "127.0.0.1", port), protocol=DIAL_ID)


async def test_a_member_reaches_what_is_beside_an_agent_until_it_is_told_to_stop(
    machine: Machine, tmp_path: Path
) -> None:
    async with (
        open_loopback(tmp_path / "mesh", "router") as mesh,
        await mesh.node() as node,
        open_echo() as port,
    ):
        router, _ = mesh.scopes["router"]
        await write_config(machine, mesh, router)
        run = ("agent", "run", "--config", "agent.yaml")
        async with machine.running(*run, "--bootstrap-token-path", "token") as process:
            await process.said(" connected ")
            await it_is_used_and_stops_when_it_is_idle(process, node, router, port)
        async with machine.running(*run) as again:
            await again.said(" connected ")
            await it_stops_at_once_when_it_is_told_twice(again, node, router, port)
        instances = [one.text.split("instance=")[1].split()[0] for one in (process, again)]
        assert instances[0] == instances[1]
        secrets = (machine.folder / "token").read_text(), (machine.folder / "agent/credential.json").read_text()
        for secret in (secrets[0], re.findall(r'"token": "([^"]+)"', secrets[1])[0][:40]):
            assert secret not in process.text + again.text
    await machine.none_left()


async def it_is_used_and_stops_when_it_is_idle(process: Running, node: Node, router: Router, port: int) -> None:
    opening = await dial(node, router, port)
    assert opening.stream is not None
    assert await say(opening.stream) == b"hello"
    url = (await process.said(r" metrics .*url=(\S+)"))[1]
    async with httpx.AsyncClient(base_url=url) as client:
        assert (await client.get("/readyz")).status_code == 200
        (connection,) = (await client.get("/debug/pool")).json()["connections"]
        assert (connection["activeStreams"], connection["router"]) == (1, str(router.peer))
        process.process.send_signal(signal.SIGTERM)
        await process.said(" stopping .*streams=1")
        with trio.fail_after(20):
            while (await dial(node, router, port)).result.code is not Code.AGENT_OFFLINE:  # noqa: ASYNC110
                await trio.sleep(0.05)
        assert (await client.get("/readyz")).status_code == 503
    assert await say(opening.stream) == b"hello"
    await opening.stream.aclose()
    assert await process.ended() == 0, process.text


async def it_stops_at_once_when_it_is_told_twice(process: Running, node: Node, router: Router, port: int) -> None:
    opening = await dial(node, router, port)
    assert opening.stream is not None
    began = trio.current_time()
    process.process.send_signal(signal.SIGTERM)
    await process.said(" stopping ")
    assert await process.told(signal.SIGTERM) == 0, process.text
    assert trio.current_time() - began < 20  # with the stream open it would have taken thirty
    with suppress(trio.BrokenResourceError):
        assert await opening.stream.receive_some() == b""
