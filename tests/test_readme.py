"""What README.md tells people to type is there: commands with their options, files, Python that compiles."""

import ast
import re
import shlex
from pathlib import Path

import click
import pytest

from agentmesh.cli import main

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "README.md").read_text()
PYTHON = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
# indented lines, those joined that end in a backslash
TYPED = re.findall(r"^    (agentmesh .*|python .*|make .*)$", TEXT.replace("\\\n", " "), re.MULTILINE)
COMMANDS = [shlex.split(line, comments=True) for line in TYPED]


def named(program: str) -> list[list[str]]:
    return [words[1:] for words in COMMANDS if words[0] == program]


@pytest.mark.parametrize("arguments", named("agentmesh"), ids=" ".join)
def test_a_command_of_agentmesh_has_these_options(arguments: list[str]) -> None:
    command: click.Command = main
    while arguments and isinstance(command, click.Group):
        chosen = command.get_command(click.Context(command), arguments[0])
        assert chosen is not None
        command, arguments = chosen, arguments[1:]
    known = {name for option in command.params for name in option.opts}
    assert {word for word in arguments if word.startswith("--")} <= known


@pytest.mark.parametrize("arguments", named("python"), ids=" ".join)
def test_a_script_is_there(arguments: list[str]) -> None:
    assert (ROOT / arguments[0]).is_file()


def test_the_first_commands_are_the_two_of_the_makefile() -> None:
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert TYPED[0].startswith("make demo ")
    assert TYPED[1].startswith("make test ")
    assert {words[0] for words in named("make")} <= set(targets)


@pytest.mark.parametrize("code", PYTHON)
def test_its_python_is_python(code: str) -> None:
    compile(code, "README.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\((?!https?:)([^)]+)\)", TEXT))))
def test_a_link_leads_somewhere(link: str) -> None:
    assert (ROOT / link).exists()
