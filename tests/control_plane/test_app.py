"""What every request meets: limits, bodies, clocks, browsers, health, counts."""

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families
from trio.testing import MockClock

from agentmesh.control_plane.http import BODY_TIMEOUT
from agentmesh.control_plane.metrics import CENSUS_INTERVAL
from agentmesh.identity import Identity
from agentmesh.wire.messages.mesh.v1 import KeysResponse
from tests.control_plane.plane import PROTOBUF, Harness, open_harness

NAMES = "agentmesh_control_plane_"


async def metrics(mesh: Harness) -> dict[tuple[str, tuple[str, ...]], float]:
    """Samples by name, and label values in the order of the labels' names."""
    text = (await mesh.http.get("/metrics")).text
    return {
        (sample.name.removeprefix(NAMES), tuple(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_healthz_and_readyz(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as mesh:
        assert [(await mesh.http.get(path)).status_code for path in ("/healthz", "/readyz")] == [200, 200]


async def test_readyz_says_when_the_database_does_not_answer(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as mesh:
        with sqlite3.connect(tmp_path / "control-plane.db") as breaker:
            breaker.execute("ALTER TABLE keyring RENAME TO moved")
        response = await mesh.http.get("/readyz")
        assert (response.status_code, response.text) == (503, "the database does not answer\n")
        assert response.headers["retry-after"] == "2"
        assert (await mesh.http.get("/healthz")).status_code == 200
        breaker.execute("ALTER TABLE moved RENAME TO keyring")
        breaker.close()
        assert (await mesh.http.get("/readyz")).status_code == 200


async def test_enrollments_pass_one_bucket(tmp_path: Path, mock_clock: MockClock) -> None:
    async with open_harness(tmp_path, enroll_rate=10.0, enroll_burst=20) as mesh:
        identity = Identity.generate()
        codes = [(await mesh.post("/enroll", mesh.enroll_request(identity, "x"))).status_code for _ in range(10)]
        codes += [(await mesh.status(identity)).status_code for _ in range(10)]
        assert codes == [200] * 10 + [401] * 10
        refused = await mesh.status(identity)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "2")
        assert (await mesh.post("/enroll", mesh.enroll_request(identity, "x"))).status_code == 429
        assert (await mesh.http.get("/info")).status_code == 200
        mock_clock.jump(0.1)
        assert (await mesh.status(identity)).status_code == 401
        assert (await mesh.status(identity)).status_code == 429


@pytest.mark.parametrize(("rate", "burst"), [(1.0, 3), (100.0, 1)])
async def test_the_bucket_is_a_setting(tmp_path: Path, mock_clock: MockClock, rate: float, burst: int) -> None:
    async with open_harness(tmp_path, enroll_rate=rate, enroll_burst=burst) as mesh:
        identity = Identity.generate()
        codes = [(await mesh.status(identity)).status_code for _ in range(burst + 1)]
        assert codes == [401] * burst + [429]
        mock_clock.jump(1 / rate)
        assert (await mesh.status(identity)).status_code == 401


BODIES: list[tuple[bytes, dict[str, str], int]] = [
    (b"\xff\xff", PROTOBUF, 400),
    (b"\x0a\x05ab", PROTOBUF, 400),
    (b"\x0a\x02\xff\xfe", PROTOBUF, 400),
    (b"{", {"Content-Type": "application/json"}, 400),
    (b"\xff", {"Content-Type": "application/json"}, 400),
    (b"[]", {"Content-Type": "application/json"}, 400),
    (b"[" * 100_000, {"Content-Type": "application/json"}, 400),
    (b'{"peer_id": 5}', {"Content-Type": "application/json"}, 400),
    (b'{"peer_id": "\\ud800"}', {"Content-Type": "application/json"}, 400),
    (b'{"nonsense": 5}', {"Content-Type": "application/json"}, 400),
    (b"{}", {"Content-Type": "text/json"}, 415),
    (b"", {}, 415),
]


@pytest.mark.parametrize("path", ["/enroll", "/refresh", "/routers/lease"])
async def test_bodies_are_messages(tmp_path: Path, path: str) -> None:
    async with open_harness(tmp_path) as mesh:
        for content, headers, status in BODIES:
            authorized = {"Authorization": "Bearer QUJD", **headers}
            response = await mesh.http.post(path, content=content, headers=authorized)
            assert response.status_code == status, content
            assert "Traceback" not in response.text


async def test_a_body_that_does_not_come_is_not_waited_for(tmp_path: Path, mock_clock: MockClock) -> None:
    async def body() -> AsyncIterator[bytes]:
        yield b"\x0a"
        mock_clock.jump(BODY_TIMEOUT)
        await trio.sleep_forever()

    async with open_harness(tmp_path) as mesh:
        response = await mesh.http.post("/enroll", content=body(), headers=PROTOBUF)
        assert response.status_code == 408


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/none", 404), ("GET", "/enroll", 405)])
async def test_what_is_not_there_is_said_so(tmp_path: Path, method: str, path: str, status: int) -> None:
    async with open_harness(tmp_path) as mesh:
        assert (await mesh.http.request(method, path)).status_code == status


async def test_answers_carry_our_own_clock(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as mesh:
        mesh.clock.now = 1_700_000_000.0
        for path in ("/info", "/none", "/enroll/status"):
            assert (await mesh.http.get(path)).headers["date"] == "Tue, 14 Nov 2023 22:13:20 GMT"


async def test_browsers_may_call_what_members_call(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as mesh:
        origin = {"Origin": "https://a.example"}
        response = await mesh.http.get("/enroll/status", headers=origin)
        assert response.status_code == 401
        assert response.headers["access-control-allow-origin"] == "*"
        assert "Date" in response.headers["access-control-expose-headers"]
        asked = {**origin, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
        assert (await mesh.http.options("/enroll", headers=asked)).status_code == 200
        for path in ("/admin/enrollments", "/routers/lease", "/metrics"):
            assert "access-control-allow-origin" not in (await mesh.http.get(path, headers=origin)).headers
            assert (await mesh.http.options(path, headers=asked)).status_code >= 400


async def test_keys_are_signed_by_each_key(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as mesh:
        answer = KeysResponse.parse((await mesh.http.get("/keys")).content)
        assert answer.public_keys == [mesh.plane.authority.public_key]
        assert answer.sign_time is not None
        assert answer.sign_time.timestamp() == mesh.clock.now
        assert len(answer.signatures) == 1


async def test_keys_survive_a_restart(tmp_path: Path) -> None:
    keys = list[bytes]()
    for _ in range(2):
        async with open_harness(tmp_path) as mesh:
            keys.append(mesh.plane.authority.public_key)
    assert keys[0] == keys[1]


async def test_metrics_start_at_zero(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as mesh:
        found = await metrics(mesh)
        assert found["mesh_state_scrape_success", ()] == 1
        assert found["mesh_state_timestamp_seconds", ()] == mesh.clock.now
        assert found["signing_keys", ()] == 1
        for name in ("enrolled_nodes", "enrollment_requests", "bootstrap_tokens", "routers_active"):
            assert {value for (found_name, _), value in found.items() if found_name == name} == {0.0}
        assert found["http_requests_total", ("200", "/enroll")] == 0
        assert found["http_request_duration_seconds_count", ("/admin/enrollments/{id}/approve",)] == 0


async def test_metrics_tell_the_state_of_the_mesh(tmp_path: Path, mock_clock: MockClock) -> None:
    async with open_harness(tmp_path) as mesh:
        router = Identity.generate()
        answer = await mesh.enroll(mesh.enroll_request(router, await mesh.plane.create_token("router")))
        request = mesh.lease_request(router, answer.biscuit_token, connected_peers=7, dht_size=70)
        await mesh.post("/routers/lease", request)
        await mesh.http.get("/none")
        found, peer = await metrics(mesh), str(router.peer)
        assert found["enrolled_nodes", ("mesh:role:router", "admitted")] == 1
        assert found["enrollment_requests", ("approved",)] == 1
        assert found["bootstrap_tokens", ("exhausted",)] == 1
        assert (found["routers_active", ()], found["mesh_connected_peers", ()]) == (1, 7)
        assert (found["router_connected_peers", (peer,)], found["router_dht_size", (peer,)]) == (7, 70)
        assert found["router_lease_renewed_timestamp_seconds", (peer,)] == mesh.clock.now
        assert found["http_requests_total", ("200", "/enroll")] == 1
        assert found["http_requests_total", ("200", "/routers/lease")] == 1
        assert found["http_requests_total", ("404", "other")] == 1
        mesh.clock.now += 901
        assert (await metrics(mesh))["routers_active", ()] == 1  # the store was read just now
        mock_clock.jump(CENSUS_INTERVAL)
        later = await metrics(mesh)
        assert later["routers_active", ()] == 0
        assert ("router_connected_peers", (peer,)) not in later


async def test_metrics_are_there_when_the_database_is_not(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as mesh:
        with sqlite3.connect(tmp_path / "control-plane.db") as breaker:
            breaker.execute("DROP TABLE nodes")
        breaker.close()
        assert (await metrics(mesh))["mesh_state_scrape_success", ()] == 0


async def test_a_bug_is_a_500_without_a_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_harness(tmp_path) as mesh:

        async def broken() -> None:
            raise LookupError("with a secret in it")

        monkeypatch.setattr(mesh.plane.store.mirror, "look", broken)
        transport = httpx.ASGITransport(mesh.plane.app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://control-plane") as http:
            response = await http.get("/info")
        assert (response.status_code, response.text) == (500, "Internal Server Error")
        assert (await metrics(mesh))["http_requests_total", ("500", "/info")] == 1
