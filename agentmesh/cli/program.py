"""How every program runs: until it is told to stop, and with one clear line when it cannot."""

import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click
import trio

from agentmesh.errors import MeshError

STOP_TIMEOUT = 15.0  # seconds that a program may take to stop when it is asked to
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class ProgramGroup(click.Group):
    """A click group whose errors are one line on standard error: exit status 2 for wrong usage, 1 for the rest."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        try:
            status = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        except click.ClickException as exc:
            click.echo(f"{_command_of(exc)}: {' '.join(exc.format_message().split())}", err=True)
            sys.exit(exc.exit_code)
        except click.Abort:
            sys.exit(128 + signal.SIGINT)
        sys.exit(status if isinstance(status, int) else 0)


def _command_of(exc: click.ClickException) -> str:
    context = exc.ctx if isinstance(exc, click.UsageError) else None
    return context.command_path if context else "agentmesh"


def run_program(serve: Callable[[trio.Event], Awaitable[None]], *, stop_timeout: float = STOP_TIMEOUT) -> None:
    """Run `serve(stop)` to its end. SIGINT and SIGTERM set `stop`; a second one, or `stop_timeout`, cancels `serve`.

    Args:
        stop_timeout: seconds that stopping may take.
    Raises:
        click.ClickException: an error that has to do with the world and not with us, in one line.
    """
    with errors_in_one_line():
        trio.run(_run, serve, stop_timeout)


async def _run(serve: Callable[[trio.Event], Awaitable[None]], stop_timeout: float) -> None:
    stop = trio.Event()
    with trio.open_signal_receiver(*SIGNALS) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_wait_for_signals, signals, stop, nursery.cancel_scope, stop_timeout)
            await serve(stop)
            nursery.cancel_scope.cancel()


async def _wait_for_signals(
    signals: AsyncIterator[int], stop: trio.Event, scope: trio.CancelScope, stop_timeout: float
) -> None:
    async for _ in signals:
        if stop.is_set():
            scope.cancel()
        stop.set()
        scope.deadline = min(scope.deadline, trio.current_time() + stop_timeout)


@contextmanager
def errors_in_one_line() -> Generator[None]:
    """Turn errors of the mesh and of the operating system into click's; a bug keeps its traceback."""
    lines: list[str] = []
    try:
        yield
    except* (MeshError, OSError) as group:
        lines = [_line_of(exc) for exc in _leaves(group)]
    if lines:
        raise click.ClickException("; ".join(dict.fromkeys(lines)))


def _leaves(group: BaseExceptionGroup[Exception]) -> Iterator[Exception]:
    for exc in group.exceptions:
        if isinstance(exc, BaseExceptionGroup):
            yield from _leaves(exc)
        else:
            yield exc


def _line_of(exc: Exception) -> str:
    if isinstance(exc, OSError) and exc.strerror:
        return f"{exc.filename}: {exc.strerror}" if exc.filename else exc.strerror
    return " ".join(str(exc).split()) or type(exc).__name__
