"""A whole control plane on loopback, with its own client."""

import logging
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio

from agentmesh.control_plane.client import open_client
from agentmesh.control_plane.config import Config
from agentmesh.control_plane.http import MAX_BODY_BYTES
from agentmesh.control_plane.policy.open import OPEN_POLICY
from agentmesh.control_plane.refusals import RefusedError
from agentmesh.control_plane.server import open_control_plane, run_control_plane
from agentmesh.identity import Identity
from agentmesh.types import Address
from tests.control_plane.plane import PROTOBUF


def config(folder: Path, **changes: Any) -> Config:
    settings: dict[str, Any] = {
        "bind_address": "127.0.0.1:0",
        "db_dsn": str(folder / "control-plane.db"),
        "auto_approve_enrollment": True,
        "policy": OPEN_POLICY,
    }
    return Config(**(settings | changes))


async def test_a_router_and_a_member_from_enrollment_to_info(tmp_path: Path) -> None:
    async with open_control_plane(config(tmp_path)) as plane:
        router, member = Identity.generate(), Identity.generate()
        async with open_client(plane.url, router) as calls:
            issued = await calls.enroll(await plane.create_token("router"), role="router", labels={"zone": "a"})
            address = Address.parse("/ip4/127.0.0.1/tcp/4001").with_peer(router.peer)
            await calls.renew_lease(issued.credential, [address])
        async with open_client(plane.url, member) as calls:
            issued = await calls.enroll(await plane.create_token("node"))
            assert issued.router_addresses == (address,)
            assert issued.control_plane_key == plane.authority.public_key
            assert await calls.keys() == plane.authority.trusted
            refreshed = await calls.refresh(issued.credential)
            assert plane.authority.verify(refreshed.credential, member.peer).expires_at == refreshed.expires_at
            (listed,) = (await calls.info()).routers
            assert (listed.peer, listed.addresses, dict(listed.labels)) == (router.peer, (address,), {"zone": "a"})


async def test_it_runs_in_a_nursery_of_its_callers(tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        plane = await nursery.start(run_control_plane, config(tmp_path))
        async with httpx.AsyncClient(base_url=plane.url) as http:
            assert (await http.get("/readyz")).status_code == 200
        nursery.cancel_scope.cancel()


async def test_a_body_that_is_too_large_is_refused_before_it_is_all_there(tmp_path: Path) -> None:
    async with open_control_plane(config(tmp_path)) as plane, httpx.AsyncClient(base_url=plane.url) as http:
        for path in ("/enroll", "/routers/lease"):
            response = await http.post(path, content=bytes(MAX_BODY_BYTES + 1), headers=PROTOBUF)
            assert response.status_code == 413
        response = await http.post("/enroll", content=bytes(MAX_BODY_BYTES), headers=PROTOBUF)
        assert response.status_code == 400


async def test_a_caller_that_leaves_in_the_middle_is_no_trouble(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_control_plane(config(tmp_path)) as plane, httpx.AsyncClient(base_url=plane.url) as http:
        url = httpx.URL(plane.url)
        async with await trio.open_tcp_stream(url.host, url.port or 0) as stream:
            head = (
                b"POST /enroll HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-protobuf\r\ncontent-length: 9\r\n\r\n"
            )
            await stream.send_all(head + b"ab")
        assert (await http.get("/healthz")).status_code == 200
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_a_request_for_a_websocket_is_turned_down(tmp_path: Path) -> None:
    headers = {
        "Connection": "upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
    }
    async with open_control_plane(config(tmp_path)) as plane, httpx.AsyncClient(base_url=plane.url) as http:
        assert (await http.get("/info", headers=headers)).status_code == 403


async def test_what_leaves_the_block_leaves_it_bare(tmp_path: Path) -> None:
    with pytest.raises(LookupError):
        async with open_control_plane(config(tmp_path)):
            raise LookupError("of the caller's own")


async def test_metrics_have_a_port_of_their_own(tmp_path: Path) -> None:
    async with (
        open_control_plane(config(tmp_path, metrics_address="127.0.0.1:0")) as plane,
        httpx.AsyncClient() as http,
    ):
        assert plane.metrics_url is not None
        codes = {
            path: (await http.get(plane.metrics_url + path)).status_code
            for path in ("/metrics", "/healthz", "/readyz", "/info", "/openapi.json", "/admin/status")
        }
        assert codes == {"/metrics": 200, "/healthz": 200, "/readyz": 200} | dict.fromkeys(
            ("/info", "/openapi.json", "/admin/status"), 404
        )
        await http.get(plane.url + "/info")
        counted = 'http_requests_total{code="200",route="/info"} 1.0'
        with trio.fail_after(10):  # a request is counted when it is over, which may be after its answer is there
            while counted not in (await http.get(plane.metrics_url + "/metrics")).text:
                pass
    async with open_control_plane(config(tmp_path)) as plane:
        assert plane.metrics_url is None


async def test_an_address_that_is_taken(tmp_path: Path) -> None:
    async with open_control_plane(config(tmp_path)) as plane:
        taken = plane.url.removeprefix("http://")
        with pytest.raises(OSError, match="cannot listen on"):
            async with open_control_plane(config(tmp_path, bind_address=taken)):
                pass


async def test_two_on_one_database_know_each_others_members(tmp_path: Path) -> None:
    async with open_control_plane(config(tmp_path)) as one, open_control_plane(config(tmp_path)) as other:
        identity = Identity.generate()
        async with open_client(one.url, identity) as calls:
            issued = await calls.enroll(await other.create_token("node"))
        async with open_client(other.url, identity) as calls:
            assert (await calls.refresh(issued.credential)).credential != issued.credential


async def test_nothing_is_logged_as_a_warning_in_a_life_without_trouble(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_control_plane(config(tmp_path)) as plane, open_client(plane.url, Identity.generate()) as calls:
        await calls.enroll(await plane.create_token("node"))
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_this_machine_is_never_called_through_a_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    async with open_control_plane(config(tmp_path)) as plane, open_client(plane.url, Identity.generate()) as calls:
        assert (await calls.info()).routers == ()


@pytest.mark.parametrize("bad", [{"role": "king"}, {"role": "node", "max_usages": 0}, {"role": "node", "ttl": 0}])
async def test_senseless_tokens_are_refused(tmp_path: Path, bad: dict[str, Any]) -> None:
    async with open_control_plane(config(tmp_path)) as plane:
        with pytest.raises(RefusedError):
            await plane.create_token(**bad)


@pytest.mark.parametrize(
    "bad",
    [
        {"bind_address": "nonsense"},
        {"bind_address": ":80"},
        {"bind_address": "host:port"},
        {"bind_address": "host:70000"},
        {"db_dsn": "mysql://h/d"},
        {"biscuit_ttl": 0.0},
        {"lease_duration": -1.0},
        {"poll_interval": 0.0},
        {"key_rotation_interval": -1.0},
        {"key_rotation_interval": 30.0},
        {"key_grace_period": 0.0},
        {"node_retention": 0.0},
        {"enroll_rate": float("nan")},
        {"enroll_burst": 0},
    ],
)
def test_senseless_settings_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="not "):
        Config(**bad)


def test_settings_do_not_show_the_admin_token() -> None:
    assert "hush" not in repr(Config(admin_token="hush"))
