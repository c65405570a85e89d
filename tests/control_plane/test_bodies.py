"""Every route meets every bad body, and every wrong method, in the same clear way."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from agentmesh.control_plane.http import JSON, MAX_BODY_BYTES, PROTOBUF
from tests.control_plane.asking import open_askings

TEXT = "text/plain; charset=utf-8"
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")

# Bodies that are none of any message, by what they are said to be.
BAD: list[tuple[str, bytes]] = [
    (PROTOBUF, b"\xff\xff"),
    (PROTOBUF, b"\x0a\x05ab"),  # cut short
    (PROTOBUF, b"\x0a\x02\xff\xfe"),  # no UTF-8
    (PROTOBUF, b"\x0b\x0c"),  # groups
    (JSON, b""),
    (JSON, b"{"),
    (JSON, b"\xff"),  # no UTF-8
    (JSON, b"[]"),
    (JSON, b"null"),
    (JSON, b"[" * 100_000),
    (JSON, b'{"nonsense": 5}'),
    (JSON, b'{"role": "\xff"}'),
]


class Endless(httpx.AsyncByteStream):
    """A body that goes on for as long as somebody reads it."""

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        return b"x" * 100_000


async def test_every_route_refuses_what_is_no_body_of_it(tmp_path: Path) -> None:
    async with open_askings(tmp_path) as askings:
        http = askings.site.mesh.http
        for method, path in await askings.operations():
            good = askings.make(method, path)
            if good.body is None:
                continue
            url = path.replace("{id}", good.in_path.get("id", ""))
            for content_type, content in BAD:
                answer = await http.request(
                    method, url, content=content, headers={**good.headers, "Content-Type": content_type}
                )
                expected = 400 if content_type in good.spellings else 415
                where = (method, path, content_type, content[:20], answer.text)
                assert answer.status_code == expected, where
                assert (answer.headers["content-type"], answer.text.count("\n")) == (TEXT, 1), where
            for content_type in ("", "text/json", "application/x-www-form-urlencoded"):
                answer = await http.request(
                    method, url, content=b"{}", headers={**good.headers, "Content-Type": content_type}
                )
                assert answer.status_code == 415, (method, path, content_type)


async def test_every_route_refuses_what_is_too_long(tmp_path: Path) -> None:
    async with open_askings(tmp_path) as askings:
        for method, path in await askings.operations():
            good = askings.make(method, path)
            if good.body is not None:
                url = "http://control-plane" + path.replace("{id}", good.in_path.get("id", ""))
                headers = {**good.headers, "Content-Type": JSON}
                request = httpx.Request(method, url, headers=headers, stream=Endless())
                answer = await askings.site.mesh.http.send(request)
                assert (answer.status_code, answer.text) == (413, f"the body is over {MAX_BODY_BYTES} bytes\n")


@pytest.mark.parametrize("method", METHODS)
async def test_every_route_refuses_a_method_that_it_has_not(tmp_path: Path, method: str) -> None:
    async with open_askings(tmp_path) as askings:
        known = await askings.operations()
        for path in sorted({path for _, path in known}):
            if (method, path) not in known:
                answer = await askings.site.mesh.http.request(method, path.replace("{id}", "1"))
                assert (answer.status_code, answer.text) == (405, "Method Not Allowed"), path
