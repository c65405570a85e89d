"""Being a worker: settings and commands come on standard input, answers go to standard output, a JSON object a line.

A worker ends when its standard input does, whoever was at the other end and however that ended. What libraries print
goes to standard error. Needs Trio and nothing else.
"""

import json
import os
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Protocol, cast

import trio

Answer = dict[str, Any]
Command = Callable[..., Awaitable[Answer]]


class Serve(Protocol):
    """Say what others need to know of this worker, then do what it is asked to, until cancelled."""

    async def __call__(self, ready: Answer, commands: Mapping[str, Command] | None = None) -> None: ...


Role = Callable[[Answer, Serve], Awaitable[None]]


def run_worker(roles: Mapping[str, Role]) -> None:
    """Be one of these roles: the first line that comes is its settings, with its name as "role"."""
    answers = os.dup(1)
    os.dup2(2, 1)
    trio.run(_run, roles, answers)


async def _run(roles: Mapping[str, Role], answers: int) -> None:
    def say(answer: Answer) -> None:
        os.write(answers, json.dumps(answer).encode() + b"\n")

    lines_in, lines_out = trio.open_memory_channel[Answer](1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_read_lines, lines_in, nursery.cancel_scope)
        settings = await lines_out.receive()

        async def serve(ready: Answer, commands: Mapping[str, Command] | None = None) -> None:
            say(ready)
            await _answer(lines_out, commands or {}, say)

        try:
            await roles[settings["role"]](settings, serve)
        except Exception as exc:  # told to whoever started this, whatever it was
            say({"error": _describe(exc)})
            raise


async def _read_lines(lines: trio.MemorySendChannel[Answer], scope: trio.CancelScope) -> None:
    pending = b""
    async with trio.lowlevel.FdStream(os.dup(0)) as stdin:
        async for chunk in stdin:
            *whole, pending = (pending + chunk).split(b"\n")
            for line in whole:
                await lines.send(json.loads(line))
    scope.cancel()


async def _answer(lines: AsyncIterator[Answer], commands: Mapping[str, Command], say: Callable[[Answer], None]) -> None:
    async for request in lines:
        try:
            say(await commands[request.pop("do")](**request))
        except Exception as exc:  # whatever a library raises is the answer
            traceback.print_exc()
            say({"error": _describe(exc)})


def _describe(exc: BaseException) -> str:
    while isinstance(exc, BaseExceptionGroup):
        exc = cast("BaseExceptionGroup[BaseException]", exc).exceptions[0]
    return f"{type(exc).__name__}: {exc}"
