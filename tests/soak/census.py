"""What there is in this process: objects by kind, what is in their maps, tasks, descriptors."""

import gc
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sized
from typing import cast

import attrs

from agentmesh.testing import Footprint, footprint

OURS = tuple(f"agentmesh.{part}." for part in ("runtime", "protocols", "transports", "node", "router", "membership"))
OTHERS = {
    "trio._core._run.Task",
    "trio._core._run.Nursery",
    "trio._core._run.CancelScope",
    "trio._highlevel_socket.SocketStream",
    "trio._ssl.SSLStream",
    "trio._channel.MemorySendChannel",
    "trio._channel.MemoryReceiveChannel",
    "OpenSSL.SSL.Connection",
    "h2.connection.H2Connection",
    "trio_websocket._impl.WebSocketConnection",
    "wsproto.connection.Connection",
}
CONTAINERS = (dict, list, set, frozenset, tuple, deque)

# What is meant to stay for a while, and is bounded: see the classes.
REMEMBERED = (
    "Verifier._remembered",
    "PeerLimiter._buckets",
    "limiter._Bucket",
    "AdmissionBook._expiries",
    "Federation._listed",
    "Floodsub._parted",
    "Meter._settled_at",
    "Mux._unanswered",
    "SeenCache._expires_at",
    "directory.store.Record",
    "directory.store.Record.addresses",
    "RecordStore._by_key",
    "RecordStore._by_provider",
    "RecordStore._expiries",
)


@attrs.frozen
class Census:
    """A count of everything.

    Attributes:
        footprint: tasks and descriptors.
        objects: living ones of ours, and of the libraries that hold connections, by class.
        maps: the sizes of all containers that objects of ours hold, by class and attribute.
    """

    footprint: Footprint
    objects: Mapping[str, int]
    maps: Mapping[str, int]

    def count(self, name: str) -> int:
        """How many objects of a class there are, or how much is in the containers of an attribute."""
        return self.objects.get(name, 0) + self.maps.get(name, 0)

    def left_over(self, before: "Census") -> dict[str, int]:
        """What there is more of, or less, than there was."""
        mine, theirs = self._all(), before._all()
        return {
            name: mine[name] - theirs[name]
            for name in sorted(mine | theirs)
            if mine[name] != theirs[name] and not name.endswith(REMEMBERED)
        }

    def _all(self) -> Counter[str]:
        return Counter(attrs.asdict(self.footprint)) + Counter(self.objects) + Counter(self.maps)


def take_census() -> Census:
    """Count, after a collection of garbage."""
    gc.collect()
    objects, maps = Counter[str](), Counter[str]()
    for thing in gc.get_objects():
        kind = cast("type[object]", type(thing))
        name = f"{kind.__module__}.{kind.__qualname__}"
        if name.startswith(OURS):
            objects[name] += 1
            for attribute, value in attributes(thing):
                if isinstance(value, CONTAINERS):
                    maps[f"{name}.{attribute}"] += len(cast("Sized", value))
        elif name in OTHERS:
            objects[name] += 1
    return Census(footprint(), objects, maps)


def attributes(thing: object) -> Iterator[tuple[str, object]]:
    """The attributes of an object, in its dictionary or its slots."""
    yield from getattr(thing, "__dict__", {}).items()
    for kind in type(thing).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            if slot not in ("__weakref__", "__dict__"):
                value = getattr(thing, slot, None)
                if value is not None:
                    yield slot, value
