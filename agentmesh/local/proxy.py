"""`/mesh/{peer}/{type}/{name}/…`: any service of any member, for programs that know nothing of the mesh."""

from functools import partial
from typing import cast

import attrs

from agentmesh.errors import AddressError, ServiceError
from agentmesh.protocols.http import CREDENTIAL_HEADER, PEER_HEADER, Receive, Scope, Send
from agentmesh.services import Answer, Calls, ServiceKey, host_name
from agentmesh.services.calls import FAILURES, answer_for
from agentmesh.services.dispatch import service_of
from agentmesh.services.headers import Headers, end_to_end, relocated, without_hops
from agentmesh.services.labels import required_labels
from agentmesh.services.passing import Head, NoAnswerError, pass_on
from agentmesh.types import PeerId

PREFIX = b"/mesh/"

# `Expect` is answered here, since the body is asked for at once.
_NOT_PASSED_ON = frozenset({b"host", b"expect", PEER_HEADER})


@attrs.frozen
class Target:
    """Where a path leads.

    Attributes:
        path: as the member's mesh is to have it, the service's own behind its type and name; bytes as they were sent.
    """

    peer: PeerId
    service: ServiceKey
    path: bytes


def target_of(raw_path: bytes, own: PeerId) -> Target | Answer:
    """Which member and which service a path names.

    Args:
        raw_path: as it was sent, with PREFIX.
        own: the peer ID of this node, which is no member to call.
    """
    label, slash, rest = raw_path.removeprefix(PREFIX).partition(b"/")
    try:
        peer = PeerId.parse(label.decode("ascii"))
    except (AddressError, UnicodeDecodeError):
        return Answer(400, "malformed", "the path begins with /mesh/<peer ID>/<type>/<name>")
    if peer == own:
        return Answer(400, "malformed", "that is this node itself; its services are called where they are")
    service = service_of(slash + rest)
    return service if isinstance(service, Answer) else Target(peer, service, slash + rest)


class MeshProxy:
    """The ASGI application.

    The answer is the service's, or, where an X-Mesh-Error header says so, the mesh's. One that breaks off is cut here,
    too. An asker that leaves is felt by the service at once.

    Args:
        calls: how members are called.
        own: the peer ID of this node.
    """

    def __init__(self, calls: Calls, own: PeerId) -> None:
        self._calls = calls
        self._own = own

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request on.

        Raises:
            ServiceError: the answer broke off; the asker is to be cut.
        """
        target = target_of(scope["raw_path"], self._own)
        if isinstance(target, Answer):
            await target.send(send)
            return
        try:
            await self.call(target, scope, receive, send)
        except ValueError as exc:
            await Answer(400, "malformed", str(exc)).send(send)
        except FAILURES as exc:
            await answer_for(target.peer, exc).send(send)
        except NoAnswerError as exc:
            await Answer(502, "unreachable", f"{target.peer} did not answer: {exc}").send(send)

    async def call(self, target: Target, scope: Scope, receive: Receive, send: Send) -> None:
        """Ask `target` what `scope` asks, whatever path that has.

        Raises:
            FAILURES: the member cannot be called; nothing was sent.
            NoAnswerError: nothing came back, and nothing was sent.
            ServiceError: the answer broke off.
        """
        credential = self._calls.header()
        await self._calls.attest(target.peer, required_labels(scope["headers"]))
        stream = await self._calls.open_peer(target.peer)
        try:
            head = _head(target, scope, credential)
            changed = partial(_relocated, target)
            await pass_on(stream, stream.reset, head, scope, receive, send, changed=changed)
        except NoAnswerError:
            raise
        except ServiceError as exc:
            raise ServiceError(f"{target.service} of {target.peer} broke off its answer") from exc
        finally:
            stream.reset()


def _head(target: Target, scope: Scope, credential: bytes) -> Head:
    query = cast(bytes, scope["query_string"])
    path = target.path + (b"?" + query if query else b"")
    passed = end_to_end(scope["headers"], but=_NOT_PASSED_ON)
    headers = [(b"Host", host_name(target.peer).encode("ascii")), *passed, (CREDENTIAL_HEADER, credential)]
    return Head(scope["method"], path, headers)


def _relocated(target: Target, headers: Headers) -> Headers:
    """A redirect within the service leads through this proxy again."""
    prefix = b"/%b/%b" % (target.service.type.encode(), target.service.name.encode())
    here = PREFIX + str(target.peer).encode("ascii") + prefix
    return relocated(without_hops(headers), b"http://" + host_name(target.peer).encode("ascii"), prefix, here)
