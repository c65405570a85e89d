"""Where a record belongs: on the routers closest to its key, by Kademlia's distance (XOR of hashes). Pure.

Every router that knows the same routers comes to the same answer, so a record is found by asking where it belongs.
"""

import functools
import hashlib
from collections.abc import Collection

from agentmesh.types import PeerId


def distance(key: bytes, router: PeerId) -> int:
    """How far a router is from a key: 0 up to 2**256. No two routers are equally far."""
    return _place(key) ^ _place(router.multihash)


def closest(key: bytes, routers: Collection[PeerId], count: int) -> tuple[PeerId, ...]:
    """Those of `routers` where a record of this key belongs: the `count` closest, or all, nearest first."""
    return tuple(sorted(routers, key=functools.partial(distance, key))[:count])


def new_homes(key: bytes, before: Collection[PeerId], after: Collection[PeerId], count: int) -> tuple[PeerId, ...]:
    """Where a record belongs since the routers changed, and did not belong before."""
    old = closest(key, before, count)
    return tuple(router for router in closest(key, after, count) if router not in old)


@functools.lru_cache(maxsize=4096)
def _place(name: bytes) -> int:
    return int.from_bytes(hashlib.sha256(name).digest())
