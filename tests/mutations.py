"""Faults put into the pool and its registry on purpose: each has to make the tests named with it fail.

    python -m tests.mutations            all of them, which takes many minutes
    python -m tests.mutations M5 M14     some

M1 to M18 are the classic ones of such a pool. `tests/pool/mutations.py` and `tests/pool/registry/mutations.py` have
them.
"""

import sys
from collections.abc import Sequence

from tests.pool import mutations as pool
from tests.pool.registry import mutations as registry


def main(names: Sequence[str]) -> int:
    """Try these, or all. Returns how many went unnoticed, did not fit, or are not known."""
    unknown = [name for name in names if name not in pool.MUTATIONS and name not in registry.MUTATIONS]
    for name in unknown:
        print(f"{name}: no such fault")
    missed = len(unknown)
    for module, known in ((pool, list(pool.MUTATIONS)), (registry, list(registry.MUTATIONS))):
        wanted = [name for name in known if not names or name in names]
        missed += module.main(wanted) if wanted else 0
    return missed


if __name__ == "__main__":
    sys.exit(1 if main(sys.argv[1:]) else 0)
