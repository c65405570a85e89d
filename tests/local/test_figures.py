"""What the local API counts: requests by route, the programs that ask, the tokens that models say they used."""

import json
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from trio.testing import MockClock

from agentmesh.local.measured import Measured, route_of
from agentmesh.local.usage import MAX_BYTES, Usage, UsageReader
from agentmesh.node.figures import MAX_AGENTS, MAX_MODELS, OTHER, ApiFigures
from tests.local.test_openai import Provider, open_models, say

PLAIN = {"usage": {"prompt_tokens": 7, "completion_tokens": 11}}


def read(content_type: str, *pieces: bytes) -> Usage:
    reader = UsageReader(content_type)
    for piece in (*pieces, b""):
        reader.receive_data(piece)
    return reader.usage


@given(st.data(), st.sampled_from(["application/json", "application/json; charset=utf-8", "text/event-stream"]))
def test_usage_is_read_however_an_answer_is_cut(data: st.DataObject, content_type: str) -> None:
    text = json.dumps(PLAIN).encode()
    if content_type == "text/event-stream":
        text = b'data: {"usage": null}\r\n\r\ndata: ' + text + b"\n\ndata: [DONE]\n\n"
    cut = data.draw(st.integers(0, len(text)))
    assert read(content_type, text[:cut], text[cut:]) == Usage(7, 11)


@pytest.mark.parametrize(
    ("content_type", "pieces"),
    [
        ("", [json.dumps(PLAIN).encode()]),
        ("text/plain", [json.dumps(PLAIN).encode()]),
        ("application/json", [b'{"usage"']),
        ("application/json", [b'["usage"]']),
        ("application/json", [b'{"usage": 3}']),
        ("application/json", [b'{"usage": {"prompt_tokens": -1, "completion_tokens": true}}']),
        ("application/json", [b" " * (MAX_BYTES + 1), json.dumps(PLAIN).encode()]),
        ("text/event-stream", [b"data: " + b" " * MAX_BYTES, json.dumps(PLAIN).encode()]),
    ],
)
def test_what_says_no_usage_is_let_pass(content_type: str, pieces: list[bytes]) -> None:
    assert read(content_type, *pieces) == Usage()


@pytest.mark.parametrize(
    ("path", "route"),
    [
        ("/healthz", "health"),
        ("/mcp", "mcp"),
        ("/v1/models", "models"),
        ("/v1/completions", "completions"),
        ("/mesh/service/discover", "service-registry"),
        ("/mesh/12D3/http/app/", "egress"),
        ("/debug/mesh-info", "other"),
    ],
)
def test_every_path_has_its_route(path: str, route: str) -> None:
    assert route_of(path.encode()) == route


async def test_requests_under_way_their_first_byte_and_their_end_are_counted(autojump_clock: MockClock) -> None:
    figures = ApiFigures()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 103, "headers": []})
        await trio.sleep(0.2)
        await send({"type": "http.response.start", "status": 202, "headers": []})
        assert figures.in_flight == 1
        await trio.sleep(2)
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        if scope["raw_path"] == b"/v1/models":
            raise ValueError("broken")

    async def receive() -> Any:
        await trio.sleep_forever()

    async def send(message: Any) -> None:
        await trio.lowlevel.checkpoint()

    scope = {"type": "http", "raw_path": b"/mcp", "headers": [(b"user-agent", b"agent/1.0 (x)")]}
    await Measured(app, figures)(scope, receive, send)
    with pytest.raises(ValueError, match="broken"):
        await Measured(app, figures)({**scope, "raw_path": b"/v1/models"}, receive, send)
    assert figures.in_flight == 0
    assert (figures.first_byte["mcp"].total, figures.whole["mcp", 202].total) == pytest.approx((0.2, 2.2))
    assert sum(figures.whole["models", 202].counts) == 1
    assert figures.agents == {"agent/1.0"}


def test_agents_and_models_beyond_a_bound_are_not_told_apart() -> None:
    figures = ApiFigures()
    for number in range(MAX_AGENTS + 2):
        figures.asked_by(f"agent/{number}")
    figures.asked_by("agent/0")
    assert (len(figures.agents), figures.untracked) == (MAX_AGENTS, 2)
    for number in range(MAX_MODELS + 2):
        figures.used("peer", f"model {number}", 1, 2)
    figures.used("peer", "model 0", 1, 2)
    assert figures.tokens["peer", "model 0", "completion"] == 4
    assert figures.tokens[OTHER, OTHER, "prompt"] == 2
    assert len(figures.tokens) == 2 * (MAX_MODELS + 1)


class Counting(Provider):
    """A provider that says what it used."""

    async def chat(self, request: Request) -> Response:
        answer = await super().chat(request)
        if answer.status_code != 200:
            return answer
        return JSONResponse({**json.loads(bytes(answer.body)), "usage": {"prompt_tokens": 3, "completion_tokens": 4}})


async def test_the_facade_counts_tokens_retries_and_refusals(tmp_path: Path) -> None:
    bad, good = Provider("bad", ("m",), 503), Counting("good", ("m",))
    async with open_models(tmp_path, bad, good) as mesh:
        client, figures, peer = mesh.client(), mesh.caller.figures, str(mesh.peers[1].peer)
        for _ in range(4):
            assert await say(client, "m") == "good"
        assert figures.tokens == {(peer, "m", "prompt"): 12, (peer, "m", "completion"): 16}
        assert (figures.retries, figures.rejections["provider_backoff"] > 0) == (1, True)
        for content, more in ((b'{"model": "none"}', {}), (b'{"model": "m"}', {"X-Mesh-Required-Labels": "a=b"})):
            await mesh.http.post("http://node/v1/chat/completions", content=content, headers=more)
        assert figures.rejections["no_eligible_provider"] == figures.rejections["label_unattested"] == 1
        families = text_string_to_metric_families((await mesh.http.get("http://node/metrics")).text)
        shown = {
            (sample.name.removeprefix("agentmesh_node_"), *sorted(sample.labels.values())): sample.value
            for family in families
            for sample in family.samples
        }
        assert shown["inference_tokens_total", *sorted((peer, "m", "prompt"))] == 12
        assert shown["request_duration_seconds_count", "200", "completions"] == 4
        assert (shown["requests_in_flight",], shown["facade_retries_total",]) == (1, 1)
