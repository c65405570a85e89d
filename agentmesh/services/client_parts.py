"""What the clients for httpx and for its successor share. The two libraries have no class in common, and all names."""

import ssl
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Generator, Mapping
from contextlib import aclosing, contextmanager
from types import ModuleType
from typing import Any, TypeVar

import attrs
import httpcore2
import httpx
import httpx2

from agentmesh.errors import AddressError
from agentmesh.services.calls import Outgoing
from agentmesh.services.names import canonical_url
from agentmesh.services.seam import Incoming
from agentmesh.trust import shared_trust

Url = TypeVar("Url", httpx.URL | str, httpx2.URL | str)

RAISED = (
    httpcore2.ConnectTimeout,
    httpcore2.ReadTimeout,
    httpcore2.WriteTimeout,
    httpcore2.ReadError,
    httpcore2.WriteError,
    httpcore2.LocalProtocolError,
    httpcore2.RemoteProtocolError,
    httpcore2.UnsupportedProtocol,
)

SAY_WHOM_TO_TRUST = frozenset({"verify", "cert", "trust_env"})


@attrs.frozen
class Library:
    """One of the two, by its errors.

    Attributes:
        errors: what it calls those that sending raises.
        invalid_url: what it raises for a host that is no peer.
        create_ssl_context: makes what it believes servers by, unless it is told.
    """

    errors: Mapping[type[Exception], type[Exception]]
    invalid_url: type[Exception]
    create_ssl_context: Callable[[], ssl.SSLContext]

    @classmethod
    def of(cls, module: ModuleType) -> "Library":
        """httpx, or a successor that calls its errors the same."""
        errors: dict[type[Exception], type[Exception]] = {kind: getattr(module, kind.__name__) for kind in RAISED}
        return cls(errors, module.InvalidURL, module.create_ssl_context)

    def trusting(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """A client's options, with what all clients believe servers by, unless they say something about that."""
        told = not SAY_WHOM_TO_TRUST.isdisjoint(options)
        return options if told else {**options, "verify": shared_trust(self.create_ssl_context)}

    @contextmanager
    def translated(self) -> Generator[None]:
        """A block whose errors are the library's."""
        try:
            yield
        except RAISED as exc:
            mapped = next(to for of, to in self.errors.items() if isinstance(exc, of))
            raise mapped(str(exc)) from exc
        except AddressError as exc:
            raise self.invalid_url(str(exc)) from exc

    async def parts_of(self, incoming: Incoming) -> AsyncGenerator[bytes]:
        """An answer's body."""
        with self.translated():
            async with aclosing(incoming.parts()) as parts:
                async for part in parts:
                    yield part


def outgoing_of(
    request: httpx.Request | httpx2.Request, content: AsyncIterable[bytes], *, is_repeatable: bool
) -> Outgoing:
    """A request as the mesh carries it."""
    url = request.url
    return Outgoing(
        request.method,
        url.scheme,
        url.host,
        url.port,
        url.raw_path,
        request.headers.raw,
        content,
        request.extensions,
        is_repeatable,
    )


def canonical(url: Url) -> Url | str:
    """A URL as the library takes it: what was given as text may spell a peer ID in base58."""
    return canonical_url(url) if isinstance(url, str) else url
