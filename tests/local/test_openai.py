"""The official OpenAI client, as it comes, against all models of the mesh."""

import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import httpx2
import openai
import pytest
import trio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from agentmesh.local import LocalConfig, serve_local_api
from agentmesh.local.asking import MAX_ANSWER_BYTES
from agentmesh.local.openai import MAX_BODY_BYTES
from agentmesh.node import Node
from tests.node.loopback import open_loopback

# The client leaves a generator of its own to the garbage collector, of which Trio warns.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

SAY_HI: Any = [{"role": "user", "content": "hi"}]


class Words:
    """Three pieces of a streamed answer."""

    def __init__(self, model: str) -> None:
        self.left = [*(piece(model, word) for word in ("Hello", ", ", "world")), "data: [DONE]\n\n"]

    def __aiter__(self) -> "Words":
        return self

    async def __anext__(self) -> str:
        await trio.lowlevel.checkpoint()
        if not self.left:
            raise StopAsyncIteration
        return self.left.pop(0)


def piece(model: str, word: str) -> str:
    choice = {"index": 0, "delta": {"content": word}, "finish_reason": None}
    content = {"id": "1", "object": "chat.completion.chunk", "created": 0, "model": model, "choices": [choice]}
    return f"data: {json.dumps(content)}\n\n"


@attrs.define
class Provider:
    """An inference server in process. It answers with its name, or with `status`."""

    name: str
    models: tuple[str, ...]
    status: int = 200
    asked: int = 0
    listed: int = 0
    headers: dict[str, str] = attrs.Factory(dict[str, str])
    labels: dict[str, str] = attrs.Factory(dict[str, str])  # of the member that has it

    @property
    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/v1/models", self.list),
                Route("/v1/chat/completions", self.chat, methods=["POST"]),
            ]
        )

    async def list(self, _: Request) -> Response:
        self.listed += 1
        return JSONResponse({"object": "list", "data": [{"id": name, "object": "model"} for name in self.models]})

    async def chat(self, request: Request) -> Response:
        self.asked += 1
        self.headers = dict(request.headers)
        body = await request.json()
        if self.status != 200:
            return JSONResponse({"error": {"message": "busy"}}, self.status)
        if body.get("stream"):
            return StreamingResponse(Words(body["model"]), media_type="text/event-stream")
        message = {"role": "assistant", "content": self.name}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        answer = {"id": "1", "object": "chat.completion", "created": 0, "model": body["model"], "choices": [choice]}
        return JSONResponse(answer)


@attrs.frozen
class Models:
    caller: Node
    peers: list[Node]
    http: httpx2.AsyncClient

    def client(self) -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(base_url="http://node/v1", api_key="secret", http_client=self.http, max_retries=0)


@asynccontextmanager
async def open_models(folder: Path, *providers: Provider, own: Provider | None = None) -> AsyncGenerator[Models]:
    async with AsyncExitStack() as stack:
        mesh = await stack.enter_async_context(open_loopback(folder, "router"))
        peers = [await stack.enter_async_context(await mesh.node(labels=one.labels)) for one in providers]
        for node, provider in zip(peers, providers, strict=True):
            await stack.enter_async_context(node.serve("inference", "llm", provider.app))
        caller = await stack.enter_async_context(await mesh.node(labels=own.labels if own else {}))
        if own is not None:
            await stack.enter_async_context(caller.serve("inference", "llm", own.app))
        await stack.enter_async_context(serve_local_api(caller, LocalConfig(folder / "s")))
        with trio.fail_after(20):
            while len(await caller.find_providers("inference")) < len(providers):  # noqa: ASYNC110 - only asking tells
                await trio.sleep(0.1)
        transport = httpx2.AsyncHTTPTransport(uds=str(folder / "s"))
        http = await stack.enter_async_context(httpx2.AsyncClient(transport=transport, timeout=20))
        yield Models(caller, peers, http)


async def say(client: openai.AsyncOpenAI, model: str) -> str | None:
    answer = await client.chat.completions.create(model=model, messages=SAY_HI)
    return answer.choices[0].message.content


async def test_open_ai_facade_cuj(tmp_path: Path) -> None:
    provider = Provider("far", ("big", "shared"))
    async with open_models(tmp_path, provider, own=Provider("here", ("shared",))) as mesh:
        client = mesh.client()
        owners = {model.id: model.owned_by async for model in await client.models.list()}
        assert owners == {"big": str(mesh.peers[0].peer), "shared": "local"}
        assert await say(client, "big") == "far"
        assert not {"authorization", "x-mesh-biscuit"} & set(provider.headers)
        assert await say(client, "shared") == "here"
        stream = await client.chat.completions.create(model="big", messages=SAY_HI, stream=True)
        assert [chunk.choices[0].delta.content async for chunk in stream] == ["Hello", ", ", "world"]
        with pytest.raises(openai.NotFoundError) as missing:
            await say(client, "none")
        assert (missing.value.code, missing.value.type) == ("model_not_found", "invalid_request_error")


async def test_only_a_provider_with_a_required_label_is_asked(tmp_path: Path) -> None:
    near = Provider("near", ("m", "one"), labels={"site": "a"})
    far, own = Provider("far", ("m",), labels={"site": "b"}), Provider("here", ("m",), labels={"site": "c"})
    async with open_models(tmp_path, near, far, own=own) as mesh:

        async def ask(model: str, labels: str) -> str | None:
            client = mesh.client().with_options(default_headers={"X-Mesh-Required-Labels": labels})
            return await say(client, model)

        assert [await ask("m", label) for label in ("site=a", "site=b", "site=c")] == ["near", "far", "here"]
        assert await ask("m", "site=c, site=a") == "here"
        for model, labels in (("m", "site=d"), ("one", "site=b"), ("one", "zone=a")):
            with pytest.raises(openai.InternalServerError) as refused:
                await ask(model, labels)
            assert (refused.value.status_code, refused.value.code) == (503, "label_unattested")
        assert (near.asked, far.asked, own.asked) == (1, 1, 2), "nothing went to anybody else"
        assert mesh.caller.figures.rejections["label_mismatch"] > 0


async def test_another_provider_is_tried_before_anything_was_sent(tmp_path: Path) -> None:
    bad, good = Provider("bad", ("m",), 503), Provider("good", ("m",))
    async with open_models(tmp_path, bad, good) as mesh:
        client = mesh.client()
        assert [await say(client, "m") for _ in range(4)] == ["good"] * 4
        assert bad.asked == 1  # then it is left alone for a while
        good.status = 429
        with pytest.raises((openai.RateLimitError, openai.InternalServerError)):
            await say(client, "m")


async def test_whoever_wants_a_view_waits_for_the_same(tmp_path: Path) -> None:
    own = Provider("here", ("m",))
    async with open_models(tmp_path, own=own) as mesh, trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(say, mesh.client(), "m")
    assert (own.listed, own.asked) == (1, 20)


async def test_endless_lists_of_models_are_cut_short(tmp_path: Path) -> None:
    name = "x" * 1024
    async with open_models(tmp_path, own=Provider("here", (name,) * (MAX_ANSWER_BYTES // 1024))) as mesh:
        assert (await mesh.http.get("http://node/v1/models")).json()["data"] == []


async def test_in_process(tmp_path: Path) -> None:
    async with open_models(tmp_path, Provider("far", ("big",))) as mesh, mesh.caller.http_client2(timeout=20) as http:
        url = f"http://{mesh.peers[0].peer.dns_label}.peer.mesh/inference/llm/v1"
        client = openai.AsyncOpenAI(base_url=url, api_key="none", http_client=http, max_retries=0)
        assert await say(client, "big") == "far"
        stream = await client.chat.completions.create(model="big", messages=SAY_HI, stream=True)
        assert len([chunk async for chunk in stream]) == 3


async def test_requests_that_nobody_could_answer(tmp_path: Path) -> None:
    async with open_models(tmp_path) as mesh:

        async def ask(method: str, content: bytes, **headers: str) -> tuple[int, str]:
            url = "http://node/v1/chat/completions"
            answer = await mesh.http.request(method, url, content=content, headers=headers)
            return answer.status_code, answer.json()["error"]["code"]

        assert await ask("GET", b"") == (405, "method_not_allowed")
        assert await ask("POST", b"{") == (400, "invalid_request")
        assert await ask("POST", b'["model"]') == (400, "invalid_request")
        assert await ask("POST", b'{"model": "m"}') == (404, "model_not_found")
        assert await ask("POST", b'{"model": "m"}', **{"X-Mesh-Required-Labels": "a"}) == (400, "invalid_request")
        assert await ask("POST", bytes(MAX_BODY_BYTES + 1)) == (413, "request_too_large")
        assert (await mesh.http.get("http://node/v1/models")).json() == {"object": "list", "data": []}
