"""`/v1/models`, `/v1/chat/completions` and `/v1/completions`: all models of the mesh, as one server of OpenAI's API.

Which provider answers is decided here, by the model that a request names; the answer is passed on as it comes.
"""

import json
from collections.abc import Sequence
from typing import Any, cast

import attrs
import trio
from starlette.responses import JSONResponse

from agentmesh.errors import MeshError
from agentmesh.local.models import Models
from agentmesh.local.providers import Provider
from agentmesh.local.proxy import MeshProxy, Target
from agentmesh.local.usage import Usage, UsageReader
from agentmesh.node import Node
from agentmesh.protocols.http import ERROR_HEADER, Message, Receive, Scope, Send
from agentmesh.services import ReverseProxy
from agentmesh.services.calls import FAILURES
from agentmesh.services.labels import Labels, required_labels
from agentmesh.services.passing import NoAnswerError

MAX_BODY_BYTES = 16 * 1024 * 1024
MAX_ATTEMPTS = 3
MAX_ASKED_FOR_LABELS = 16  # providers of one model
ELSEWHERE = frozenset({429, 502, 503, 504})  # what another provider may answer better

REJECTIONS = {  # by the code of a refusal, what it is counted as
    "label_unattested": "label_unattested",
    "model_not_found": "no_eligible_provider",
    "no_available_provider": "attempts_exceeded",
}

# What was meant for this node, or for the provider that the asker thinks it talks to; and how the body was framed.
_NOT_PASSED_ON = frozenset(
    {b"authorization", b"api-key", b"x-api-key", b"cookie", b"content-length", b"transfer-encoding", b"expect"}
)


class RefusedError(MeshError):
    """Not a request that any provider could answer; said as OpenAI's API says it."""

    def __init__(self, status: int, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.answer = JSONResponse(
            {"error": {"message": text, "type": "invalid_request_error", "param": None, "code": code}}, status
        )


class ElsewhereError(NoAnswerError):
    """A provider cannot answer now; nothing has been sent to the asker."""


@attrs.frozen
class ModelsPage:
    """`/v1/models`."""

    models: Models
    node: Node

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        view = await self.models.view()
        listed = [
            {"id": name, "object": "model", "created": 0, "owned_by": self._owner(providers[0])}
            for name, providers in view.items()
        ]
        await JSONResponse({"object": "list", "data": listed})(scope, receive, send)

    def _owner(self, provider: Provider) -> str:
        return "local" if provider.peer == self.node.peer else str(provider.peer)


@attrs.frozen
class Completions:
    """`/v1/chat/completions` and `/v1/completions`.

    Up to MAX_ATTEMPTS providers are tried; another one only before the asker was sent anything.
    """

    models: Models
    node: Node
    proxy: MeshProxy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if scope["method"] != "POST":
                raise RefusedError(405, "method_not_allowed", "completions are asked for by POST")
            labels = labels_in(scope)
            body = await _read(receive)
            await self._answer(body, labels, scope, receive, send)
        except RefusedError as exc:
            if exc.code in REJECTIONS:
                self.node.figures.rejections[REJECTIONS[exc.code]] += 1
            await exc.answer(scope, receive, send)

    async def _answer(self, body: bytes, labels: Labels, scope: Scope, receive: Receive, send: Send) -> None:
        model = model_in(body)
        providers = await self.models.providers(model)
        if not providers:
            raise RefusedError(404, "model_not_found", f"no member that this one may call has the model {model!r}")
        headers = [(name, value) for name, value in scope["headers"] if name not in _NOT_PASSED_ON]
        headers.append((b"content-length", str(len(body)).encode("ascii")))
        asked = {**scope, "headers": headers}
        attested = await self._attested(providers, labels)
        tried = [provider for provider in providers if attested.get(provider)][:MAX_ATTEMPTS]
        if attested and not tried:
            raise RefusedError(503, "label_unattested", f"no provider of {model!r} has the labels that are required")
        for provider in tried:
            self.node.figures.retries += provider is not tried[0]
            judged = unless_elsewhere(self._counted(send, provider, model), is_last=provider is tried[-1])
            try:
                await self._try(provider, asked, replayed(body, receive), judged)
            except (*FAILURES, NoAnswerError):
                self.models.failed(provider)
            else:
                return
        raise RefusedError(503, "no_available_provider", f"no provider of {model!r} answers now")

    async def _attested(self, providers: Sequence[Provider], labels: Labels) -> dict[Provider, bool]:
        """Whether each has one of the labels, if any are required, and all that the operator requires; who cannot be
        asked is left out.
        """
        found = dict[Provider, bool]()

        async def ask(provider: Provider) -> None:
            try:
                found[provider] = await self.node.has_labels(provider.peer, labels)
                self.node.figures.rejections["label_mismatch"] += not found[provider]
            except FAILURES:
                self.models.failed(provider)

        async with trio.open_nursery() as nursery:
            for provider in providers[:MAX_ASKED_FOR_LABELS]:
                nursery.start_soon(ask, provider)
        return found

    def _counted(self, send: Send, provider: Provider, model: str) -> Send:
        """ASGI's send, which notes what the model says that it used."""
        readers: list[UsageReader] = []

        async def send_on(message: Message) -> None:
            if message["type"] == "http.response.start":
                readers[:] = [UsageReader(_header(message, b"content-type"))]
            elif readers and message["type"] == "http.response.body":
                readers[0].receive_data(message.get("body", b""))
                if not message.get("more_body", False):
                    readers[0].receive_data(b"")
                    usage = readers[0].usage
                    if usage != Usage():
                        self.node.figures.used(str(provider.peer), model, usage.prompt, usage.completion)
            await send(message)

        return send_on

    async def _try(self, provider: Provider, scope: Scope, receive: Receive, send: Send) -> None:
        prefix = f"/{provider.service.type}/{provider.service.name}"
        path = prefix.encode() + cast(bytes, scope["raw_path"])
        if provider.peer != self.node.peer:
            await self.proxy.call(Target(provider.peer, provider.service, path), scope, receive, send)
            return
        target = self.node.target_of(provider.service)
        if target is None:
            raise ElsewhereError(f"{provider.service} is gone")
        app = ReverseProxy(target) if isinstance(target, str) else target
        await app({**scope, "root_path": prefix, "raw_path": path, "path": path.decode()}, receive, send)


def _header(message: Message, wanted: bytes) -> str:
    values = [value for name, value in message.get("headers", ()) if name.lower() == wanted]
    return values[0].decode("latin-1") if values else ""


def labels_in(scope: Scope) -> Labels:
    """The labels of which a provider has to have one, as a request says it. Raises RefusedError."""
    try:
        return required_labels(scope["headers"])
    except ValueError as exc:
        raise RefusedError(400, "invalid_request", str(exc)) from exc


def model_in(body: bytes) -> str:
    """The model that a request names. Raises RefusedError."""
    try:
        content: Any = json.loads(body)
    except ValueError as exc:
        raise RefusedError(400, "invalid_request", f"the request is no JSON: {exc}") from exc
    model = cast("dict[str, object]", content).get("model") if isinstance(content, dict) else None
    if not isinstance(model, str) or not model:
        raise RefusedError(400, "invalid_request", "the request names no model")
    return model


async def _read(receive: Receive) -> bytes:
    body, more = bytearray(), True
    while more and (message := await receive())["type"] == "http.request":
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > MAX_BODY_BYTES:
            raise RefusedError(413, "request_too_large", f"a request has at most {MAX_BODY_BYTES} bytes")
    return bytes(body)


def replayed(body: bytes, receive: Receive) -> Receive:
    """ASGI's receive for a body that was read already."""
    left: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        if left:
            await trio.lowlevel.checkpoint()
            return left.pop()
        return await receive()

    return receive_again


def unless_elsewhere(send: Send, *, is_last: bool) -> Send:
    """ASGI's send, which raises ElsewhereError for an answer that another provider may give better.

    Args:
        is_last: there is no other; then the asker is to have what the provider itself says, but not what the mesh does.
    """

    async def send_on(message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] in ELSEWHERE:
            names = {name.lower() for name, _ in message.get("headers", ())}
            if not is_last or ERROR_HEADER in names:
                raise ElsewhereError(f"answered {message['status']}")
        await send(message)

    return send_on
