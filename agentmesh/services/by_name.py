"""Calls of a service by its name, `http://<name>.<type>.mesh/...`: whoever serves it, another where that fails."""

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping, Sequence

import attrs
import httpcore2
import trio

from agentmesh.errors import CredentialError, DialError, NotConnectedError
from agentmesh.protocols.http import ERROR_HEADER
from agentmesh.services.answers import Answer
from agentmesh.services.calls import FAILURES, Calls, Outgoing, answer_for, check_scheme, on_the_wire, said
from agentmesh.services.headers import relocated
from agentmesh.services.labels import Labels, required_labels, suffices
from agentmesh.services.names import host_name, service_of_host
from agentmesh.services.providers import Providers
from agentmesh.services.seam import Incoming, SeamStream, exchange
from agentmesh.services.table import ServiceKey
from agentmesh.types import PeerId

MAX_ATTEMPTS = 3
ELSEWHERE = frozenset({429, 502, 503, 504})  # what another provider may answer better

OpenHere = Callable[[ServiceKey], Awaitable[trio.SocketStream | None]]


@attrs.frozen
class NamedCalls:
    """Carries requests by name, and all others as `Calls` does.

    A service of this member's own is called first, then the providers, each in turn. At most MAX_ATTEMPTS are tried
    until one gives an answer that counts, and no further one once a part of the request has been sent that cannot be
    sent again. Providers without the labels that the caller or the operator requires are passed over.

    Args:
        calls: how members are called.
        own: this member.
        open_here: a connection to a service of this member; None when it does not serve it.
        providers: who serves what.
        own_labels: those of this member, as they are now.
    """

    calls: Calls
    own: PeerId
    open_here: OpenHere
    providers: Providers
    own_labels: Callable[[], Mapping[str, str]] = dict[str, str]

    async def send(self, request: Outgoing) -> Incoming:
        """As `Calls.send`. When no provider answers: 503 or 502 in the mesh's own words, or what the last one said."""
        if (service := service_of_host(request.host)) is None:
            return await self.calls.send(request)
        check_scheme(request)
        try:
            labels = required_labels(request.headers)
        except ValueError as exc:
            return said(Answer(400, "malformed", str(exc)))
        content = Content(request.content, request.is_repeatable)
        attempts = Attempts(self, service, labels, attrs.evolve(request, content=content), content)
        try:
            return await attempts.run()
        finally:
            await attempts.aclose()


class Content:
    """What a request sends, and whether it is still there to be sent.

    Attributes:
        is_spent: it was begun, and cannot be read again.
    """

    def __init__(self, content: AsyncIterable[bytes], is_repeatable: bool) -> None:
        self.is_spent = False
        self._content = content
        self._is_repeatable = is_repeatable

    def __aiter__(self) -> AsyncIterator[bytes]:
        self.is_spent = not self._is_repeatable
        return aiter(self._content)


class Attempts:
    """One request by name, with one provider after another."""

    def __init__(
        self, by: NamedCalls, service: ServiceKey, labels: Labels, request: Outgoing, content: Content
    ) -> None:
        self._by = by
        self._service = service
        self._labels = labels
        self._request = request
        self._content = content
        self._made = 0
        self._held: Incoming | None = None  # the last answer that another provider may give better
        self._answer = Answer(503, "no-provider", f"nobody serves {service}")

    async def run(self) -> Incoming:
        """The first answer that counts, or the last one."""
        may_be_here = suffices(self._by.own_labels(), self._labels, ())
        here = await self._by.open_here(self._service) if may_be_here else None
        if here is not None and (incoming := await self._judged(self._by.own, self._ask_here(here))) is not None:
            return incoming
        for peer in await self._candidates():
            if self._is_over:
                break
            if (incoming := await self._judged(peer, self._ask(peer))) is not None:
                return incoming
        last, self._held = self._held, None
        return last or said(self._answer)

    async def aclose(self) -> None:
        """Cut what was held back."""
        if self._held is not None:
            await self._held.aclose()

    @property
    def _is_over(self) -> bool:
        return self._made >= MAX_ATTEMPTS or (self._made > 0 and self._content.is_spent)

    async def _candidates(self) -> Sequence[PeerId]:
        if self._is_over:
            return ()
        try:
            found = await self._by.providers.candidates(self._service)
        except DialError as exc:
            error = "not-connected" if isinstance(exc, NotConnectedError) else "unreachable"
            self._answer = Answer(503, error, f"nobody can be asked who serves {self._service}: {exc}")
            return ()
        return [peer for peer in found if peer != self._by.own]

    async def _judged(self, peer: PeerId, asking: Awaitable[Incoming]) -> Incoming | None:
        """A provider's answer if it counts; None to ask another."""
        try:
            incoming = await asking
        except CredentialError as exc:
            if not self._made:
                self._answer = answer_for(peer, exc)
            return None
        except httpcore2.ConnectTimeout as exc:
            self._answer = Answer(502, "unreachable", str(exc))
        except FAILURES as exc:
            self._answer = answer_for(peer, exc)
        except httpcore2.NetworkError:
            self._by.providers.failed(peer, self._service)
            raise
        else:
            if not is_elsewhere(incoming):
                return self._by_name(peer, incoming)
            await self.aclose()
            self._held = incoming
        self._made += 1
        self._by.providers.failed(peer, self._service)
        return None

    async def _ask(self, peer: PeerId) -> Incoming:
        return await self._by.calls.send_to(peer, self._addressed(peer), self._labels)

    async def _ask_here(self, stream: trio.SocketStream) -> Incoming:
        request = on_the_wire(self._addressed(self._by.own), b"")
        return await exchange(SeamStream(stream, stream.socket.close), request)

    def _addressed(self, peer: PeerId) -> Outgoing:
        """The request as a member has it that serves several things."""
        host = host_name(peer)
        headers = [
            (name, host.encode("ascii") if name.lower() == b"host" else value) for name, value in self._request.headers
        ]
        target = self._prefix + self._request.target
        return attrs.evolve(self._request, host=host, port=None, target=target, headers=headers)

    def _by_name(self, peer: PeerId, incoming: Incoming) -> Incoming:
        """With redirects within the service that lead to its name again."""
        origin, here = (b"http://" + host.encode("ascii") for host in (host_name(peer), self._request.host))
        return attrs.evolve(incoming, headers=relocated(incoming.headers, origin, self._prefix, here))

    @property
    def _prefix(self) -> bytes:
        return f"/{self._service.type}/{self._service.name}".encode("ascii")


def is_elsewhere(incoming: Incoming) -> bool:
    """Whether another provider may answer better: this one cannot now, or does not serve it any more."""
    gone = incoming.status == 404 and (ERROR_HEADER, b"unknown-service") in [
        (name.lower(), value) for name, value in incoming.headers
    ]
    return incoming.status in ELSEWHERE or gone
