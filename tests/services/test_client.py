"""httpx and httpx2 over the mesh: the same promises for both."""

import base64
from typing import Any

import pytest
import trio

from agentmesh.protocols.http import Receive, Scope, Send
from agentmesh.services import Calls, host_name
from tests.services.libraries import ORIGIN, Echo, Library
from tests.services.mesh import BOB, CREDENTIAL, open_mesh


async def test_a_call(library: Library) -> None:
    app = Echo()
    async with open_mesh(app) as mesh, library.client(mesh.calls) as client:
        response = await client.post(f"{ORIGIN}/http/x/a%2fb?c=d", content=b"hello", headers=[("h", "1"), ("h", "2")])
        assert (response.status_code, response.content) == (200, b"hello")
        assert response.headers.get_list("a") == ["1", "2"]
        await mesh.check_idle()
    headers = app.scopes[0]["headers"]
    assert [value for name, value in headers if name == b"h"] == [b"1", b"2"]
    assert [value for name, value in headers if name == b"x-mesh-biscuit"] == [base64.b64encode(CREDENTIAL)]
    assert (app.scopes[0]["raw_path"], app.scopes[0]["query_string"]) == (b"/http/x/a%2fb", b"c=d")


async def test_each_request_has_a_stream_of_its_own_and_the_credential_of_its_time(library: Library) -> None:
    app = Echo()
    credentials = iter([b"first", b"second"])
    async with (
        open_mesh(app) as mesh,
        library.client(
            Calls(mesh.open_peer, lambda: next(credentials)), headers={"Connection": "keep-alive"}
        ) as client,
    ):
        for _ in range(2):
            await client.get(ORIGIN)
            await mesh.check_idle()
        assert len(mesh.streams) == 4
    sent = [dict(scope["headers"]) for scope in app.scopes]
    assert [base64.b64decode(headers[b"x-mesh-biscuit"]) for headers in sent] == [b"first", b"second"]
    assert [headers[b"connection"] for headers in sent] == [b"close", b"close"]


async def test_many_calls_at_once(library: Library) -> None:
    async with open_mesh(Echo()) as mesh, library.client(mesh.calls) as client, trio.open_nursery() as nursery:

        async def call(number: int) -> None:
            response = await client.post(ORIGIN, content=b"%d" % number)
            assert response.content == b"%d" % number

        for number in range(200):
            nursery.start_soon(call, number)
    await mesh.check_idle()


# ── names ──


@pytest.mark.parametrize("spelling", [str(BOB), str(BOB.dns_label), BOB.dns_label.upper()])
async def test_every_spelling_of_a_peer_reaches_it(library: Library, spelling: str) -> None:
    app = Echo()
    async with (
        open_mesh(app) as mesh,
        library.client(mesh.calls, base_url=f"http://{spelling}.peer.mesh/http/x") as client,
    ):
        assert (await client.get("/a")).status_code == 200
        assert (await client.get(f"http://{spelling}.peer.mesh/b")).status_code == 200
        async with client.stream("GET", f"http://{spelling}.peer.mesh/c") as response:
            assert response.status_code == 200
            await response.aread()
    assert [scope["path"] for scope in app.scopes] == ["/http/x/a", "/b", "/c"]


async def test_a_base58_id_in_a_parsed_url_is_explained(library: Library) -> None:
    async with open_mesh(Echo()) as mesh, library.client(mesh.calls) as client:
        with pytest.raises(library.module.InvalidURL, match="dns_label"):
            await client.get(library.module.URL(f"http://{BOB}.peer.mesh/"))
        with pytest.raises(library.module.InvalidURL, match="not a peer ID"):
            await client.get("http://nobody.peer.mesh/")
        with pytest.raises(library.module.UnsupportedProtocol, match="http"):
            await client.get(f"https://{host_name(BOB)}/")
        assert (await client.get(library.module.URL(ORIGIN))).status_code == 200


async def test_a_redirect_may_spell_a_peer_as_it_likes(library: Library) -> None:
    async def redirect(scope: Scope, receive: Receive, send: Send) -> None:
        to = {"/one": f"http://{BOB}.peer.mesh/two", "/two": "/three"}.get(scope["path"])
        headers = [(b"location", to.encode())] if to else []
        await send({"type": "http.response.start", "status": 307 if to else 200, "headers": headers})
        await send({"type": "http.response.body", "body": scope["path"].encode()})

    async with open_mesh(redirect) as mesh, library.client(mesh.calls, follow_redirects=True) as client:
        response = await client.get(f"{ORIGIN}/one")
    assert response.text == "/three"
    assert len(response.history) == 2


async def test_other_hosts_are_reached_over_the_network(library: Library) -> None:
    async def answer(request: Any) -> Any:
        return library.module.Response(200, text=request.url.host)

    elsewhere = library.module.MockTransport(answer)
    async with open_mesh(Echo()) as mesh:
        async with library.client(mesh.calls, transport=elsewhere) as client:
            assert (await client.get("http://example.org/")).text == "example.org"
            assert (await client.get("http://peer.mesh/")).text == "peer.mesh"
            assert (await client.get(ORIGIN)).content == b""
        async with library.client(mesh.calls, mounts={"all://example.org": elsewhere}) as client:
            assert (await client.get("http://example.org/")).text == "example.org"
            assert (await client.get(ORIGIN)).content == b""
