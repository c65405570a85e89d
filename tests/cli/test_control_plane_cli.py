"""`agentmesh control-plane` and `agentmesh token create`: flags, errors in one line, signals."""

import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import click
import pytest
import trio
from click.testing import CliRunner, Result

from agentmesh.cli import control_plane, main, token
from agentmesh.cli.params import duration
from agentmesh.cli.program import errors_in_one_line
from agentmesh.control_plane.client import open_client
from agentmesh.control_plane.config import Config
from agentmesh.control_plane.oidc.trust import Trust, TrustedIssuer
from agentmesh.control_plane.policy.document import parse_policy
from agentmesh.control_plane.store import open_store
from agentmesh.errors import MeshError
from agentmesh.identity import Identity

PROGRAM = [sys.executable, "-W", "error", "-c", "from agentmesh.cli import main; main()"]
OPEN_POLICY = Path(__file__).resolve().parents[2] / "examples" / "open-policy.yaml"
ADMIN_TOKEN = "an admin token for tests"
TWO_ISSUERS = Trust(issuers=(TrustedIssuer("https://a.example"), TrustedIssuer("https://b.example")))
WORKLOADS = Trust(issuers=(TrustedIssuer("https://c.example", workload=True, email_suffix="@d.example"),))


@pytest.fixture(autouse=True)
def restore_logging() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("agentmesh")
    before = (list(root.handlers), root.level, ours.level)
    yield
    root.handlers[:], root.level, ours.level = before


def run(*arguments: str, **env: str) -> Result:
    return CliRunner().invoke(main, list(arguments), env={"AGENTMESH_ADMIN_TOKEN": "", **env})


class Running:
    """A control plane process, read until it serves."""

    def __init__(self, process: trio.Process) -> None:
        self.process = process
        self.logs: list[dict[str, Any]] = []

    async def wait_serving(self) -> str:
        assert self.process.stderr is not None
        buffer = b""
        while True:
            buffer += bytes(await self.process.stderr.receive_some())
            *lines, buffer = buffer.split(b"\n")
            self.logs += [json.loads(line) for line in lines]
            for entry in self.logs:
                if entry["event"] == "serving":
                    return str(entry["url"])

    async def stop(self, *signals: signal.Signals) -> tuple[int, str]:
        """Exit status, and what it still said."""
        for number in signals:
            self.process.send_signal(number)
        assert self.process.stderr is not None
        said = b"".join([bytes(chunk) async for chunk in self.process.stderr])
        return await self.process.wait(), said.decode()


@asynccontextmanager
async def running(folder: Path, *arguments: str, admin_token: str = ADMIN_TOKEN) -> AsyncGenerator[Running]:
    where = ["--bind-address", "127.0.0.1:0", "--db-dsn", str(folder / "cp.db")]
    env = {**os.environ, "LOG_FORMAT": "json", "AGENTMESH_ADMIN_TOKEN": admin_token}
    command = [*PROGRAM, "control-plane", *where, *arguments]
    process = await trio.lowlevel.open_process(command, stderr=subprocess.PIPE, env=env)
    try:
        with trio.fail_after(60):
            yield Running(process)
    finally:
        process.kill()
        await process.wait()
        assert process.stderr is not None
        await process.stderr.aclose()


async def create_token(*arguments: str) -> str:
    command = [*PROGRAM, "token", "create", "--role", "node", *arguments]
    env = {**os.environ, "AGENTMESH_ADMIN_TOKEN": ADMIN_TOKEN}
    done = await trio.run_process(command, capture_stdout=True, capture_stderr=True, env=env)
    assert b"mesh-bt-" not in done.stderr
    return done.stdout.decode()


async def test_a_mesh_is_entered_with_a_token_from_the_command_line(tmp_path: Path) -> None:
    async with running(tmp_path, "--auto-approve-enrollment") as program:
        url = await program.wait_serving()
        for where in (("--control-plane", url), ("--db-dsn", str(tmp_path / "cp.db"))):
            token = await create_token(*where)
            assert token.count("\n") == 1
            async with open_client(url, Identity.generate()) as client:
                assert (await client.enroll(token.strip())).credential
        status, said = await program.stop(signal.SIGTERM)
        assert (status, "Traceback" in said) == (0, False), said


@pytest.mark.parametrize("signals", [(signal.SIGINT,), (signal.SIGTERM,), (signal.SIGINT, signal.SIGINT)])
async def test_signals_end_it_quickly_and_well(tmp_path: Path, signals: tuple[signal.Signals, ...]) -> None:
    async with running(tmp_path) as program:
        url = await program.wait_serving()
        async with await trio.open_tcp_stream("127.0.0.1", int(url.rpartition(":")[2])):
            began = trio.current_time()
            status, said = await program.stop(*signals)
            assert (status, "Traceback" in said) == (0, False), said
            assert trio.current_time() - began < 5


async def test_what_was_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    identity = Identity.generate()
    async with running(tmp_path, "--auto-approve-enrollment") as program:
        url = await program.wait_serving()
        token = (await create_token("--control-plane", url)).strip()
        async with open_client(url, identity) as client:
            issued = await client.enroll(token)
            program.process.kill()
    async with running(tmp_path) as program, open_client(await program.wait_serving(), identity) as client:
        assert (await client.refresh(issued.credential)).credential != issued.credential
        (key,) = (await client.keys()).keys
        assert key == issued.control_plane_key


async def test_an_operator_is_told_when_nobody_can_approve(tmp_path: Path) -> None:
    async with running(tmp_path, admin_token="") as program:
        await program.wait_serving()
        _, said = await program.stop(signal.SIGTERM)
        assert "nobody can approve enrollments" in said + str(program.logs)


async def test_an_operator_is_told_when_there_is_no_policy(tmp_path: Path) -> None:
    for arguments, told in (((), True), (("--policy-file", str(OPEN_POLICY)), False), ((), False)):
        async with running(tmp_path, *arguments) as program:
            await program.wait_serving()
            _, said = await program.stop(signal.SIGTERM)
            assert ("there is no policy" in said + str(program.logs)) == told


async def test_logs_of_a_life_hold_no_secret_and_no_warning(tmp_path: Path) -> None:
    quiet = ("--auto-approve-enrollment", "--policy-file", str(OPEN_POLICY), "--log-level", "debug")
    async with running(tmp_path, *quiet) as program:
        url = await program.wait_serving()
        token = (await create_token("--control-plane", url)).strip()
        async with open_client(url, Identity.generate()) as client:
            await client.enroll(token)
        status, said = await program.stop(signal.SIGTERM)
    entries = [json.loads(line) for line in said.splitlines()]
    assert status == 0
    assert {"enrolled", "stopping"} <= {entry["event"] for entry in entries}
    assert {entry["level"] for entry in entries} <= {"INFO", "DEBUG"}
    assert token not in said
    assert ADMIN_TOKEN not in said


async def test_a_port_that_is_taken(tmp_path: Path) -> None:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        port = listener.socket.getsockname()[1]
        command = [
            *PROGRAM,
            "control-plane",
            "--bind-address",
            f"127.0.0.1:{port}",
            "--db-dsn",
            str(tmp_path / "cp.db"),
        ]
        done = await trio.run_process(command, capture_stderr=True, check=False)
    message = f"agentmesh: cannot listen on 127.0.0.1:{port}: Address already in use\n"
    assert (done.returncode, done.stderr.decode()) == (1, message)


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (["control-plane", "--bnd-address", "x"], 2, "No such option '--bnd-address'"),
        (["control-plan"], 2, "No such command 'control-plan'"),
        (["control-plane", "--bind-address", "nonsense"], 2, "not host:port: 'nonsense'"),
        (
            ["control-plane", "--db-dsn", "mysql://h/d"],
            2,
            "the database is an SQLite file or a postgresql:// URL, not 'mysql'",
        ),
        (["control-plane", "--db-dsn", "postgresql://u:p@127.0.0.1:1/d"], 1, "the database does not answer"),
        (["control-plane", "--db-dsn", "/missing/x.db"], 1, "/missing/x.db: No such file or directory"),
        (["control-plane", "--admin-token-path", "/missing"], 2, "/missing: No such file or directory"),
        (["control-plane", "--admin-token-path", "/dev/null"], 2, "/dev/null: empty"),
        (["control-plane", "--admin-token-path", sys.executable], 2, f"{sys.executable}: not text"),
        (["control-plane", "--biscuit-ttl", "soon"], 2, "'soon' is no duration"),
        (["control-plane", "--lease-duration", "0s"], 2, "lease_duration is above 0, not 0.0"),
        (["control-plane", "--key-rotation-interval", "1s"], 2, "key_grace_period is not above 100 times"),
        (["control-plane", "--enroll-rate", "0"], 2, "0.0 is not in the range x>0"),
        (["control-plane", "--dht-replication", "21"], 2, "21 is not in the range 1<=x<=20"),
        (["control-plane", "--log-level", "loud"], 2, "'loud' is not one of"),
        (["token", "create", "--role", "king"], 2, "'king' is not one of 'node', 'router'"),
        (["token", "create"], 2, "Missing option '--role'"),
        (["token", "create", "--role", "node"], 2, "say where: --control-plane and --admin-token-path, or --db-dsn"),
        (["token", "create", "--role", "node", "--control-plane", "http://127.0.0.1:1"], 2, "say where"),
        (["token", "create", "--role", "node", "--db-dsn", "/missing/x.db"], 2, "there is no file /missing/x.db"),
        (["token", "create", "--role", "node", "--db-dsn", ":memory:"], 2, "the database is an SQLite file"),
        (["token", "create", "--role", "node", "--max-usages", "0"], 2, "0 is not in the range x>=1"),
    ],
)
def test_wrong_usage_is_one_clear_line(arguments: list[str], status: int, text: str) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stderr.count("\n"), result.stdout) == (status, 1, ""), result.output
    assert text in result.stderr


@pytest.mark.parametrize(
    ("url", "status", "text"),
    [("ftp://x", 2, "not an HTTP URL: 'ftp://x'"), ("http://127.0.0.1:1", 1, "http://127.0.0.1:1 does not answer")],
)
def test_a_control_plane_that_is_not_there_is_one_clear_line(url: str, status: int, text: str) -> None:
    result = run("token", "create", "--role", "node", "--control-plane", url, AGENTMESH_ADMIN_TOKEN="secret")
    assert (result.exit_code, result.stderr.count("\n")) == (status, 1), result.output
    assert text in result.stderr
    assert "secret" not in result.output


def test_a_token_in_the_database(tmp_path: Path) -> None:
    path = str(tmp_path / "cp.db")

    async def create_database() -> None:
        async with open_store(path):
            pass

    trio.run(create_database)
    (tmp_path / "dsn").write_text(f"{path}\n")
    where = ("--db-dsn-path", str(tmp_path / "dsn"))
    result = run("token", "create", "--role", "router", "--max-usages", "7", "--ttl", "2h", *where)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("mesh-bt-")
    assert "mesh:role:router" in result.stderr

    async def stored() -> tuple[str, int, float]:
        async with open_store(path) as store:
            (found,) = await store.tokens()
            return found.role, found.max_usages, found.expires_at - found.created_at

    assert trio.run(stored) == ("mesh:role:router", 7, 7200.0)


@pytest.mark.parametrize("command", [control_plane.command, token.create])
def test_every_option_has_a_help_text(command: click.Command) -> None:
    options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    assert options
    for option in options:
        assert option.help, option.name
        assert option.help.endswith("."), option.help


@pytest.mark.parametrize(
    ("flag", "env", "value", "field", "wanted"),
    [
        ("--bind-address", "AGENTMESH_BIND_ADDRESS", "[::1]:0", "bind_address", "[::1]:0"),
        ("--metrics-addr", "AGENTMESH_METRICS_ADDR", "127.0.0.1:9", "metrics_address", "127.0.0.1:9"),
        ("--db-dsn", "AGENTMESH_DB_DSN", "x.db", "db_dsn", "x.db"),
        ("--db-dsn-path", "AGENTMESH_DB_DSN_PATH", "{file}", "db_dsn", ADMIN_TOKEN),
        ("--biscuit-ttl", "AGENTMESH_BISCUIT_TTL", "90m", "biscuit_ttl", 5400.0),
        ("--key-rotation-interval", "AGENTMESH_KEY_ROTATION_INTERVAL", "12h", "key_rotation_interval", 43200.0),
        ("--key-grace-period", "AGENTMESH_KEY_GRACE_PERIOD", "2h", "key_grace_period", 7200.0),
        ("--mesh-reconnect-interval", "AGENTMESH_MESH_RECONNECT_INTERVAL", "5s", "mesh_reconnect_interval", 5.0),
        ("--enroll-rate", "AGENTMESH_ENROLL_RATE", "0.5", "enroll_rate", 0.5),
        ("--enroll-burst", "AGENTMESH_ENROLL_BURST", "7", "enroll_burst", 7),
        ("--dht-replication", "AGENTMESH_DHT_REPLICATION", "5", "dht_replication", 5),
        ("--node-retention", "AGENTMESH_NODE_RETENTION", "7d", "node_retention", 604800.0),
        ("--lease-duration", "AGENTMESH_LEASE_DURATION", "7d", "lease_duration", 604800.0),
        ("--auto-approve-enrollment", "AGENTMESH_AUTO_APPROVE_ENROLLMENT", "1", "auto_approve_enrollment", True),
        ("--admin-token-path", "AGENTMESH_ADMIN_TOKEN_PATH", "{file}", "admin_token", ADMIN_TOKEN),
        ("--issuer", "AGENTMESH_ISSUER", "https://a.example, https://b.example", "trust", TWO_ISSUERS),
        ("--workload-issuer", "AGENTMESH_WORKLOAD_ISSUER", "https://c.example=@d.example", "trust", WORKLOADS),
        ("--allowed-audiences", "AGENTMESH_ALLOWED_AUDIENCES", "a,b", "trust", Trust(audiences=("a", "b"))),
        ("--require-nonce", "AGENTMESH_REQUIRE_NONCE", "1", "trust", Trust(require_nonce=True)),
        ("--insecure-skip-tls-verify", "AGENTMESH_INSECURE_SKIP_TLS_VERIFY", "1", "insecure_skip_tls_verify", True),
        ("--oidc-client-id", "AGENTMESH_OIDC_CLIENT_ID", "cli", "oidc_client_id", "cli"),
        ("--oidc-session-ttl", "AGENTMESH_OIDC_SESSION_TTL", "12h", "oidc_session_ttl", 43200.0),
        ("--workload-session-ttl", "AGENTMESH_WORKLOAD_SESSION_TTL", "2h", "workload_session_ttl", 7200.0),
        ("--policy-file", "AGENTMESH_POLICY_FILE", "{policy}", "policy", parse_policy({"roles": [{"name": "dev"}]})),
        (None, "AGENTMESH_ADMIN_TOKEN", "from the environment", "admin_token", "from the environment"),
    ],
)
def test_flags_and_environment_reach_the_settings(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    flag: str | None,
    env: str,
    value: str,
    field: str,
    wanted: object,
) -> None:
    seen: list[Config] = []

    def keep_config(serve: partial[None]) -> None:
        seen.append(serve.args[0])

    monkeypatch.setattr(control_plane, "run_program", keep_config)
    file = tmp_path / "token"
    file.write_text(f"\n  {ADMIN_TOKEN}\n")
    (tmp_path / "policy.yaml").write_text("roles: [{name: dev}]")
    value = value.format(file=file, policy=tmp_path / "policy.yaml")
    by_flag = [] if flag is None else [[flag] if value == "1" else [flag, value]]
    for arguments in by_flag:
        assert run("control-plane", *arguments).exit_code == 0
    assert run("control-plane", **{env: value}).exit_code == 0
    assert [getattr(config, field) for config in seen] == [wanted] * len(seen)
    assert len(seen) == len(by_flag) + 1
    assert getattr(Config(), field) != wanted


def test_the_log_format_is_checked() -> None:
    result = run("control-plane", LOG_FORMAT="xml")
    assert (result.exit_code, "LOG_FORMAT is one of text, json, not 'xml'" in result.stderr) == (2, True)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("15m", 900), ("1h30m", 5400), ("7d", 604800), ("250ms", 0.25), ("1.5h", 5400), ("45", 45), ("0", 0)],
)
def test_durations(text: str, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "1x", "1h 30m", "-5s", "5s!", "1h30", "nan", "inf"])
def test_no_durations(text: str) -> None:
    with pytest.raises(Exception, match="is no duration"):
        duration(text)


def test_a_bug_keeps_its_traceback() -> None:
    with pytest.raises(ExceptionGroup) as caught, errors_in_one_line():
        raise ExceptionGroup("", [MeshError("expected"), LookupError("a bug")])
    assert caught.group_contains(LookupError)


def test_errors_of_several_tasks_are_one_line() -> None:
    with pytest.raises(Exception, match="^first; x: Permission denied$"), errors_in_one_line():
        raise ExceptionGroup(
            "", [MeshError("first"), ExceptionGroup("", [PermissionError(13, "Permission denied", "x")])]
        )
