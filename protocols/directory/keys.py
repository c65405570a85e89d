"""What records are kept under: sha2-256 multihashes of names, as libp2p's Kademlia keys the records of providers."""

import hashlib

from agentmesh.types import PeerId

SHA2_256 = b"\x12\x20"  # multihash: the function's code, and 32 bytes
KEY_BYTES = 34


def service_key(type: str, name: str | None = None) -> bytes:
    """Of a service, or of all services of a type.

    Args:
        type: "mcp", "inference", "a2a", "egress"…
        name: None for whoever serves the type.
    Raises:
        ValueError: an empty part, or a type with a colon, which would make two services of one name.
    """
    if not type or ":" in type or name == "":
        raise ValueError(f"no service: {type!r} {name!r}")
    return _multihash(f"mesh:service:{type}" if name is None else f"mesh:service:{type}:{name}")


def peer_key(peer: PeerId) -> bytes:
    """Of a peer itself."""
    return _multihash(f"mesh:peer:{peer}")


def is_key(data: bytes) -> bool:
    """Whether `data` has the form of a key."""
    return len(data) == KEY_BYTES and data.startswith(SHA2_256)


def _multihash(name: str) -> bytes:
    return SHA2_256 + hashlib.sha256(name.encode()).digest()
