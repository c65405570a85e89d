"""Fuzz one target with coverage feedback: `python -m tests.fuzz yamux --seconds 600 [--corpus FOLDER]`.

Needs atheris, which the checks' environment has where it is built for its Python. What it finds becomes an example of
`tests/fuzz/test_targets.py`.
"""

import argparse
import importlib
import sys
import tempfile
from pathlib import Path
from typing import Any

atheris: Any = importlib.import_module("atheris")  # has no types

with atheris.instrument_imports(include=["agentmesh"]):
    from tests.fuzz.targets import TARGETS

MAX_BYTES = 4096


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("target", choices=sorted(TARGETS))
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0, help="of the fuzzer's choices; 0 for another one each time")
    parser.add_argument("--corpus", type=Path, help="where inputs that reach new code are kept")
    arguments = parser.parse_args()
    target = TARGETS[arguments.target]
    corpus: Path = arguments.corpus or Path(tempfile.mkdtemp(prefix=f"fuzz-{arguments.target}-"))
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds):
        (corpus / f"seed-{number}").write_bytes(seed)
    options = [
        f"-max_total_time={arguments.seconds}",
        f"-seed={arguments.seed}",
        f"-max_len={MAX_BYTES}",
        f"-artifact_prefix={corpus}/",
        "-print_final_stats=1",
    ]
    atheris.Setup([sys.argv[0], *options, str(corpus)], target)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
