"""docs/control-plane.md and docs/enrollment.md say what there is: flags, defaults, metrics, limits, commands."""

import re
import shlex
from pathlib import Path
from typing import Any, cast

import click
import pytest

from agentmesh.cli import admin, control_plane, main
from tests.control_plane.test_metrics import NAMES
from tests.test_security_doc import default_of, written

DOCS = Path(__file__).resolve().parent.parent / "docs"
TEXT = (DOCS / "control-plane.md").read_text()
BOTH = TEXT + (DOCS / "enrollment.md").read_text()
SECTIONS = dict(part.split("\n", 1) for part in TEXT.split("\n## ")[1:])


def rows_of(section: str, pattern: str) -> list[Any]:
    """What a pattern finds in the rows of a section's table; there is none that it does not fit."""
    lines = [line for line in SECTIONS[section].splitlines() if line.startswith("| `")][section == "Administration" :]
    found = [re.match(pattern, line) for line in lines]
    assert None not in found, lines[found.index(None)]
    return [match.groups() for match in found if match]


FLAGS: list[tuple[str, str]] = rows_of("Settings", r"\| `(--[\w-]+)` \| (.*?) \|")
METRICS: list[tuple[str, str]] = rows_of("Metrics", r"\| `([a-z_]+)` \| ([^|]*)\|")
LIMITS: list[tuple[str, str, str]] = rows_of("Limits", r"\| `([A-Z_]+)` \| `([\w.]+)` \| (\S+) \|")
ADMIN: list[tuple[str]] = rows_of("Administration", r"\| `([a-z ]+)` \| [^|]+ \|$")
TYPED = re.findall(r"^    agentmesh (.*)$", BOTH.replace("\\\n", " "), re.MULTILINE)


def default_shown(option: click.Option) -> str:
    """As the document writes it."""
    if isinstance(option.show_default, str):
        return option.show_default
    if option.is_flag:
        return "off"
    return str(option.default) if isinstance(option.default, str | int | float) else "–"


def test_every_flag_is_there_with_its_default() -> None:
    options = [option for option in control_plane.command.params if isinstance(option, click.Option)]
    assert dict(FLAGS) == {option.opts[0]: default_shown(option) for option in options}


def test_every_metric_is_there_with_its_labels() -> None:
    assert {name: tuple(re.findall(r"`(\w+)`", labels)) for name, labels in METRICS} == dict(NAMES)


@pytest.mark.parametrize(("name", "where", "default"), LIMITS)
def test_a_limit_is_as_the_document_says(name: str, where: str, default: str) -> None:
    assert written(default_of(name, where)) == default


def leaves(group: click.Group, before: str = "") -> set[str]:
    """The commands that do something, by the words that call them."""
    found = set[str]()
    for name, command in inner(group).items():
        found |= leaves(command, f"{before}{name} ") if isinstance(command, click.Group) else {before + name}
    return found


def test_every_command_of_admins_is_there() -> None:
    assert {name for (name,) in ADMIN} == leaves(admin.command)


@pytest.mark.parametrize("line", TYPED)
def test_a_command_is_there(line: str) -> None:
    words, command = shlex.split(line.partition(" > ")[0]), cast(click.Command, main)
    while isinstance(command, click.Group):
        command, words = inner(command)[words[0]], words[1:]
    assert {word for word in words if word.startswith("--")} <= flags_of(command)


def test_every_flag_that_is_named_is_some_programs() -> None:
    assert set(re.findall(r"`(--[\w-]+)", BOTH)) - {"--help"} <= flags_of(main)


def inner(group: click.Group) -> dict[str, click.Command]:
    context = click.Context(group)
    found = {name: group.get_command(context, name) for name in group.list_commands(context)}
    return {name: command for name, command in found.items() if command is not None}


def flags_of(command: click.Command) -> set[str]:
    """Its own, and those of the commands in it."""
    within = inner(command).values() if isinstance(command, click.Group) else ()
    return {name for option in command.params for name in option.opts}.union(*map(flags_of, within))


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\((?!https?:)([^)#]+)", BOTH))))
def test_a_link_leads_somewhere(link: str) -> None:
    assert (DOCS / link).exists()
