"""A ban on the command line puts a member out of a mesh of processes, at once."""

import trio

from tests.programs.mesh import TICK, open_mesh
from tests.programs.programs import Machine

TOLD_WITHIN = 1.0  # seconds from the end of the command


async def test_a_ban_by_an_admin_puts_a_member_out_within_a_second(machine: Machine) -> None:
    admin_token = machine.folder / "admin-token"
    admin_token.write_text("a token of an admin")
    async with open_mesh(machine, "--admin-token-path", str(admin_token)) as mesh:
        async with mesh.caller.http_client(timeout=10) as client:
            assert (await client.get(mesh.url + "once")).content == TICK
            for router in mesh.routers.values():
                await router.said(" router joined ")
            where = ("--control-plane", mesh.control_plane, "--admin-token-path", str(admin_token))
            async with machine.running("admin", "ban", str(mesh.caller.peer), *where) as ban:
                assert await ban.ended() == 0, ban.text
            with trio.fail_after(TOLD_WITHIN):
                while mesh.caller.routers or mesh.caller.host.session(mesh.provider_peer):  # noqa: ASYNC110
                    await trio.sleep(0.01)
            assert (await client.get(mesh.url + "once")).status_code in (502, 503)
        for program in (mesh.provider, *mesh.routers.values()):
            await program.said(f" event .*what=.*{mesh.caller.peer}")
