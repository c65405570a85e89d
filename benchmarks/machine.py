"""What machine a run was on, and whether others used it meanwhile."""

import os
import platform
import re
import ssl
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import attrs

LIBRARIES = ("agentmesh", "trio", "cryptography", "pyOpenSSL", "biscuit-python")
LOOK = 0.5  # seconds over which others' use is measured
BUSY_SHARE = 0.1  # of all cores; beyond it, figures say more of the neighbours than of what is measured


@attrs.frozen
class Machine:
    """What figures depend on.

    Attributes:
        cores: that this process may use.
        versions: of libraries and baselines, by name.
        load: over the last minute, when the run began: tasks that run or wait to.
        busy: the share of all cores that others used just before, 0 to 1.
    """

    cpu: str
    cores: int
    memory_gib: float
    kernel: str
    python: str
    openssl: str
    versions: dict[str, str]
    load: float
    busy: float

    @property
    def is_busy(self) -> bool:
        return self.busy > BUSY_SHARE

    def describe(self) -> str:
        """In one line, without the versions."""
        return (
            f"{self.cpu}, {self.cores} cores, {self.memory_gib:.0f} GiB, {self.kernel}, Python {self.python}, "
            f"{self.openssl}"
        )

    def describe_load(self) -> str:
        return f"load {self.load:.1f} and {self.busy:.0%} of the cores in use before the run"


def look_at_machine() -> Machine:
    """Takes LOOK seconds."""
    busy = _busy_share()
    uname = platform.uname()
    return Machine(
        cpu=_cpu_model(),
        cores=len(os.sched_getaffinity(0)),
        memory_gib=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30,
        kernel=f"{uname.system} {uname.release}",
        python=platform.python_version(),
        openssl=" ".join(ssl.OPENSSL_VERSION.split()[:2]),
        versions={name: version(name) for name in LIBRARIES},
        load=os.getloadavg()[0],
        busy=busy,
    )


def _cpu_model() -> str:
    found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return " ".join(found[1].split()) if found else platform.machine()


def _busy_share() -> float:
    before = _cpu_times()
    time.sleep(LOOK)
    return busy_between(before, _cpu_times())


def busy_between(before: Sequence[int], after: Sequence[int]) -> float:
    """The share of time that was not idle, from two lines "cpu" of /proc/stat: user, nice, system, idle, iowait, …"""
    spent = [b - a for a, b in zip(before, after, strict=True)]
    total = sum(spent)
    return 1 - (spent[3] + spent[4]) / total if total else 0.0


def _cpu_times() -> list[int]:
    with open("/proc/stat") as file:
        return [int(field) for field in file.readline().split()[1:9]]
