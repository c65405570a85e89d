"""The example in the package's documentation does what it says."""

import inspect
import re
import textwrap
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from agentmesh import node
from agentmesh.one import OneConfig, open_one


async def test_the_example_works(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = inspect.getdoc(node) or ""
    (example,) = re.findall(r"^    import trio\n(?:    .*\n|\n)*", text, re.M)
    namespace: dict[str, Any] = {}
    exec(textwrap.dedent(example), namespace)
    main: Callable[[str, str], Awaitable[None]] = namespace["main"]
    async with open_one(OneConfig(data_dir=tmp_path / "mesh", bind_address="127.0.0.1:0")) as mesh:
        await main(mesh.control_plane.url, mesh.join_token)
    assert re.fullmatch(r"200 sunny, 12D3Koo\w+\n", capsys.readouterr().out)


def test_every_public_name_says_what_it_is() -> None:
    assert [name for name in node.__all__ if not inspect.getdoc(getattr(node, name))] == []
