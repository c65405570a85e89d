"""Where the local API is, and for whom."""

import socket
import stat
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
import trio

from agentmesh.identity import Identity
from agentmesh.local import LocalConfig
from agentmesh.local.listening import MAX_PATH_BYTES, listen_on_port, listen_on_socket
from agentmesh.local.serving import serve_local
from agentmesh.membership import StateError
from agentmesh.membership.guard import Guarded, load_or_create_token
from agentmesh.protocols.http import ASGIApp, Receive, Scope, Send
from tests.local.backend import is_listening, until, until_end

PEER = Identity.generate().peer


async def show_headers(scope: Scope, receive: Receive, send: Send) -> None:
    text = b" ".join(name + b"=" + value for name, value in scope["headers"] if b"auth" in name)
    await send({"type": "http.response.start", "status": 200})
    await send({"type": "http.response.body", "body": text})


async def endless(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200})
    await send({"type": "http.response.body", "body": b"begun", "more_body": True})
    await trio.sleep_forever()


@asynccontextmanager
async def open_port(app: ASGIApp) -> AsyncGenerator[str]:
    listeners = await listen_on_port("127.0.0.1", 0)
    async with serve_local(app, PEER, listeners):
        yield f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"


async def test_a_socket_is_its_owners_alone_and_goes_with_its_server(tmp_path: Path) -> None:
    path = tmp_path / "node.sock"
    with listen_on_socket(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with pytest.raises(OSError, match="another process listens there"), listen_on_socket(path):
            pass
        assert is_listening(path)
    assert not path.exists()


async def test_a_socket_that_a_dead_process_left_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "node.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with listen_on_socket(path):
        assert is_listening(path)


async def test_a_path_that_will_not_do_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    long = Path("/" + "x" * MAX_PATH_BYTES)
    for path, why in [(tmp_path / "file", "no socket"), (long, "at most 103"), (tmp_path / "none" / "x", "No such")]:
        with pytest.raises(OSError, match=why), listen_on_socket(path):
            pass
    assert (tmp_path / "file").read_text() == "precious"


async def test_requests_under_way_get_a_moment_when_it_stops(tmp_path: Path, autojump_clock: object) -> None:
    path = tmp_path / "s"
    with listen_on_socket(path) as listener:
        async with serve_local(endless, PEER, [listener]):
            stream = await trio.open_unix_socket(str(path))
            await stream.send_all(b"GET / HTTP/1.1\r\nHost: n\r\n\r\n")
            await until(stream, b"begun")
    async with stream:
        assert not (await until_end(stream)).endswith(b"0\r\n\r\n")


def test_a_port_needs_a_token() -> None:
    with pytest.raises(ValueError, match="token"):
        LocalConfig(bind_address="127.0.0.1:0")


def test_a_token_is_made_once_and_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "token"
    token = load_or_create_token(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert load_or_create_token(path) == token
    path.chmod(0o640)
    with pytest.raises(StateError, match="others may read"):
        load_or_create_token(path)
    path.chmod(0o600)
    path.write_text("two words\n")
    with pytest.raises(StateError, match="no token"):
        load_or_create_token(path)


@pytest.mark.parametrize(
    ("path", "headers", "status", "text"),
    [
        ("/", {}, 401, None),
        ("/", {"Authorization": "Basic secret"}, 401, None),
        ("/", {"Authorization": "Bearer"}, 401, None),
        ("/", {"Authorization": "Bearer wrong"}, 403, None),
        ("/", {"Authorization": "Bearer secret"}, 200, ""),
        ("/", {"X-Mesh-Authentication": "Bearer secret", "Authorization": "Bearer x"}, 200, "authorization=Bearer x"),
        ("/", {"X-Mesh-Authentication": "Bearer wrong", "Authorization": "Bearer secret"}, 403, None),
        ("/readyz", {}, 200, ""),
        ("/readyz/", {}, 401, None),
    ],
)
async def test_a_port_is_for_whoever_shows_the_token(
    path: str, headers: dict[str, str], status: int, text: str | None
) -> None:
    assert "secret" not in repr(Guarded(show_headers, "secret"))
    async with open_port(Guarded(show_headers, "secret")) as url, httpx2.AsyncClient(base_url=url) as client:
        answer = await client.get(path, headers=headers)
    assert answer.status_code == status
    assert text is None or answer.text == text
    assert ("x-mesh-error" in answer.headers) == (text is None)


async def test_more_than_enough_connections_are_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentmesh.local.serving.MAX_CONNECTIONS", 0)
    async with open_port(show_headers) as url, httpx2.AsyncClient() as client:
        assert (await client.get(url)).status_code == 503
