"""How the admin API says no: JSON as RFC 9457 has it, with a word for programs and a sentence for people."""

import json
from collections.abc import Mapping
from http import HTTPStatus

import attrs
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from agentmesh.errors import MeshError
from agentmesh.protocols.http import Send

PROBLEM = "application/problem+json"
WORDS = {HTTPStatus.NOT_FOUND: "no_such_path", HTTPStatus.METHOD_NOT_ALLOWED: "wrong_method"}


class RefusedError(MeshError):
    """A request is refused. The text goes to the caller, so it holds nothing that the caller may not know.

    Attributes:
        status: of the HTTP answer.
        word: the reason, for programs.
        retry_after: seconds that the caller is asked to wait; None: it need not ask again.
        more: what else is said, by its name in the answer.
    """

    def __init__(
        self, status: HTTPStatus, word: str, text: str, *, retry_after: int | None = None, **more: object
    ) -> None:
        super().__init__(text)
        self.status, self.word, self.retry_after, self.more = status, word, retry_after, more


def body_of(status: int, word: str, text: str, more: Mapping[str, object] | None = None) -> dict[str, object]:
    """The object that a refusal is."""
    return {"title": HTTPStatus(status).phrase, "status": status, "code": word, "detail": text, **(more or {})}


@attrs.frozen
class ProblemAnswer:
    """A refusal, over ASGI: of whoever does not show the token."""

    status: int
    word: str
    text: str
    challenge: str

    async def send(self, send: Send) -> None:
        body = json.dumps(body_of(self.status, self.word.replace("-", "_"), self.text)).encode()
        headers = [(b"content-type", PROBLEM.encode()), (b"content-length", str(len(body)).encode())]
        if self.status == HTTPStatus.UNAUTHORIZED:
            headers.append((b"www-authenticate", self.challenge.encode()))
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


async def on_refused(_: Request, exc: Exception) -> Response:
    assert isinstance(exc, RefusedError)
    headers = {} if exc.retry_after is None else {"Retry-After": str(exc.retry_after)}
    return _problem(body_of(exc.status, exc.word, str(exc), exc.more), headers)


async def on_http_exception(_: Request, exc: Exception) -> Response:
    """A path or a method that there is not."""
    assert isinstance(exc, HTTPException)
    word = WORDS.get(HTTPStatus(exc.status_code), "refused")
    return _problem(body_of(exc.status_code, word, exc.detail), exc.headers or {})


def _problem(body: dict[str, object], headers: Mapping[str, str]) -> Response:
    status = body["status"]
    assert isinstance(status, int)
    return JSONResponse(body, status, dict(headers), PROBLEM)


EXCEPTION_HANDLERS = {RefusedError: on_refused, HTTPException: on_http_exception}
