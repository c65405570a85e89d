"""Policies in files: YAML, which JSON is too."""

from collections.abc import Callable, Hashable
from typing import IO, Any, TypeVar

import click
import yaml

from agentmesh.control_plane.policy.compile import check_budget
from agentmesh.control_plane.policy.document import parse_policy
from agentmesh.control_plane.policy.errors import PolicyError
from agentmesh.control_plane.policy.model import Policy

MAX_POLICY_CHARACTERS = 1024 * 1024

F = TypeVar("F", bound=Callable[..., Any])

_yaml: Any = yaml  # its types are open


class StrictLoader(yaml.SafeLoader):
    """YAML without a key that stands twice in one mapping: the first would be lost without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = [str(key.value) for key, _ in node.value]
        if len(set(keys)) != len(keys):
            raise yaml.constructor.ConstructorError(None, None, "a key stands there twice", node.start_mark)
        return super().construct_mapping(node, deep)


def read_policy(file: IO[str]) -> Policy:
    """The policy in a file of YAML, which JSON is too. Raises click.ClickException, which says where and what."""
    try:
        text = file.read(MAX_POLICY_CHARACTERS + 1)
    except UnicodeDecodeError as exc:
        raise click.ClickException(f"{file.name}: not text") from exc
    if len(text) > MAX_POLICY_CHARACTERS:
        raise click.ClickException(f"{file.name}: over {MAX_POLICY_CHARACTERS} characters")
    try:
        found = parse_policy(yaml.load(text, StrictLoader))
        check_budget(found)
    except (yaml.YAMLError, RecursionError) as exc:
        raise click.ClickException(f"{file.name}: no YAML: {' '.join(str(exc).split())}") from exc
    except PolicyError as exc:
        raise click.ClickException(f"{file.name}: {exc}") from exc
    return found


def written(document: object) -> str:
    """The same as YAML, in the order that it has."""
    text: str = _yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120)
    return text


def policy_option(help: str) -> Callable[[F], F]:
    """Give a command --policy-file; its `policy` is the policy in there, or None."""
    return click.option(
        "--policy-file",
        "policy",
        type=click.File(encoding="utf-8"),
        metavar="FILE",
        envvar="AGENTMESH_POLICY_FILE",
        show_envvar=True,
        callback=_read,
        help=help,
    )


def _read(_: click.Context, __: click.Parameter, file: IO[str] | None) -> Policy | None:
    return None if file is None else read_policy(file)
