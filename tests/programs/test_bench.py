"""`agentmesh bench join` against a mesh of processes."""

import json
import os
import signal
from pathlib import Path

from agentmesh.bench.report import JoinReport
from tests.programs.mesh import create_token, open_mesh
from tests.programs.programs import Machine, Running

COUNT = 6


def arguments(url: str, token: Path, *more: str) -> tuple[str, ...]:
    join = ("--control-plane", url, "--bootstrap-token-path", str(token), "--count", str(COUNT))
    return ("bench", "join", *join, "--processes", "2", "--out", "report.json", *more)


def processes_of(bench: Running) -> list[int]:
    """Those that its members are tasks of."""
    threads = Path(f"/proc/{bench.process.pid}/task").glob("*/children")
    return [int(child) for thread in threads for child in thread.read_text().split()]


async def test_members_join_call_hold_and_lose_their_routers_and_a_report_tells_of_it(machine: Machine) -> None:
    async with open_mesh(machine) as mesh:
        token = await create_token(machine, "node")
        more = ("--service", "http/ticks", "--label", "step=1", "--hold", "300", "--resident-marker", "resident")
        async with machine.running(*arguments(mesh.control_plane, token, *more)) as bench:
            await bench.said(rf" members ready={COUNT} gone=0 of={COUNT}$")
            assert (machine.folder / "resident").exists()
            for router in mesh.routers.values():
                router.process.kill()
            await bench.said(rf" ready={COUNT} (?s:.*) members ready=0 gone=0 of={COUNT}$")
            assert await bench.told(signal.SIGINT) == 128 + signal.SIGINT, bench.text
        text = (machine.folder / "report.json").read_text()
        report = JoinReport.of_json(text)
        assert (report.count, report.completed, report.failed, report.errors) == (COUNT, COUNT, 0, {}), text
        assert report.labels == {"step": "1"}
        assert report.call_attempts >= COUNT
        assert report.hold is not None
        hold = report.hold
        assert (hold.resident, hold.members_exited, hold.min_ready) == (COUNT, 0, 0)
        assert (hold.flaps, hold.members_flapped, hold.members_not_ready_at_end) == (COUNT, COUNT, COUNT)
        assert 0 < hold.outage_ms.p50 <= hold.outage_ms.max
        assert all(member.ready_ms > 0 and (member.first_call_ms or 0) > 0 for member in report.members)
    assert json.loads(text)["join"]["members"]


async def test_members_that_cannot_join_are_told_of_and_ctrl_c_leaves_what_was_reached(machine: Machine) -> None:
    async with machine.running("control-plane", "--bind-address", "127.0.0.1:0", "--auto-approve-enrollment") as plane:
        url, token = (await plane.said(r" serving .*url=(\S+)"))[1], await create_token(machine, "node")
        one = machine.running(*arguments(url, token, "--join-timeout", "2", "--count", "2"))
        other = machine.running(*arguments(url, token, "--count", "3", "--out", "other.json"))
        async with one as short, other as long:
            await long.said(" members ready=0 gone=0 of=3$")
            os.kill(processes_of(long)[0], signal.SIGKILL)
            await long.said(" members ready=0 gone=[12] of=3$")
            assert await long.told(signal.SIGTERM) == 128 + signal.SIGINT, long.text
            assert await short.ended() == 1, short.text
        report, broken_off = (
            JoinReport.of_json((machine.folder / f).read_text()) for f in ("report.json", "other.json")
        )
        assert (report.completed, report.failed, report.hold) == (0, 2, None)
        assert report.errors == {"not ready in 2 s": 2}
        assert (broken_off.count, broken_off.completed) == (3, 0)
        ((why, count),) = broken_off.errors.items()
        assert why == "the process ended"
        assert broken_off.failed == count in (1, 2)
    await machine.none_left()
