"""Ours, and what it is measured beside. The names are those under which other benchmarks have the same stacks."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import attrs

from agentmesh.errors import MeshError
from benchmarks.processes import ROOT
from benchmarks.stacks import haproxy
from benchmarks.stacks.stack import CALLER, CROWD, ROUTER, SERVER, Stack

STREAMS = frozenset({"S1", "S2", "S3", "S4", "S4k", "S5"})
ALL = STREAMS | {"S6", "S8"}
PEERS = ROOT / ".venv-peers/bin/python"

_MESH = dict.fromkeys((ROUTER, SERVER, CALLER, CROWD), "benchmarks.stacks.mesh")
_PLAIN = dict.fromkeys((SERVER, CALLER, CROWD), "benchmarks.stacks.plain")
_RELAYED = {**_PLAIN, ROUTER: "benchmarks.stacks.haproxy"}
_LIBP2P = dict.fromkeys((ROUTER, SERVER, CALLER, CROWD), "benchmarks.peers.py_libp2p")


class MissingError(MeshError):
    """A baseline that was asked for cannot run on this machine."""


def _no_peers() -> str | None:
    return None if PEERS.exists() else "py-libp2p is not here: `make setup` puts it into .venv-peers"


def _libp2p_version() -> str:
    said = subprocess.run(
        [PEERS, "-c", "from importlib.metadata import version; print(version('libp2p'))"],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    return f"py-libp2p {said.stdout.strip()}"


AGENTMESH = Stack(
    name="agentmesh",
    title="agentmesh, through a router",
    encryption="TLS 1.3",
    scenarios=ALL | {"S7"},
    modules=_MESH,
    settings={"direct": False, "data_path": True},
)
IN_STREAMS = attrs.evolve(
    AGENTMESH,
    name="agentmesh-streams",
    title="agentmesh, without data paths",
    scenarios=ALL - {"S6", "S7"},
    settings={"direct": False, "data_path": False},
)
DIRECT = attrs.evolve(
    AGENTMESH,
    name="agentmesh-direct",
    title="agentmesh, member to member",
    scenarios=STREAMS,
    settings={"direct": True, "data_path": False},
)
TLS = Stack(
    name="loopback-tls-trio",
    title="direct TLS (trio.SSLStream)",
    encryption="TLS 1.3",
    scenarios=STREAMS,
    modules=_PLAIN,
    settings={"tls": True},
)
TCP = Stack(
    name="loopback-trio",
    title="direct TCP (Trio)",
    encryption="none",
    scenarios=STREAMS,
    modules=_PLAIN,
    settings={"tls": False},
)
HAPROXY_TLS = Stack(
    name="haproxy-tls-trio",
    title="TLS through HAProxy",
    encryption="TLS 1.3",
    scenarios=ALL,
    modules=_RELAYED,
    order=SERVER + ROUTER,
    settings={"tls": True},
    why_not=haproxy.why_not,
    version=haproxy.version,
)
HAPROXY = attrs.evolve(
    HAPROXY_TLS, name="haproxy-trio", title="TCP through HAProxy", encryption="none", settings={"tls": False}
)
LIBP2P = Stack(
    name="py-libp2p",
    title="py-libp2p, circuit relay v2",
    encryption="Noise",
    scenarios=ALL | {"S7"},
    modules=_LIBP2P,
    python=Path(PEERS),
    why_not=_no_peers,
    version=_libp2p_version,
)

BASELINES = (IN_STREAMS, DIRECT, TLS, HAPROXY_TLS, LIBP2P, TCP, HAPROXY)
STACKS = {stack.name: stack for stack in (AGENTMESH, *BASELINES)}
NONE = "none"


def choose(baselines: Sequence[str]) -> tuple[list[Stack], dict[str, str]]:
    """agentmesh and these baselines, in the order of `STACKS`.

    Args:
        baselines: their names; none of them means all that can run here, `NONE` no baseline.
    Returns:
        The stacks, and for each that was left out because something is missing, what that is.
    Raises:
        MissingError: one that was named cannot run here.
    """
    wanted = [stack for stack in BASELINES if not baselines or stack.name in baselines]
    missing = {stack.name: reason for stack in wanted if (reason := stack.why_not()) is not None}
    if missing and baselines:
        raise MissingError("; ".join(dict.fromkeys(missing.values())))
    return [AGENTMESH, *(stack for stack in wanted if stack.name not in missing)], missing
