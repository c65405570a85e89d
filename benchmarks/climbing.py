"""A mesh of agentmesh's own programs that more and more members join, as `benchmarks.ladder` has it."""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import attrs
import trio

from agentmesh.bench.join import FILES_PER_MEMBER
from agentmesh.bench.limits import SPARE_FILES, Needs
from agentmesh.bench.report import JoinReport, read_report
from agentmesh.control_plane.store import open_store
from agentmesh.control_plane.tokens import create_token
from benchmarks.processes import WorkerError, cpu_seconds, resident_bytes
from benchmarks.programs import Program, open_program, read_metrics, value_of
from benchmarks.steps import Process, RouterState, Snapshot, Step

FOREVER = "30d"  # members stay until the ladder is left
POLICY = Path(__file__).resolve().parent.parent / "examples" / "open-policy.yaml"
SERVICE = "http/ladder"
DATABASE = "control-plane.db"
TOKEN_TTL = 7 * 86400.0
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
MARKER_LOOK = 0.1  # seconds between two looks at whether a step is there
SPARE_TOKENS = 20  # usages beside the members', and a tenth of these


@attrs.frozen
class Settings:
    """What is run. Times in seconds, rates per second."""

    members: int
    step: int
    routers: int
    wanted: int
    high_watermark: int
    ramp: float
    settle: float
    enroll_rate: float
    join_timeout: float
    calls: bool

    @property
    def counts(self) -> list[int]:
        """Members of each step."""
        whole, rest = divmod(self.members, self.step)
        return [self.step] * whole + [rest] * (rest > 0)

    def needs(self) -> Needs:
        """Of the kernel. On loopback there are no neighbours."""
        sessions = math.ceil(1.2 * self.members * self.wanted / self.routers)
        each = FILES_PER_MEMBER + self.wanted
        return Needs(
            files=max(3 * sessions, min(self.step, 500) * each) + SPARE_FILES,
            all_files=self.members * (each + 3 * self.wanted) + SPARE_FILES * (self.routers + len(self.counts)),
            ports=self.members,
        )


class Mesh:
    """A mesh of programs, and those of its members that have joined so far."""

    def __init__(self, settings: Settings, folder: Path, stack: AsyncExitStack) -> None:
        self._settings, self._folder, self._stack = settings, folder, stack
        self._crews: list[Program] = []
        self._urls: list[str] = []
        self._routers: list[Program] = []

    async def start(self, nursery: trio.Nursery) -> None:
        """The control plane, the routers, and a member that serves. `nursery` has what that one serves."""
        rates = ("--enroll-rate", str(self._settings.enroll_rate), "--enroll-burst", str(self._settings.step))
        bind = ("--bind-address", "127.0.0.1:0", "--auto-approve-enrollment", "--policy-file", str(POLICY))
        self._plane = await self._run("control plane", "control-plane", *bind, *rates)
        self._plane_url = await self._plane.said(r" serving .*url=(\S+)")
        for role in ("router", "node"):
            await self._make_token(role)
        for number in range(self._settings.routers):
            name = f"router {number}"
            listen = ("--listen", "/ip4/127.0.0.1/tcp/0", "--metrics-addr", "127.0.0.1:0", "--data-dir", name)
            high = ("--high-watermark", str(self._settings.high_watermark))
            self._routers.append(await self._run(name, "router", *self._join("router"), *listen, *high))
        self._urls = [await router.said(r" metrics .*url=(\S+)") for router in self._routers]
        for router in self._routers:
            await router.said(r" serving peer=(\S+)")
        if self._settings.calls:
            (backend,) = await nursery.start(partial(trio.serve_tcp, _answer, 0, host="127.0.0.1"))
            url = f"http://127.0.0.1:{backend.socket.getsockname()[1]}"
            provider = await self._run("provider", "node", *self._join("node"), "--service", f"{SERVICE}={url}")
            await provider.said(r" serving peer=(\S+)")

    async def climb(self, number: int, resident: int, count: int) -> Step:
        """So many members more; steps are numbered from 1. Raises WorkerError when they do not come."""
        before = await self.look()
        marker, name = self._folder / f"resident-{number}", f"step {number}"
        labels = ("--label", f"step={number}", "--label", f"resident_before={resident}")
        more = ("--ramp", str(self._settings.ramp), "--routers", str(self._settings.wanted), "--hold", FOREVER)
        call = ("--service", SERVICE) if self._settings.calls else ()
        out = ("--resident-marker", str(marker), "--out", str(self._report_path(number)))
        late = ("--join-timeout", f"{self._settings.join_timeout:.0f}s")
        crew = await self._run(
            name, "bench", "join", *self._join("node"), "--count", str(count), *labels, *more, *call, *out, *late
        )
        self._crews.append(crew)
        while not marker.exists():  # noqa: ASYNC110 - another process makes it
            if crew.has_ended:
                raise WorkerError(f"{name}: no member came; {crew.log.read_text()[-300:]}")
            await trio.sleep(MARKER_LOOK)
        await trio.sleep(self._settings.settle)
        return Step(number, resident + count, before, await self.look())

    async def leave(self) -> list[JoinReport]:
        """Have all members leave; what those of each step say."""
        async with trio.open_nursery() as nursery:
            for crew in self._crews:
                nursery.start_soon(crew.stop)
        paths = [self._report_path(number) for number, _ in enumerate(self._crews, 1)]
        return [read_report(path) for path in paths if path.exists()]

    def _report_path(self, number: int) -> Path:
        return self._folder / f"step-{number}.json"

    async def look(self) -> Snapshot:
        """The mesh as it is now."""
        plane = await read_metrics(self._plane_url)
        states = [
            RouterState.of(_process([router.pid]), await read_metrics(url))
            for router, url in zip(self._routers, self._urls, strict=True)
        ]
        return Snapshot(
            control_plane=_process([self._plane.pid]),
            routers_active=int(value_of(plane, "agentmesh_control_plane_routers_active")),
            routers=tuple(states),
            members=_process([pid for crew in self._crews for pid in _with_children(crew.pid)]),
        )

    async def _run(self, name: str, *arguments: str) -> Program:
        return await self._stack.enter_async_context(open_program(name, arguments, self._folder))

    def _join(self, role: str) -> tuple[str, ...]:
        return ("--control-plane", self._plane_url, "--bootstrap-token-path", str(self._folder / f"{role}-token"))

    async def _make_token(self, role: str) -> None:
        usages = self._settings.members + self._settings.members // 10 + SPARE_TOKENS
        async with open_store(str(self._folder / DATABASE)) as store:
            value, _ = await create_token(
                store, time.time, role=role, max_usages=usages, ttl=TOKEN_TTL, description="ladder"
            )
        (self._folder / f"{role}-token").write_text(value)


async def _answer(stream: trio.SocketStream) -> None:
    """An HTTP server of one answer."""
    try:
        await stream.receive_some()
        await stream.send_all(ANSWER)
    except trio.BrokenResourceError:
        return  # whoever asked has left


def _process(pids: Sequence[int]) -> Process:
    """What these use together."""
    return Process(sum(map(resident_bytes, pids)), sum(map(cpu_seconds, pids)))


def _with_children(pid: int) -> Iterator[int]:
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        yield from map(int, children.read_text().split())
