"""Faults put into the registry on purpose, one at a time: each has to make the tests named with it fail.

    python -m tests.pool.registry.mutations            all of them
    python -m tests.pool.registry.mutations M9 M14     these

A fault is put into a copy of the sources. Exits 1 when one goes unnoticed, or does not fit the sources any more; the
tests beside this file say the latter at once. Those with a letter and a number are faults that others made.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import attrs

ROOT = Path(__file__).resolve().parent.parent.parent.parent
COPIED = ("agentmesh", "protocols", "transports", "tests", "pyproject.toml")
LINKED = (".venv-servers",)
LEFT_OUT = shutil.ignore_patterns("__pycache__", ".hypothesis")
TIME_LIMIT = 600.0  # seconds for the tests of one


@attrs.frozen
class Mutation:
    """Attributes:
    says: what is done wrong.
    file: where; `before`, which is there once, becomes `after`.
    tests: arguments of pytest, for those that have to notice.
    """

    says: str
    file: str
    before: str
    after: str
    tests: tuple[str, ...]

    @property
    def fits(self) -> bool:
        return (ROOT / self.file).read_text().count(self.before) == 1


REGISTRY, TESTS = "agentmesh/pool/registry", "tests/pool/registry"
CONTRACT, KEEPER = f"{TESTS}/test_contract.py", f"{TESTS}/test_keeper.py"

MUTATIONS = {
    "M1": Mutation(
        "the epoch that is listed may be proposed once more",
        f"{REGISTRY}/rules.py",
        "proposed <= found.epoch",
        "proposed < found.epoch",
        (CONTRACT, "-k", "memory"),
    ),
    "M2": Mutation(
        "what ends late takes the place away from what has it now",
        f"{REGISTRY}/keeper.py",
        "if self._kept.get(key) is kept:",
        "if key in self._kept:",
        (KEEPER,),
    ),
    "M9": Mutation(
        "a release does not look at the epoch",
        f"{REGISTRY}/sql_statements.py",
        "self.release = owned.values(",
        "self.release = update(connections).where(_is_it, is_listed).values(",
        (CONTRACT, "-k", "sqlite"),
    ),
    "M9-etcd": Mutation(
        "in etcd, a change does not look at what it was decided from",
        f"{REGISTRY}/etcd_client.py",
        '{"compare": conditions, "success": changes}',
        '{"compare": [], "success": changes}',
        (f"{TESTS}/test_etcd_races.py",),
    ),
    "M10": Mutation(
        "a renewal that matched no row counts as one",
        f"{REGISTRY}/sql.py",
        "return expires_at if changed else Lapsed()",
        "return expires_at",
        (CONTRACT, "-k", "sqlite"),
    ),
    "M14": Mutation(
        "a column for epochs has 32 bits",
        f"{REGISTRY}/sql_schema.py",
        'Column("connection_epoch", BigInteger,',
        'Column("connection_epoch", Integer,',
        (CONTRACT, "-k", "any_epoch and (postgres or mariadb)"),
    ),
    "floor": Mutation(
        "epochs that were forgotten come again",
        f"{REGISTRY}/sql.py",
        "if gone:",
        "if not gone:",
        (f"{TESTS}/test_limits.py", "-k", "sqlite"),
    ),
    "trust": Mutation(
        "a router trusts a lease for longer than it lasts",
        f"{REGISTRY}/keeper.py",
        "asked_at + self._config.trust * self._config.ttl",
        "asked_at + 1.1 * self._config.ttl",
        (f"{TESTS}/test_keeper_machine.py",),
    ),
    "asked-at": Mutation(
        "a lease is trusted from when the answer came",
        f"{REGISTRY}/keeper.py",
        "kept.hold(fence, asked_at +",
        "kept.hold(fence, trio.current_time() +",
        (KEEPER,),
    ),
    "stuck": Mutation(
        "while the registry seems to be away, always the same connection asks",
        f"{REGISTRY}/keeper.py",
        "due = [self._rng.choice(due)]",
        "due = due[:1]",
        (KEEPER,),
    ),
    "D3": Mutation(
        "a lease that lapsed is not registered again",
        f"{REGISTRY}/keeper.py",
        "                    await self._heal(kept)\n",
        "                    self._drop(kept)\n",
        (KEEPER,),
    ),
}


def is_noticed(mutation: Mutation) -> bool:
    """Run its tests on a copy of the sources that has the fault."""
    with tempfile.TemporaryDirectory(prefix="mutation") as name:
        tree = Path(name)
        for top in COPIED:
            source = ROOT / top
            if source.is_dir():
                shutil.copytree(source, tree / top, symlinks=True, ignore=LEFT_OUT)
            else:
                shutil.copy(source, tree / top)
        for top in LINKED:
            (tree / top).symlink_to(ROOT / top)
        file = tree / mutation.file
        file.write_text(file.read_text().replace(mutation.before, mutation.after))
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *mutation.tests],
            cwd=tree,
            env={**os.environ, "PYTHONPATH": str(tree)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIME_LIMIT,
        )
        if done.returncode not in (0, 1):  # no test ran
            print(done.stdout)
        return done.returncode == 1


def main(names: Sequence[str]) -> int:
    """Try these, or all. How many went unnoticed, or did not fit."""
    missed = 0
    for name in names or MUTATIONS:
        mutation = MUTATIONS[name]
        verdict = "does not fit" if not mutation.fits else "noticed" if is_noticed(mutation) else "NOT NOTICED"
        missed += verdict != "noticed"
        print(f"{name:<10}{verdict:<14}{mutation.says}", flush=True)
    return missed


if __name__ == "__main__":
    sys.exit(1 if main(sys.argv[1:]) else 0)
