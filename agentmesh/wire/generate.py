"""Make `agentmesh/wire/messages` from `agentmesh/wire/proto`.

    python -m agentmesh.wire.generate           write the package anew
    python -m agentmesh.wire.generate --check   print what would change, exit with 1 if anything would

Needs the "check" dependency group: protoc comes from grpcio-tools, its plugin from betterproto2-compiler, which formats
with ruff and the settings of this repository.
"""

import argparse
import difflib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

PROTO = Path(__file__).parent / "proto"
MESSAGES = Path(__file__).parent / "messages"


def generate(target: Path) -> None:
    """Write the whole package into the empty folder `target`.

    Raises:
        subprocess.CalledProcessError: protoc refused a definition; its complaint is in `stderr`.
    """
    files = sorted(str(path.relative_to(PROTO)) for path in PROTO.rglob("*.proto"))
    subprocess.run(
        [
            *(sys.executable, "-m", "grpc_tools.protoc", "--proto_path=."),
            *(f"--python_betterproto2_out={target}", "--python_betterproto2_opt=client_generation=none"),
            *files,
        ],
        cwd=PROTO,
        env={**os.environ, "PATH": os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", "")])},
        check=True,
        capture_output=True,
        text=True,
    )


def differences(old: Path, new: Path) -> Iterator[str]:
    """The lines of a unified diff from the package at `old` to the one at `new`; none when they are the same."""
    names = {path.relative_to(root) for root in (old, new) for path in root.rglob("*.py")}
    for name in sorted(names):
        yield from difflib.unified_diff(_lines(old / name), _lines(new / name), f"a/{name}", f"b/{name}")
    missing = {path.relative_to(new) for path in new.rglob("*")} - {path.relative_to(old) for path in old.rglob("*")}
    yield from (f"missing: {name}\n" for name in sorted(missing))


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines(keepends=True) if path.exists() else []


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m agentmesh.wire.generate", description="Generate message classes.")
    parser.add_argument("--check", action="store_true", help="change nothing; exit with 1 when the package is stale")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder)
        generate(fresh)
        if options.check:
            found = list(differences(MESSAGES, fresh))
            sys.stdout.writelines(found)
            return 1 if found else 0
        shutil.rmtree(MESSAGES, ignore_errors=True)
        shutil.copytree(fresh, MESSAGES)
    return 0


if __name__ == "__main__":
    sys.exit(main())
