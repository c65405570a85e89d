"""A process of members: `python -m agentmesh.bench`.

The plan comes as a line of JSON on standard input, and what members say goes out on standard output, a line each. It
ends when its standard input does, however whoever started it ended.
"""

import json
import logging
import os
import time
from contextlib import suppress
from functools import partial

import attrs
import trio

from agentmesh.bench.member import Plan, live
from agentmesh.bench.tally import News, Said

MAX_PLAN_BYTES = 1_000_000
LEAVE_TIMEOUT = 10.0  # seconds that its members have to leave the mesh
UP = b"\n"  # what it says first: it is there, and waits for its plan


@attrs.define
class Voice:
    """Carries what one member says to whoever started this process."""

    member: int
    out: int
    has_ended: bool = False

    def __call__(self, news: News, took: float = 0.0, why: str = "") -> None:
        if not self.has_ended:
            self.has_ended = news is News.ENDED
            with suppress(BrokenPipeError):  # nobody listens any more, and all of us are about to end
                os.write(self.out, line_of(Said(self.member, news, time.monotonic(), took, why)))


def line_of(said: Said) -> bytes:
    """What a member says, as it is sent; shorter than what a pipe takes at once."""
    why = said.why[:1000]
    return json.dumps([said.member, said.news.value, said.at, said.took, why]).encode("ascii", "replace") + b"\n"


def said_in(line: bytes) -> Said:
    member, news, at, took, why = json.loads(line)
    return Said(member, News(news), at, took, why)


async def run(stdin: trio.abc.ReceiveStream, out: int) -> None:
    """Members by the plan that comes on `stdin`, until that ends."""
    os.write(out, UP)
    plan = Plan(**json.loads(await _line(stdin)))
    with trio.CancelScope() as left:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_start_all, plan, out)
            while await stdin.receive_some():
                pass
            left.deadline = trio.current_time() + LEAVE_TIMEOUT
            nursery.cancel_scope.cancel()


async def _line(stdin: trio.abc.ReceiveStream) -> bytes:
    line = b""
    while not line.endswith(b"\n") and len(line) < MAX_PLAN_BYTES:
        if not (data := await stdin.receive_some()):
            break
        line += data
    return line


async def _start_all(plan: Plan, out: int) -> None:
    async with trio.open_nursery() as nursery:
        for number in plan.numbers:
            await trio.sleep(max(plan.starts_at(number) - time.monotonic(), 0.0))
            nursery.start_soon(live, plan, Voice(number, out), time.monotonic)


def main() -> None:
    """Be such a process."""
    logging.getLogger("agentmesh").setLevel(logging.ERROR)  # what befalls members is said, not logged
    out = os.dup(1)
    os.dup2(2, 1)  # whatever libraries print
    trio.run(partial(run, trio.lowlevel.FdStream(os.dup(0)), out))
