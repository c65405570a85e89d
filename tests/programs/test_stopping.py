"""Each program ends when it is told to, within seconds and with status 0, and leaves nothing running."""

import shlex
import signal
import stat

import pytest

from agentmesh.cli.one import ADMIN_TOKEN_FILE, TOKEN_FILE
from tests.programs.programs import Machine

SIGNALS = [signal.SIGINT, signal.SIGTERM]


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
async def test_programs_end_when_told_to(machine: Machine, number: signal.Signals) -> None:
    address = ("--listen", "/ip4/127.0.0.1/tcp/0")
    async with machine.running("one", "--bind-address", "127.0.0.1:0", *address) as one:
        url = (await one.said(r"control plane +(http://\S+)"))[1]
        how_to_join = shlex.split((await one.said(r"^agentmesh (node .*)$"))[1])  # to be copied: a line of its own
        for name in (TOKEN_FILE, ADMIN_TOKEN_FILE):
            assert stat.S_IMODE((machine.folder / "mesh" / name).stat().st_mode) == 0o600
        router_token = machine.folder / "router-token"
        async with machine.running(
            "token", "create", "--role", "router", "--db-dsn", str(machine.folder / "mesh" / "control-plane.db")
        ) as create:
            assert await create.ended() == 0
        router_token.write_text(create.out.read_text())
        join = ("--control-plane", url, "--bootstrap-token-path")
        async with (
            machine.running("control-plane", "--bind-address", "127.0.0.1:0") as control_plane,
            machine.running("router", *join, str(router_token), *address) as router,
            machine.running(*how_to_join, "--service", "http/x=http://127.0.0.1:1") as node,
        ):
            for program in (control_plane, router, node):
                await program.said(" serving ")
            for program in (node, router, control_plane):
                assert await program.told(number) == 0, program.text
        assert await one.told(number) == 0, one.text
    await machine.none_left()


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
@pytest.mark.parametrize("name", ["node", "router"])
async def test_a_member_ends_while_it_waits_for_its_control_plane(
    machine: Machine, name: str, number: signal.Signals
) -> None:
    token = machine.folder / "token"
    token.write_text("mesh-bt-whatever\n")
    join = ("--control-plane", "http://127.0.0.1:1", "--bootstrap-token-path", str(token))
    async with machine.running(name, *join) as member:
        await member.said(r"WARNING .* does not answer url=http://127.0.0.1:1/? reason=")
        assert await member.told(number) == 0, member.text
    await machine.none_left()
