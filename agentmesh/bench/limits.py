"""What the kernel has to allow so many members. Pure, but for `read_limits`."""

import resource
from collections.abc import Iterator
from pathlib import Path

import attrs

from agentmesh.errors import MeshError

SPARE_FILES = 64  # of a process, beside its members' or sessions'
PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
NEIGHBOURS = Path("/proc/sys/net/ipv4/neigh/default/gc_thresh3")
ALL_FILES = Path("/proc/sys/fs/file-max")


class KernelLimitError(MeshError):
    """The kernel does not allow what is to be done. The text says which setting, and what it has to be."""


@attrs.frozen
class Needs:
    """What there will be at most.

    Attributes:
        files: open files of one process.
        all_files: open files of all processes of this machine.
        ports: connections from this machine to one port of another, or of itself.
        neighbours: machines of the same network that it speaks to.
    """

    files: int
    all_files: int
    ports: int
    neighbours: int = 0


@attrs.frozen
class Limits:
    """What there can be at most."""

    files: int
    all_files: int
    ports: int
    neighbours: int


def read_limits() -> Limits:
    """This machine's, for this process and those that it starts, whose soft limit `raise_files` makes the hard one."""
    low, high = _numbers(PORT_RANGE, (32768, 60999))
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return Limits(
        files=2**62 if hard == resource.RLIM_INFINITY else hard,
        all_files=_numbers(ALL_FILES, (2**62,))[0],
        ports=high - low + 1,
        neighbours=_numbers(NEIGHBOURS, (1024,))[0],
    )


def raise_files() -> None:
    """Let this process, and those that it starts, have as many open files as they may."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def check_limits(needs: Needs, limits: Limits) -> None:
    """Raises KernelLimitError, of everything that lacks, in one line."""
    if lacking := list(_lacking(needs, limits)):
        raise KernelLimitError("the kernel does not allow that: " + "; ".join(lacking))


def _lacking(needs: Needs, limits: Limits) -> Iterator[str]:
    if needs.files > limits.files:
        yield f"a process needs {needs.files} open files and may have {limits.files} (ulimit -Hn)"
    if needs.all_files > limits.all_files:
        yield f"all together need {needs.all_files} open files of {limits.all_files} (sysctl fs.file-max)"
    if needs.ports > limits.ports:
        where = "sysctl net.ipv4.ip_local_port_range"
        yield f"{needs.ports} connections to one address need as many ports, of {limits.ports} ({where})"
    if needs.neighbours > limits.neighbours:
        where = "sysctl net.ipv4.neigh.default.gc_thresh3"
        yield f"{needs.neighbours} neighbours need as many entries, of {limits.neighbours} ({where})"


def _numbers(path: Path, otherwise: tuple[int, ...]) -> tuple[int, ...]:
    """The numbers in a file of the kernel; what is usual where there is none."""
    try:
        return tuple(map(int, path.read_text().split()))
    except OSError:
        return otherwise
