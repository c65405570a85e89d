"""The metrics, by name and label: what there is, what is there from the start, what a slow database does to them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psycopg
import trio
import trio.testing
from prometheus_client.parser import text_string_to_metric_families
from trio.testing import MockClock

from agentmesh.control_plane.metrics import ANY_CODES, CENSUS_INTERVAL, CENSUS_TIMEOUT
from tests.control_plane.asking import open_askings
from tests.control_plane.plane import Harness, open_harness
from tests.control_plane.test_app import metrics
from tests.servers.postgres import Postgres

NAMES: Mapping[str, tuple[str, ...]] = {
    "http_requests_total": ("route", "code"),
    "http_request_duration_seconds": ("route",),
    "enrolled_nodes": ("role", "state"),
    "users": (),
    "enrollment_requests": ("status",),
    "bootstrap_tokens": ("state",),
    "routers_active": (),
    "router_connected_peers": ("router",),
    "router_dht_size": ("router",),
    "router_lease_renewed_timestamp_seconds": ("router",),
    "mesh_connected_peers": (),
    "signing_keys": (),
    "retiring_key_expiry_timestamp_seconds": (),
    "mesh_state_scrape_success": (),
    "mesh_state_timestamp_seconds": (),
    "nodes_deleted_total": (),
}
OWN = {"le", "quantile"}  # labels of histograms


async def described(mesh: Harness) -> dict[str, set[str]]:
    """The names of metrics, with those of their labels; of what has been seen at least once."""
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families((await mesh.http.get("/metrics")).text):
        name = family.name.removeprefix("agentmesh_control_plane_")
        name += "_total" if family.type == "counter" else ""
        if not name.endswith("_created"):  # which Prometheus' library adds to each that grows
            found[name] = {label for sample in family.samples for label in sample.labels} - OWN
    return found


async def test_the_metrics_are_those_that_are_promised(tmp_path: Path) -> None:
    async with open_askings(tmp_path) as askings:
        mesh = askings.site.mesh
        assert (await askings.make("POST", "/routers/lease").send(mesh.http)).status_code == 200
        assert await described(mesh) == {name: set(labels) for name, labels in NAMES.items()}


async def test_every_label_is_there_from_the_start(tmp_path: Path) -> None:
    """But those of routers, which are not known before they come."""
    async with open_harness(tmp_path) as mesh:
        document: dict[str, Any] = (await mesh.http.get("/openapi.json")).json()
        found = await metrics(mesh)
        for path, operations in document["paths"].items():
            assert found["http_request_duration_seconds_count", (path,)] in (0, 1)
            for operation in operations.values():
                for code in (*operation["responses"], *map(str, ANY_CODES)):
                    assert ("http_requests_total", (code, path)) in found
        for role in ("mesh:role:node", "mesh:role:router"):
            assert [found["enrolled_nodes", (role, state)] for state in ("admitted", "expired", "banned")] == [0, 0, 0]
        assert [found["enrollment_requests", (s,)] for s in ("pending", "approved", "rejected")] == [0, 0, 0]
        assert [found["bootstrap_tokens", (s,)] for s in ("active", "revoked", "expired", "exhausted")] == [0, 0, 0, 0]


async def test_no_request_adds_a_label(tmp_path: Path) -> None:
    async with open_askings(tmp_path) as askings:
        mesh = askings.site.mesh
        before = {key for key in await metrics(mesh) if key[0].startswith("http_")}
        for method, path in await askings.operations():
            for sent in ("POST", "GET", "DELETE", "PATCH", "HEAD", "OPTIONS", method):
                await mesh.http.request(sent, path.replace("{id}", "1"))
            await askings.make(method, path).send(mesh.http)
        await mesh.http.get("/none")
        assert {key for key in await metrics(mesh) if key[0].startswith("http_")} == before


async def test_people_are_counted(tmp_path: Path, mock_clock: MockClock) -> None:
    async with open_askings(tmp_path) as askings:
        assert (await metrics(askings.site.mesh))["users", ()] == 1


async def test_a_database_that_is_slow_is_not_waited_for(
    tmp_path: Path, postgres: Postgres, mock_clock: MockClock
) -> None:
    dsn = postgres.new_dsn()
    async with open_harness(tmp_path, db_dsn=dsn) as mesh:
        found = dict[tuple[str, tuple[str, ...]], float]()

        async def scrape() -> None:
            found.update(await metrics(mesh))

        with psycopg.connect(dsn) as connection:
            connection.execute("LOCK TABLE bootstrap_tokens IN ACCESS EXCLUSIVE MODE")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(scrape)
                await trio.testing.wait_all_tasks_blocked()
                mock_clock.jump(CENSUS_TIMEOUT)
            assert found["mesh_state_scrape_success", ()] == 0
        mock_clock.jump(CENSUS_INTERVAL)
        await scrape()
        assert found["mesh_state_scrape_success", ()] == 1
