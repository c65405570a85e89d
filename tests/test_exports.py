"""What a user can import: every module loads, every public name is where it is said to be, the wheel holds no more."""

import importlib
import os
import pkgutil
import shutil
import subprocess
import sys
import types
import zipfile
from pathlib import Path

import pytest

import agentmesh

ROOT = Path(__file__).resolve().parent.parent
GENERATED = "agentmesh.wire.messages"
NOT_FOR_IMPORT = {
    "agentmesh.wire.generate",  # a script that needs protoc, for those who change the messages
    "agentmesh.control_plane.migrations.env",  # Alembic runs it, in surroundings of its own
}


def public_modules() -> list[str]:
    found = (module.name for module in pkgutil.walk_packages(agentmesh.__path__, "agentmesh."))
    hidden = (GENERATED, *NOT_FOR_IMPORT)
    return ["agentmesh", *(name for name in found if not name.startswith(hidden) and "._" not in name)]


@pytest.mark.parametrize("name", public_modules())
def test_module_imports_and_keeps_its_promises(name: str) -> None:
    module = importlib.import_module(name)
    promised: list[str] = getattr(module, "__all__", [])
    assert len(promised) == len(set(promised))
    for public in promised:
        assert hasattr(module, public), f"{name}.__all__ names {public}, which is not there"


@pytest.mark.parametrize("name", public_modules())
def test_a_package_shows_only_what_it_promises(name: str) -> None:
    """What a package's `__init__` takes from its modules is its interface, so it has to say so in `__all__`."""
    module = importlib.import_module(name)
    if not hasattr(module, "__path__"):
        return
    shown = {
        key
        for key, value in vars(module).items()
        if not key.startswith("_") and not isinstance(value, types.ModuleType)
    }
    assert shown <= set(getattr(module, "__all__", [])), f"{name} leaks names"


def test_the_wheel_holds_agentmesh_and_nothing_else(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for folder in ("agentmesh", "protocols", "transports"):
        shutil.copytree(ROOT / folder, tree / folder, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, tree / file)
    build = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
    subprocess.run([sys.executable, "-c", build, tmp_path], cwd=tree, env=os.environ, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0] for name in names if ".dist-info/" not in name} == {"agentmesh"}
    packed = {name for name in names if name.endswith(".py")}
    written = {
        f"{'' if folder == 'agentmesh' else 'agentmesh/'}{path.relative_to(tree)}"
        for folder in ("agentmesh", "protocols", "transports")
        for path in (tree / folder).rglob("*.py")
        if not any(parent.is_symlink() for parent in path.parents)
    }
    assert packed == written
    assert "agentmesh/py.typed" in names
