"""How a program gets into the mesh: its options and its start. The router and the node share them."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, TypeVar

import click
import trio

from agentmesh.cli.params import duration, secret_file, with_options
from agentmesh.errors import AddressError
from agentmesh.membership import Enrollment
from agentmesh.runtime.nursery import open_background
from agentmesh.types import Address

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def address(text: str) -> Address:
    """A multiaddr."""
    try:
        return Address.parse(text)
    except AddressError as exc:
        raise click.BadParameter(f"{text!r} is no multiaddr, such as /ip4/0.0.0.0/tcp/4001/ws") from exc


def label(text: str) -> tuple[str, str]:
    """`key=value`."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise click.BadParameter(f"{text!r} is no key=value")
    return key, value


def membership_options(command: F) -> F:
    """Give a command what `enrollment` takes: --control-plane, --bootstrap-token-path, --jwt-path, --label and
    --retry-budget.
    """
    return with_options(
        command,
        (
            click.option(
                "--control-plane",
                default="http://127.0.0.1:8080",
                show_default=True,
                metavar="URL",
                envvar="AGENTMESH_CONTROL_PLANE",
                show_envvar=True,
                help="URL of the control plane of the mesh.",
            ),
            click.option(
                "--bootstrap-token-path",
                "token",
                type=secret_file,
                metavar="FILE",
                envvar="AGENTMESH_BOOTSTRAP_TOKEN_PATH",
                show_envvar=True,
                help="A file with a bootstrap token. Not needed once the data folder holds a credential.",
            ),
            click.option(
                "--jwt-path",
                type=click.Path(path_type=Path),
                metavar="FILE",
                envvar="AGENTMESH_JWT_PATH",
                show_envvar=True,
                help="Instead, a file with a token of an identity provider, read at each registration and renewal.",
            ),
            click.option(
                "--label",
                "labels",
                type=label,
                multiple=True,
                metavar="KEY=VALUE",
                help="A label for the control plane to attest; repeat it for more.",
            ),
            click.option(
                "--retry-budget",
                type=duration,
                default="3m",
                show_default=True,
                help="How long a call of the control plane is tried again while it does not answer.",
            ),
        ),
    )


def router_options(whose: str) -> Callable[[F], F]:
    """The options of which routers a node attaches to, and how many. `whose`: the end of "how many routers"."""

    def add(command: F) -> F:
        return with_options(
            command,
            (
                click.option(
                    "--routers",
                    type=click.IntRange(1),
                    default=2,
                    show_default=True,
                    help=f"How many routers {whose}.",
                ),
                click.option(
                    "--router-selector",
                    type=label,
                    multiple=True,
                    metavar="KEY=VALUE",
                    help="Attach only to routers with this label; repeat it, and a router has to have them all.",
                ),
                click.option(
                    "--router-prefer",
                    type=label,
                    multiple=True,
                    metavar="KEY=VALUE",
                    help="Attach to routers with this label first; repeat it, and the more of them a router has the "
                    "sooner.",
                ),
            ),
        )

    return add


def enrollment(
    control_plane: str,
    token: str | None,
    jwt_path: Path | None,
    labels: tuple[tuple[str, str], ...],
    retry_budget: float,
) -> Enrollment:
    """What `membership_options` gave. Raises click.UsageError."""
    try:
        return Enrollment(
            control_plane=control_plane,
            token=token,
            jwt_path=jwt_path,
            labels=dict(labels),
            retry_budget=retry_budget,
        )
    except ValueError as exc:
        raise click.UsageError(str(exc), click.get_current_context()) from exc


async def run_member(
    opening: AbstractAsyncContextManager[T], stop: trio.Event, serve: Callable[[T], Awaitable[None]]
) -> None:
    """`async with opening as member: await serve(member)`; `stop` cuts the opening short.

    Opening waits as long as it takes for the control plane to answer, and whoever wants it to stop does not.
    """
    with trio.CancelScope() as scope:
        async with open_background() as nursery:
            opened = trio.Event()
            nursery.start_soon(_give_up, stop, opened, scope)
            async with opening as member:
                opened.set()
                await serve(member)


async def _give_up(stop: trio.Event, opened: trio.Event, scope: trio.CancelScope) -> None:
    await stop.wait()
    if not opened.is_set():
        scope.cancel()
