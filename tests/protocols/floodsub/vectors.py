"""RPCs as other implementations wrote them: `vectors.json`, by implementation and kind of key.

Each was taken from the implementation's own code: what it says at the start ("hello", with the key of SEED), a message
("publish"), and what is particular to it. The Ed25519 key is that of SEED everywhere.
"""

import json
from pathlib import Path

import attrs

from agentmesh.types import PeerId

SEED = bytes(range(32))


@attrs.frozen
class Vector:
    """One RPC: who wrote it, whose messages are in it, its name, and its bytes."""

    implementation: str
    author: PeerId
    name: str
    data: bytes

    def __str__(self) -> str:
        return f"{self.implementation} {self.name}"


def _read() -> tuple[Vector, ...]:
    found: dict[str, dict[str, dict[str, str]]] = json.loads((Path(__file__).parent / "vectors.json").read_text())
    return tuple(
        Vector(implementation, PeerId.parse(rpcs["author"]), f"{kind} {name}", bytes.fromhex(data))
        for implementation, kinds in found.items()
        for kind, rpcs in kinds.items()
        for name, data in rpcs.items()
        if name != "author"
    )


VECTORS = _read()
