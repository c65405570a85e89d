"""ssh, scp, sftp and curl through an agent, every one of them a real program: the ways of docs/forward.md."""

import hashlib
import shlex
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import attrs
import pytest
import trio

from agentmesh.runtime.nursery import open_background
from tests.programs.programs import MARK, PATIENCE, Machine, Running
from tests.servers.openssh import Sshd, run_sshd
from tests.servers.server import environment, find_program

AGENT = "devbox"
MIB = 1024 * 1024
BODY = hashlib.shake_128(b"body").digest(8 * MIB)
LONG = 60.0  # seconds for one program to do its work; far more than it takes


async def run(command: list[str | Path], *, input: bytes = b"") -> bytes:
    """What a program prints that ends well, and complains of nothing."""
    with trio.fail_after(LONG):
        done = await trio.run_process(
            command, stdin=input, capture_stdout=True, capture_stderr=True, check=False, env=environment()
        )
    assert (done.returncode, done.stderr) == (0, b""), command
    return bytes(done.stdout)


async def serve_http(stream: trio.SocketStream) -> None:
    """Answer a GET with BODY, and anything else with the hash of what was sent."""
    with suppress(trio.BrokenResourceError):
        head = b""
        while b"\r\n\r\n" not in head:
            head += await stream.receive_some()
        head, _, body = head.partition(b"\r\n\r\n")
        answer = BODY
        if not head.startswith(b"GET "):
            while len(body) < len(BODY):
                body += await stream.receive_some(MIB)
            answer = hashlib.sha256(body).hexdigest().encode()
        await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(answer), answer))
        await stream.send_eof()


@attrs.frozen
class World:
    """A mesh with one agent, which reaches this machine's ports.

    Attributes:
        join: how a member gets in.
        http: a port of a server that the agent reaches.
    """

    machine: Machine
    join: tuple[str, ...]
    http: int
    agent: Running

    @asynccontextmanager
    async def forward(self, *arguments: str) -> AsyncGenerator[Running]:
        async with self.machine.running("forward", AGENT, *arguments, *self.join) as running:
            await running.said(" forwarding ")
            yield running

    def forward_command(self, *arguments: str) -> str:
        """As a line of a shell."""
        parts = [sys.executable, "-W", "error", "-m", "agentmesh.cli", "forward", AGENT, *arguments, *self.join]
        return f"env -u LD_LIBRARY_PATH {MARK}={self.machine.mark} {shlex.join(parts)}"


async def port_of(running: Running, kind: str = "forward") -> int:
    return int((await running.said(rf" listening .*kind={kind} address=127.0.0.1:(\d+)"))[1])


@asynccontextmanager
async def open_world(machine: Machine) -> AsyncGenerator[World]:
    async with open_background() as nursery, AsyncExitStack() as stack:
        mesh = await stack.enter_async_context(machine.running("one", "--bind-address", "127.0.0.1:0"))
        url = (await mesh.said(r"control plane  (\S+)"))[1]
        await mesh.said("Ctrl-C stops it")
        join = ("--control-plane", url, "--bootstrap-token-path", str(machine.folder / "mesh" / "join-token"))
        (listener,) = await nursery.start(partial(trio.serve_tcp, serve_http, 0, host="127.0.0.1"))
        allow = ("--allow", "tcp://127.0.0.1/32:1-65535")
        agent = await stack.enter_async_context(
            machine.running("agent", "run", *join, "--data-dir", "agent", "--agent-id", AGENT, *allow)
        )
        await agent.said(" connected ")
        yield World(machine, join, listener.socket.getsockname()[1], agent)
    await machine.none_left()


@pytest.mark.timeout(300)  # it starts thirty programs
async def test_programs_through_an_agent(machine: Machine, tmp_path: Path) -> None:
    """One mesh for all of it: what takes time is to start one."""
    async with open_world(machine) as world:
        await use_ssh(world, tmp_path)
        await use_curl(world, tmp_path)
        await do_wrong(world)


async def use_ssh(world: World, tmp_path: Path) -> None:
    async with run_sshd() as sshd:
        async with world.forward(f"tcp://127.0.0.1:{sshd.port}", "--listen", "127.0.0.1:0") as forward:
            port = f"Port={await port_of(forward)}"
            await copy_files(sshd, tmp_path, [port], "127.0.0.1")
        command = world.forward_command("tcp://%h:%p", "--stdio", "--data-dir", str(tmp_path / "stdio"))
        options = [f"ProxyCommand={command}", f"Port={sshd.port}"]
        ssh = sshd.command("ssh", "127.0.0.1", "cat", options=options)
        assert await run(ssh, input=BODY) == BODY  # its input ends, and only then its output


async def copy_files(sshd: Sshd, folder: Path, options: list[str], host: str) -> None:
    """A command, its exit status, a file there by scp and back by sftp."""
    assert await run(sshd.command("ssh", host, "echo", "hello;", "pwd", options=options)) == (
        f"hello\n{sshd.home}\n".encode()
    )
    with trio.fail_after(LONG):
        failed = await trio.run_process(
            sshd.command("ssh", host, "exit", "7", options=options), env=environment(), check=False
        )
    assert failed.returncode == 7
    (folder / "there").write_bytes(BODY)
    await run(sshd.command("scp", "-q", folder / "there", f"{host}:copied", options=options))
    assert (sshd.home / "copied").read_bytes() == BODY
    await run(sshd.command("sftp", "-q", f"{host}:copied", folder / "back", options=options))
    assert (folder / "back").read_bytes() == BODY


async def use_curl(world: World, tmp_path: Path) -> None:
    (tmp_path / "body").write_bytes(BODY)
    (tmp_path / "password").touch(0o600)
    (tmp_path / "password").write_text("me:secret\n")
    proxies = ("--socks", "127.0.0.1:0", "--http-proxy", "127.0.0.1:0", "--password-path", "password")
    async with world.forward(*proxies) as forward:
        socks, http = await port_of(forward, "socks"), await port_of(forward, "http_proxy")
        curl: list[str | Path] = [find_program("curl"), "-q", "--silent", "--show-error", "--fail"]
        ways: list[list[str | Path]] = [
            [*curl, "--proxy", f"socks5h://me:secret@127.0.0.1:{socks}"],
            [*curl, "--proxytunnel", "--proxy", f"http://me:secret@127.0.0.1:{http}"],
        ]
        url = f"http://127.0.0.1:{world.http}/"
        for way in ways:
            assert await run([*way, url]) == BODY
            sent = await run([*way, "--data-binary", f"@{tmp_path / 'body'}", url])
            assert sent.decode() == hashlib.sha256(BODY).hexdigest()
        forbidden = ["--write-out", "%{http_connect}", "http://192.0.2.1/"]
        with trio.fail_after(LONG):
            refused = await trio.run_process(
                [*ways[1], *forbidden], env=environment(), capture_stdout=True, stderr=subprocess.DEVNULL, check=False
            )
        assert refused.returncode
        assert refused.stdout == b"403"
        await forward.said(r"no tunnel .*the rules of the agent do not allow it \(policy: forbidden\)")
        assert "secret" not in forward.text
        assert await forward.told(signal.SIGINT) == 0


async def do_wrong(world: World) -> None:
    """Each time one line says what is wrong."""
    target = f"tcp://127.0.0.1:{world.http}"
    async with world.forward(target, "--listen", "127.0.0.1:0") as forward:
        port = await port_of(forward)
        again = ("forward", AGENT, target, "--listen", f"127.0.0.1:{port}", "--data-dir", "again", *world.join)
        async with world.machine.running(*again) as second:
            assert await second.ended() == 1
            line = f"agentmesh: cannot listen on 127.0.0.1:{port}: Address already in use\n"
            assert second.err.read_text().endswith(line)
        for agent, reason in (("nobody", "selection: agent_offline"), (AGENT, "connect: connection_refused")):
            await no_tunnel(world, agent, reason)
        await stop_in_the_middle(forward, port)


async def no_tunnel(world: World, agent: str, reason: str) -> None:
    stdio = ("forward", agent, "tcp://127.0.0.1:1", "--stdio", "--data-dir", "stdio", *world.join)
    async with world.machine.running(*stdio) as wrong:
        assert await wrong.ended() == 1
        assert wrong.out.read_text() == ""
        [line] = wrong.err.read_text().splitlines()
        assert line.startswith(f"agentmesh: no tunnel to tcp://127.0.0.1:1 by agent '{agent}': ")
        assert reason in line


async def stop_in_the_middle(forward: Running, port: int) -> None:
    """A connection that does not end by itself has a moment, and is cut: that looks like no end."""
    async with await trio.open_tcp_stream("127.0.0.1", port) as client:
        await client.send_all(b"POST / HTTP/1.1\r\n\r\n")
        assert await forward.told(signal.SIGTERM) == 0
        with trio.fail_after(PATIENCE), pytest.raises(trio.BrokenResourceError):
            await client.receive_some()
