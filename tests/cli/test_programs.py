"""The list of programs: each in its own words, and none imports what it does not need."""

import subprocess
import sys

import click
import pytest

from agentmesh.cli import main
from agentmesh.cli.programs import PROGRAMS

IMPORTED = (
    "import importlib, sys; importlib.import_module(sys.argv[1]); print(*{name.split('.')[0] for name in sys.modules})"
)


def imported_by(module: str) -> set[str]:
    return set(
        subprocess.run(
            [sys.executable, "-c", IMPORTED, module], check=True, capture_output=True, text=True
        ).stdout.split()
    )


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_listed_in_its_own_words(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    assert command.get_short_help_str(limit=100) == PROGRAMS[name]


def test_programs_are_listed_without_importing_them() -> None:
    assert not imported_by("agentmesh.cli.programs") & {"sqlalchemy", "cryptography", "httpx"}


@pytest.mark.parametrize("name", ["node", "router"])
def test_members_do_without_a_database(name: str) -> None:
    assert not imported_by(f"agentmesh.cli.{name}") & {"sqlalchemy", "alembic"}
