"""All processes of members: started, heard, added up, and none left behind."""

import json
import logging
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import attrs
import trio

from agentmesh.bench.limits import SPARE_FILES, Needs, check_limits, raise_files, read_limits
from agentmesh.bench.member import Plan
from agentmesh.bench.report import JoinReport
from agentmesh.bench.tally import Tally
from agentmesh.bench.worker import LEAVE_TIMEOUT, said_in
from agentmesh.errors import MeshError
from agentmesh.runtime.nursery import open_background

logger = logging.getLogger(__name__)

MEMBERS_PER_PROCESS = 500
FILES_PER_MEMBER = 3  # beside one for each router: the control plane, and what is dialled anew meanwhile
START_TIMEOUT = 120.0  # seconds until a process is up; long, as the machine may be busy
LOOK_INTERVAL = 5.0  # seconds between two lines about how far it is
MAX_LOG_CHARACTERS = 300


class WorkerError(MeshError):
    """A process of members did not come up."""


@attrs.frozen
class JoinSettings:
    """What is to be done.

    Attributes:
        plan: for all members.
        hold: seconds that they stay once all are there.
        processes: how many to spread them over; 0: one for each MEMBERS_PER_PROCESS.
        resident: called when all are there and the hold begins.
    """

    plan: Plan
    hold: float = 0.0
    processes: int = 0
    resident: Callable[[], object] = lambda: None

    @property
    def spread(self) -> int:
        """Over how many processes."""
        return min(self.processes or math.ceil(self.plan.count / MEMBERS_PER_PROCESS), self.plan.count)


def needs_of(settings: JoinSettings) -> Needs:
    """Of the kernel of this machine; what routers need is theirs."""
    each = FILES_PER_MEMBER + settings.plan.routers
    in_one = math.ceil(settings.plan.count / settings.spread)
    return Needs(
        files=in_one * each + SPARE_FILES,
        all_files=settings.plan.count * each + SPARE_FILES * settings.spread,
        ports=settings.plan.count,
    )


async def join(settings: JoinSettings, stop: trio.Event) -> JoinReport:
    """Have members join, hold, and leave; report what was reached, also when `stop` cuts it short.

    Raises:
        KernelLimitError: there cannot be so many here.
        WorkerError: a process did not come up.
    Cancellation: safe; every process is ended.
    """
    check_limits(needs_of(settings), read_limits())
    raise_files()
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="agentmesh-bench-")))
        workers = [_Worker(number, settings.spread, folder) for number in range(settings.spread)]
        await stack.enter_async_context(_opened(workers))
        run = _Run(attrs.evolve(settings, plan=attrs.evolve(settings.plan, began=time.monotonic())), workers)
        return await run.report_at_end(stop)


class _Run:
    def __init__(self, settings: JoinSettings, workers: Sequence["_Worker"]) -> None:
        self._settings, self._workers = settings, workers
        plan = settings.plan
        self._tally = Tally(plan.count, plan.service is not None, plan.began)
        self._heard = trio.Event()

    async def report_at_end(self, stop: trio.Event) -> JoinReport:
        async with open_background() as nursery:
            for worker in self._workers:
                nursery.start_soon(self._listen, worker)
            nursery.start_soon(self._say_how_far)
            with trio.CancelScope() as scope:
                nursery.start_soon(_cancel_at, stop, scope)
                for worker in self._workers:
                    await worker.send(self._settings.plan)
                await self._until_settled()
                if self._tally.completed:
                    self._tally.begin_hold(time.monotonic())
                    self._settings.resident()
                    await trio.sleep(self._settings.hold)
            return self._tally.report(time.monotonic())

    async def _until_settled(self) -> None:
        while not self._tally.is_settled:
            self._heard = trio.Event()
            await self._heard.wait()
            await trio.sleep(0.05)  # and what else is said meanwhile: looking at all of them is dear

    async def _listen(self, worker: "_Worker") -> None:
        while (lines := await worker.next_lines()) is not None:
            for line in lines:
                self._tally.hear(said_in(line))
            self._heard.set()
        self._tally.process_ended(worker.members(self._settings.plan), time.monotonic(), worker.last_words())
        self._heard.set()

    async def _say_how_far(self) -> None:
        while True:
            await trio.sleep(LOOK_INTERVAL)
            tally, count = self._tally, self._settings.plan.count
            logger.info("members", extra={"ready": tally.ready, "gone": tally.gone, "of": count})


async def _cancel_at(stop: trio.Event, scope: trio.CancelScope) -> None:
    await stop.wait()
    scope.cancel()


class _Worker:
    """One process."""

    def __init__(self, number: int, of: int, folder: Path) -> None:
        self._number, self._of = number, of
        self._log = folder / f"{number}.log"
        self._process: trio.Process | None = None
        self._pending = b""

    async def start(self) -> None:
        """Raises WorkerError."""
        with self._log.open("wb") as log:
            self._process = await trio.lowlevel.open_process(
                [sys.executable, "-m", "agentmesh.bench"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for us, and we end it
                env=_environment(),
            )
        with trio.move_on_after(START_TIMEOUT):
            if await self._receive():
                return
        raise WorkerError(f"a process of members did not come up: {self.last_words()}")

    def members(self, plan: Plan) -> range:
        """The numbers of its members."""
        return attrs.evolve(plan, first=self._number, step=self._of).numbers

    async def send(self, plan: Plan) -> None:
        """Its plan. A process that is gone does not hear it, and that is found out where it is listened to."""
        assert self._process is not None
        assert self._process.stdin is not None
        told = attrs.asdict(attrs.evolve(plan, first=self._number, step=self._of))
        try:
            await self._process.stdin.send_all(json.dumps(told).encode() + b"\n")
        except trio.BrokenResourceError:
            logger.warning("a process of members is gone", extra={"process": self._number})

    async def next_lines(self) -> list[bytes] | None:
        """What its members say next; None when it has ended."""
        if not (data := await self._receive()):
            return None
        *whole, self._pending = (self._pending + data).split(b"\n")
        return [line for line in whole if line]

    def last_words(self) -> str:
        text = self._log.read_text(errors="replace").strip()
        return f"the process ended: {text[-MAX_LOG_CHARACTERS:]}" if text else "the process ended"

    async def end(self) -> None:
        """It ends by itself when its input does; one that does not is killed."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        await self._process.stdin.aclose()
        with trio.move_on_after(LEAVE_TIMEOUT + 1):
            while await self._receive():
                pass
            await self._process.wait()
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        await self._process.stdout.aclose()

    async def _receive(self) -> bytes:
        assert self._process is not None
        assert self._process.stdout is not None
        return bytes(await self._process.stdout.receive_some())


@asynccontextmanager
async def _opened(workers: Sequence[_Worker]) -> AsyncGenerator[None]:
    """All of them are up; and gone when the block ends, however that was."""
    try:
        async with trio.open_nursery() as nursery:
            for worker in workers:
                nursery.start_soon(worker.start)
        yield
    finally:
        with trio.CancelScope(shield=True):  # bounded: each has LEAVE_TIMEOUT
            async with trio.open_nursery() as nursery:
                for worker in workers:
                    nursery.start_soon(worker.end)


def _environment() -> dict[str, str]:
    """Ours, without what would set up an agentmesh of the user's own."""
    return {name: value for name, value in os.environ.items() if not name.startswith("AGENTMESH_")}
