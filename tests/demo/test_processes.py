"""The stage of the demo's programs: what they say is heard, who ends too early is named, who does not end is killed."""

import os
import signal
from pathlib import Path

import pytest
import trio

from agentmesh.demo import processes
from agentmesh.demo.mesh import CheckFailedError, next_report
from agentmesh.demo.processes import ProcessFailedError, Program, log_end, open_stage
from agentmesh.demo.reports import (
    Attached,
    CircuitOpened,
    Downloaded,
    Progressed,
    Report,
    ToolAnswered,
    parse_report,
    send_report,
)
from agentmesh.errors import RemoteProtocolError

ECHO = """
import sys
for line in sys.stdin:
    print("cue", flush=True)
"""
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", flush=True)
signal.pause()
"""
FAILING = """
import sys
print("half a li", end="", flush=True)
print("first\\n    | the reason  \\n  +------\\n", file=sys.stderr)
sys.exit(3)
"""
ENVIRONMENT = "import os; print(sorted(name for name in os.environ if 'MESH' in name or name == 'LOG_FORMAT')); input()"


@pytest.fixture
def ended() -> list[str]:
    return []


@pytest.fixture(autouse=True)
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules that a program can be."""
    for name, text in {"echo": ECHO, "stubborn": STUBBORN, "failing": FAILING, "environment": ENVIRONMENT}.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


def is_running(program: Program) -> bool:
    try:
        os.kill(program.pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_program_is_cued_and_heard_and_ended(tmp_path: Path, ended: list[str]) -> None:
    async with open_stage(tmp_path, ended.append) as stage:
        program = await stage.start("one", "echo", ())
        for _ in range(3):
            await program.cue()
        assert [await program.next_line() for _ in range(3)] == ["cue"] * 3
        assert is_running(program)
    assert not is_running(program)
    assert ended == []


async def test_one_that_ends_early_is_named_with_the_end_of_its_log(tmp_path: Path, ended: list[str]) -> None:
    others: list[Program] = []
    with pytest.raises(ExceptionGroup) as caught:
        async with open_stage(tmp_path, ended.append) as stage:
            others.append(await stage.start("two", "echo", ()))
            await (await stage.start("one", "failing", ())).next_line()
    texts = {str(leaf) for leaf in caught.value.exceptions}
    assert texts == {"one ended with status 3, and logged at the end: the reason"}
    assert caught.group_contains(ProcessFailedError)
    assert ended == ["one"]
    assert not any(map(is_running, others))


async def test_one_that_was_killed_takes_no_cue(tmp_path: Path, ended: list[str]) -> None:
    with pytest.raises(ExceptionGroup, check=lambda group: "was killed by signal 9" in repr(group.exceptions)):
        async with open_stage(tmp_path, ended.append) as stage:
            program = await stage.start("one", "echo", ())
            os.kill(program.pid, signal.SIGKILL)
            while True:
                await program.cue()


async def test_one_that_does_not_listen_is_killed(
    tmp_path: Path, ended: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "STOP_TIMEOUT", 0.1)
    async with open_stage(tmp_path, ended.append) as stage:
        program = await stage.start("one", "stubborn", ())
        assert await program.next_line() == "deaf"
    assert not is_running(program)


async def test_cancelling_the_stage_ends_everything(tmp_path: Path, ended: list[str]) -> None:
    started: list[Program] = []
    with trio.CancelScope() as scope:
        async with open_stage(tmp_path, ended.append) as stage:
            started += [await stage.start(name, "echo", ()) for name in ("one", "two")]
            scope.cancel()
            await started[0].next_line()
    assert not any(map(is_running, started))


async def test_settings_of_the_users_own_do_not_reach_the_demos_programs(
    tmp_path: Path, ended: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTMESH_DB_DSN", "precious.db")
    monkeypatch.setenv("LOG_FORMAT", "json")
    async with open_stage(tmp_path, ended.append) as stage:
        assert await (await stage.start("one", "environment", ())).next_line() == "[]"


@pytest.mark.parametrize(
    ("text", "end"),
    [("", "nothing"), ("\n  \n", "nothing"), ("a\nb\n\n", "b"), (" | x\n +---- \n", "x"), ("é" * 5000, "é" * 300)],
)
def test_the_end_of_a_log(tmp_path: Path, text: str, end: str) -> None:
    log = tmp_path / "log"
    log.write_text(text, encoding="utf-8")
    assert log_end(log) == end


@pytest.mark.parametrize(
    "report",
    [
        Attached("12D3", ["a", "b"], "ws"),
        CircuitOpened("a", "b"),
        Progressed(1, 2, 0.5),
        Downloaded("tcp", 2, 1.5, "00"),
        ToolAnswered("00", 0.1),
    ],
)
def test_what_is_reported_is_what_is_heard(report: Report, capsys: pytest.CaptureFixture[str]) -> None:
    send_report(report)
    assert parse_report(capsys.readouterr().out) == report


@pytest.mark.parametrize("line", ["", "[]", "{}", '{"kind": "Gossip"}', '{"kind": "Attached", "peer": "x"}', "1"])
def test_whatever_else_is_said_is_no_report(line: str) -> None:
    with pytest.raises(RemoteProtocolError, match="no report"):
        parse_report(line)


async def test_a_member_that_says_something_else_fails_the_demo(tmp_path: Path, ended: list[str]) -> None:
    (tmp_path / "early.py").write_text(
        "from agentmesh.demo.reports import *\nsend_report(CircuitOpened('a', 'b'))\ninput()"
    )
    async with open_stage(tmp_path, ended.append) as stage:
        program = await stage.start("one", "early", ())
        with pytest.raises(CheckFailedError, match="did not hold: one says Attached next, not CircuitOpened"):
            await next_report(program, Attached)
