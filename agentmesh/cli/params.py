"""Kinds of options that several programs have."""

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from agentmesh.control_plane.bind_address import parse_bind_address
from agentmesh.credentials import ROLES
from agentmesh.logging import FORMATTERS, LEVELS, configure_logging

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}  # seconds

MAX_SECRET_CHARACTERS = 65_536

F = TypeVar("F", bound=Callable[..., Any])


def duration(text: str) -> float:
    """ "90s", "15m", "1h30m", "7d", "250ms", or a plain number of seconds; the value is in seconds."""
    text = text.strip()
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise click.BadParameter(f"{text!r} is no duration; write 90s, 15m, 1h30m or 7d")
    return sum(float(number) * UNITS[unit] for number, unit in parts)


def secret_file(path: str) -> str:
    """A file that holds one line of text; the value is the text, without the space around it."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(MAX_SECRET_CHARACTERS).strip()
    except OSError as exc:
        raise click.BadParameter(f"{path}: {exc.strerror}") from exc
    except UnicodeDecodeError as exc:
        raise click.BadParameter(f"{path}: not text") from exc
    if not text:
        raise click.BadParameter(f"{path}: empty")
    return text


TOKEN_OPTIONS = (
    click.option("--role", type=click.Choice(tuple(ROLES)), required=True, help="What the token's users become."),
    click.option(
        "--max-usages",
        type=click.IntRange(min=1),
        default=1,
        show_default=True,
        help="How many enrollments it is good for.",
    ),
    click.option("--ttl", type=duration, default="24h", show_default=True, help="How long it is good."),
    click.option("--description", default="", help="A note for the list of tokens."),
)


def with_options(command: F, options: Sequence[Callable[[F], F]]) -> F:
    """Give a command these options, the first of them on top of its help."""
    for option in reversed(options):
        command = option(command)
    return command


def token_options(command: F) -> F:
    """Give a command what a new bootstrap token is to be: --role, --max-usages, --ttl, --description."""
    return with_options(command, TOKEN_OPTIONS)


def admin_token_option(help: str) -> Callable[[F], F]:
    """Give a command --admin-token-path; its `admin_token` is the token itself, from there or from the environment."""
    return click.option(
        "--admin-token-path",
        "admin_token",
        type=secret_file,
        metavar="FILE",
        envvar="AGENTMESH_ADMIN_TOKEN_PATH",
        show_envvar=True,
        callback=_or_from_environment,
        help=f"{help} The token itself may be in the environment, in AGENTMESH_ADMIN_TOKEN.",
    )


def _or_from_environment(_: click.Context, __: click.Parameter, token: str | None) -> str | None:
    return token or os.environ.get("AGENTMESH_ADMIN_TOKEN") or None


def comma_separated(_: click.Context, __: click.Parameter, text: str) -> tuple[str, ...]:
    """The parts of "a, b,c", without the empty ones."""
    return tuple(part for part in map(str.strip, text.split(",")) if part)


def data_dir_option(default: str, holds: str) -> Callable[[F], F]:
    """Give a command --data-dir.

    Args:
        default: the folder when it is not said.
        holds: what is kept there, for the help text.
    """
    return click.option(
        "--data-dir",
        type=click.Path(file_okay=False, path_type=Path),
        default=default,
        show_default=True,
        envvar="AGENTMESH_DATA_DIR",
        show_envvar=True,
        help=f"The folder for {holds}; created when it is not there.",
    )


def metrics_option(*more: str) -> Callable[[F], F]:
    """Give a command --metrics-addr.

    Args:
        more: pages that it has besides.
    """
    pages = ", ".join(["/metrics", "/healthz", "/readyz", *more])
    return click.option(
        "--metrics-addr", metavar="HOST:PORT", callback=bind_address, help=f"Serve {pages} here, to whoever asks."
    )


def bind_address(_: click.Context, __: click.Parameter, text: str | None) -> str | None:
    """Refuse now what could not be listened on later."""
    if text is not None:
        try:
            parse_bind_address(text)
        except ValueError as exc:
            raise click.BadParameter(str(exc)) from exc
    return text


def logging_options(command: F) -> F:
    """Give a command --log-level, and set up the logs before it runs. LOG_FORMAT=json makes them JSON lines."""
    return click.option(
        "--log-level",
        type=click.Choice(LEVELS, case_sensitive=False),
        default="info",
        show_default=True,
        envvar="AGENTMESH_LOG_LEVEL",
        show_envvar=True,
        expose_value=False,
        is_eager=True,
        callback=_configure,
        help="Log what is at least this grave, on standard error. LOG_FORMAT=json in the environment gives JSON lines.",
    )(command)


def quieter_logs(level: str) -> None:
    """Log what is at least this grave, unless --log-level or the environment says otherwise."""
    if click.get_current_context().get_parameter_source("log_level") is ParameterSource.DEFAULT:
        configure_logging(level, os.environ.get("LOG_FORMAT", "text"))


def _configure(_: click.Context, __: click.Parameter, level: str) -> None:
    log_format = os.environ.get("LOG_FORMAT", "text")
    if log_format not in FORMATTERS:
        raise click.UsageError(f"LOG_FORMAT is one of {', '.join(FORMATTERS)}, not {log_format!r}")
    configure_logging(level, log_format)
