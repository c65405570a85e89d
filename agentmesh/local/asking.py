"""What the node asks other members itself, with a bound on what they may answer."""

from contextlib import aclosing
from typing import Any, cast

import httpx2

from agentmesh.errors import ServiceError

MAX_ANSWER_BYTES = 4 * 1024 * 1024
KEPT_HEADERS = ("content-type", "mcp-session-id")


async def fetch(client: httpx2.AsyncClient, method: str, url: str, **options: Any) -> httpx2.Response:
    """A request and its whole answer.

    Args:
        options: those of `client.stream`.
    Raises:
        ServiceError: the answer is longer than MAX_ANSWER_BYTES.
        httpx2.HTTPError: there is none.
    """
    body = bytearray()
    async with client.stream(method, url, **options) as answer, aclosing(cast(Any, answer.aiter_bytes())) as pieces:
        async for piece in pieces:
            body += piece
            if len(body) > MAX_ANSWER_BYTES:
                raise ServiceError(f"answers with more than {MAX_ANSWER_BYTES} bytes")
    headers = {name: answer.headers[name] for name in KEPT_HEADERS if name in answer.headers}
    return httpx2.Response(answer.status_code, headers=headers, content=bytes(body))
