"""The local API of a node that is a process, by the socket and by the port."""

from pathlib import Path

import httpx2

from tests.programs.mesh import create_token, open_mesh
from tests.programs.programs import Machine


async def test_a_program_beside_a_node_calls_a_service_of_another(machine: Machine, tmp_path: Path) -> None:
    async with open_mesh(machine) as mesh:
        token = await create_token(machine, "node")
        where = ("--socket-path", "node.sock", "--bind-addr", "127.0.0.1:0", "--api-token-path", "api-token")
        join = ("--control-plane", mesh.control_plane, "--bootstrap-token-path", str(token), "--data-dir", "beside")
        async with machine.running("node", *join, *where) as node:
            url = (await node.said(r" local API .*url=(\S+)"))[1]
            await node.said(" serving ")
            path = f"/mesh/{mesh.provider_peer}/http/ticks/once"
            transport = httpx2.AsyncHTTPTransport(uds=str(tmp_path / "node.sock"))
            async with httpx2.AsyncClient(transport=transport, base_url="http://node", timeout=20) as client:
                assert (await client.get(path)).text == "tick\n"
                assert (await client.get("/debug/mesh-info")).json()["attached_routers"]
            secret = (tmp_path / "api-token").read_text().strip()
            async with httpx2.AsyncClient(base_url=url, timeout=20) as client:
                assert (await client.get(path)).status_code == 401
                assert (await client.get(path, headers={"Authorization": f"Bearer {secret}"})).text == "tick\n"
            async with machine.running("node", *join, "--data-dir", "other", *where) as second:
                assert await second.ended() == 1
                assert "node.sock: another process listens there" in second.text
            assert secret not in node.text
