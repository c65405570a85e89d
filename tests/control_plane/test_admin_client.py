"""What an admin's programs get from the control plane, and from what is none."""

from pathlib import Path

import httpx
import pytest

from agentmesh.control_plane.admin_client import create_token_at
from agentmesh.control_plane.errors import ControlPlaneUnavailableError, RequestRefusedError, UnauthorizedError
from agentmesh.control_plane.tokens import token_id
from agentmesh.errors import RemoteProtocolError
from tests.control_plane.plane import ADMIN_TOKEN, open_harness

WANTED = {"role": "node", "max_usages": 3, "ttl": 60.0}
URL = "http://control-plane"


async def test_a_token_is_made(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as mesh:
        transport = httpx.ASGITransport(mesh.plane.app)
        created = await create_token_at(URL, ADMIN_TOKEN, transport=transport, **WANTED)  # type: ignore[arg-type]
        assert (created.role, created.max_usages, created.expires_at) == ("mesh:role:node", 3, mesh.clock.now + 60)
        assert created.id == token_id(created.value)
        assert created.value not in repr(created)


async def test_refusals_are_typed(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as mesh:
        transport = httpx.ASGITransport(mesh.plane.app)
        with pytest.raises(UnauthorizedError, match="an admin token is needed"):
            await create_token_at(URL, "wrong", transport=transport, **WANTED)  # type: ignore[arg-type]
        with pytest.raises(RequestRefusedError, match="ttl is above 0"):
            await create_token_at(URL, ADMIN_TOKEN, transport=transport, role="node", max_usages=1, ttl=0)


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b"null", b'{"token": "mesh-bt-secret", "expires_at": "soon"}'])
async def test_what_is_no_token_is_a_protocol_error_without_the_answer(body: bytes) -> None:
    transport = httpx.MockTransport(lambda _: httpx.Response(201, content=body))
    with pytest.raises(RemoteProtocolError) as caught:
        await create_token_at(URL, ADMIN_TOKEN, transport=transport, role="node", max_usages=1, ttl=1)
    assert caught.value.__cause__ is None
    assert "secret" not in str(caught.value)


async def test_it_is_tried_once() -> None:
    requests: list[httpx.Request] = []

    def busy(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(503)

    with pytest.raises(ControlPlaneUnavailableError):
        await create_token_at(URL, ADMIN_TOKEN, transport=httpx.MockTransport(busy), role="node", max_usages=1, ttl=1)
    assert len(requests) == 1
