"""What this member serves: services by type and name. Plain data; nothing here waits."""

import re
from collections.abc import Callable, Iterator

import attrs
import httpcore2

from agentmesh.protocols.http import ASGIApp

# What the first part of a service's path may be. The mesh treats all of them alike but for `mcp` (see `dispatch`);
# "http" is for services that are none of the others.
SERVICE_TYPES = frozenset({"mcp", "inference", "a2a", "egress", "http"})

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~-]{0,127}")  # goes into paths and policies as it is

Target = str | ASGIApp


@attrs.frozen
class ServiceKey:
    """Names a service of one peer; `str` gives the form that policies use, `mcp://weather`."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}://{self.name}"


class ServiceTable:
    """Services of this process. A target is an ASGI application, or the http or https URL of a server."""

    def __init__(self) -> None:
        self._targets: dict[ServiceKey, Target] = {}
        self._on_change: list[Callable[[], None]] = []

    def on_change(self, callback: Callable[[], None]) -> None:
        """Have `callback()` called, synchronously, when a service comes or goes. It must not raise."""
        self._on_change.append(callback)

    def register(self, type: str, name: str, target: Target) -> ServiceKey:
        """Serve `target` as `/<type>/<name>/...` from now on.

        Raises:
            ValueError: an unknown type, a name that does not fit a path, a target that is no http URL, or a service
                that is there already.
        """
        if type not in SERVICE_TYPES:
            raise ValueError(f"a service's type is one of {sorted(SERVICE_TYPES)}, not {type!r}")
        if not _NAME.fullmatch(name):
            raise ValueError(f"a service's name is letters, digits and . _ ~ - (at most 128), not {name!r}")
        if isinstance(target, str):
            _check_url(target)
        key = ServiceKey(type, name)
        if key in self._targets:
            raise ValueError(f"{key} is served already")
        self._targets[key] = target
        self._notify()
        return key

    def unregister(self, type: str, name: str) -> None:
        """Stop serving; requests under way go on. KeyError when there is no such service."""
        del self._targets[ServiceKey(type, name)]
        self._notify()

    def lookup(self, type: str, name: str) -> Target | None:
        return self._targets.get(ServiceKey(type, name))

    def __iter__(self) -> Iterator[ServiceKey]:
        return iter(tuple(self._targets))

    def __len__(self) -> int:
        return len(self._targets)

    def _notify(self) -> None:
        for callback in self._on_change:
            callback()


def _check_url(text: str) -> None:
    url = httpcore2.URL(text)
    if url.scheme not in (b"http", b"https") or not url.host:
        raise ValueError(f"a service's target is an http or https URL, not {text!r}")
    if b"?" in url.target:
        raise ValueError(f"a service's URL has no query, since each request brings its own: {text!r}")
