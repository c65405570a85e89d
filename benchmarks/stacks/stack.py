"""A stack: the programs that are router, server and caller, and how they are started."""

import secrets
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import attrs

from benchmarks.commands import Answer
from benchmarks.processes import Worker, open_worker
from benchmarks.stacks.certificate import make_certificate

ROUTER: str = "R"
SERVER: str = "B"
CALLER: str = "A"
CROWD: str = "M"
NAMES = {ROUTER: "router", SERVER: "server", CALLER: "caller", CROWD: "crowd"}


def _nothing_missing() -> str | None:
    return None


def _no_version() -> str:
    return ""


@attrs.frozen(kw_only=True)
class Stack:
    """One row of the results.

    Attributes:
        name: on the command line and in files.
        title: for people.
        encryption: between server and caller.
        scenarios: those that make sense for it.
        modules: the program of each role that it has; a stack without a router has none.
        order: in which the roles start, the caller and the crowd last; each is told what those before it said.
        python: what runs them.
        settings: of all of them.
        why_not: what is missing on this machine, in a sentence, or None.
        version: of what is foreign in it.
    """

    name: str
    title: str
    encryption: str
    scenarios: frozenset[str]
    modules: Mapping[str, str] = attrs.field(hash=False)
    order: str = ROUTER + SERVER
    python: Path = Path(sys.executable)
    settings: Mapping[str, object] = attrs.field(factory=dict[str, object], hash=False)
    why_not: Callable[[], str | None] = _nothing_missing
    version: Callable[[], str] = _no_version


@attrs.frozen
class Running:
    """A stack that is up."""

    stack: Stack
    workers: Mapping[str, Worker]

    @property
    def router(self) -> Worker | None:
        return self.workers.get(ROUTER)

    @property
    def caller(self) -> Worker:
        return self.workers[CALLER]

    @property
    def crowd(self) -> Worker:
        return self.workers[CROWD]


@asynccontextmanager
async def open_stack(stack: Stack, roles: str, folder: Path, **settings: object) -> AsyncGenerator[Running]:
    """Run those of these roles that the stack has, in processes of their own, for as long as the block lasts.

    Args:
        folder: for their logs.
        settings: beside the stack's own.
    Raises:
        WorkerError: one of them did not come up.
    """
    told: Answer = {**stack.settings, **settings}
    workers: dict[str, Worker] = {}
    async with AsyncExitStack() as up:
        for role in (role for role in stack.order + CALLER + CROWD if role in roles and role in stack.modules):
            command = (str(stack.python), "-m", stack.modules[role])
            name = f"{NAMES[role]} of {stack.name}"
            worker = await up.enter_async_context(open_worker(name, command, {**told, "role": role}, folder))
            workers[role] = worker
            told[role] = worker.ready
        yield Running(stack, workers)


def secrets_of_a_run() -> Answer:
    """What the workers of one run share: the key that credentials are signed with, and a certificate for TLS."""
    return {"key": secrets.token_hex(32), "certificate": make_certificate()}
