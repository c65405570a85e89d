"""A command's options in a YAML file: what the command line and the environment do not say."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import click
import yaml

MAX_CONFIG_BYTES = 1_000_000

F = TypeVar("F", bound=Callable[..., Any])
ReadSection = Callable[[object], Mapping[str, object]]  # values of options, by long names; ValueError for what is wrong


def config_option(command: F) -> F:
    """Give a command --config: a file with its other options, by their long names. Unknown ones are refused by name."""
    return config_option_with({}, {})(command)


def config_option_with(sections: Mapping[str, ReadSection], refused: Mapping[str, str]) -> Callable[[F], F]:
    """`config_option`, with more that may be in the file.

    Args:
        sections: keys that hold several options, and what reads them.
        refused: why there are no such options, by their names with underscores.
    """
    return click.option(
        "--config",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        envvar="AGENTMESH_CONFIG",
        show_envvar=True,
        is_eager=True,
        expose_value=False,
        callback=partial(_read, sections, refused),
        help="A YAML file with these options, without the dashes; what is given otherwise goes before it.",
    )


def _read(
    sections: Mapping[str, ReadSection],
    refused: Mapping[str, str],
    ctx: click.Context,
    _: click.Parameter,
    path: Path | None,
) -> None:
    if path is None:
        return
    options = {
        name.removeprefix("--"): option
        for option in ctx.command.params
        if isinstance(option, click.Option) and option.name not in ("config", "help")
        for name in option.opts
    }
    given = _load(path)
    found = _read_sections(sections, given, path)
    if unknown := sorted(set(given) - set(options)):
        reasons = [f" ({refused[name]})" for key in unknown if (name := key.replace("-", "_")) in refused]
        raise click.BadParameter(f"{path}: no such option: {', '.join(unknown)}{''.join(reasons)}")
    if twice := sorted(found.keys() & given.keys()):
        raise click.BadParameter(f"{path}: said twice: {', '.join(twice)}")
    found |= {key: _text_of(value, options[key], path, key) for key, value in given.items()}
    ctx.default_map = {**(ctx.default_map or {}), **{options[key].name or key: found[key] for key in found}}


def _read_sections(sections: Mapping[str, ReadSection], given: dict[str, Any], path: Path) -> dict[str, object]:
    """What the sections of a file say. They are taken out of it."""
    found: dict[str, object] = {}
    for name in sections.keys() & given.keys():
        try:
            found |= sections[name](given.pop(name))
        except ValueError as exc:
            raise click.BadParameter(f"{path}: {exc}") from exc
    return found


def _load(path: Path) -> dict[str, Any]:
    try:
        with path.open(encoding="utf-8") as file:
            loaded: object = yaml.safe_load(file.read(MAX_CONFIG_BYTES))
    except OSError as exc:
        raise click.BadParameter(f"{path}: {exc.strerror}") from exc
    except (yaml.YAMLError, UnicodeDecodeError) as exc:
        raise click.BadParameter(f"{path}: no YAML: {' '.join(str(exc).split())}") from exc
    if loaded is None:
        return {}
    if not isinstance(loaded, dict):
        raise click.BadParameter(f"{path}: not a mapping of options")
    return {str(key): value for key, value in cast("dict[object, Any]", loaded).items()}


def _text_of(value: object, option: click.Option, path: Path, key: str) -> object:
    """A value as the command line would have it; of what may be repeated a list, or a mapping of KEY=VALUE."""
    if option.multiple:
        if isinstance(value, Mapping):
            pairs = cast("Mapping[object, object]", value).items()
            return [f"{name}={_scalar(one, path, key)}" for name, one in pairs]
        many = cast("list[object]", value) if isinstance(value, list) else [value]
        return [_scalar(one, path, key) for one in many]
    return value if isinstance(value, bool) else _scalar(value, path, key)


def _scalar(value: object, path: Path, key: str) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise click.BadParameter(f"{path}: {key} is text or a number")
    return str(value)
