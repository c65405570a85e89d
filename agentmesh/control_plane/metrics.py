"""What the control plane counts, under the names agentmesh_control_plane_*."""

import logging
from collections.abc import Callable, Iterable, Mapping

import trio
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from agentmesh.control_plane.database import StoreError
from agentmesh.control_plane.records import Census, Status
from agentmesh.control_plane.store import Store
from agentmesh.credentials import ROLE_NODE, ROLE_ROUTER

logger = logging.getLogger(__name__)

CENSUS_INTERVAL = 30.0  # seconds; the store is read no more often, however often we are scraped
CENSUS_TIMEOUT = 5.0  # seconds that it has
OTHER_ROUTE = "other"  # what matches none of our routes
OTHER_CODES = (200, 400, 404)  # of these: what browsers ask first, and what there is not
ANY_CODES = (405, 500)  # that every route may answer with, described or not

NODE_STATES = ("admitted", "expired", "banned")
TOKEN_STATES = ("active", "revoked", "expired", "exhausted")
CONTENT_TYPE = CONTENT_TYPE_LATEST


class Metrics:
    """The metrics of one control plane, in a registry of its own.

    Args:
        wall_clock: gives the seconds since 1970.
    """

    def __init__(self, store: Store, wall_clock: Callable[[], float]) -> None:
        self._store, self._wall_clock, self._census_due = store, wall_clock, trio.current_time()
        self._registry = registry = CollectorRegistry()

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"agentmesh_control_plane_{name}", text, labels, registry=registry)

        self._requests = Counter(
            "agentmesh_control_plane_http_requests", "Requests answered.", ("route", "code"), registry=registry
        )
        self._durations = Histogram(
            "agentmesh_control_plane_http_request_duration_seconds", "Time to answer.", ("route",), registry=registry
        )
        self._nodes = gauge("enrolled_nodes", "Peers that were admitted.", "role", "state")
        self._users = gauge("users", "People whom an identity provider knows, and who have been here.")
        self._enrollments = gauge("enrollment_requests", "Enrollments with a bootstrap token.", "status")
        self._tokens = gauge("bootstrap_tokens", "Bootstrap tokens.", "state")
        self._keys = gauge("signing_keys", "Keys whose credentials are honoured.")
        self._retiring = gauge(
            "retiring_key_expiry_timestamp_seconds", "When the last retired key stops being honoured; 0: there is none."
        )
        self._deleted = Counter(
            "agentmesh_control_plane_nodes_deleted", "Peers forgotten, long after they expired.", registry=registry
        )
        self._routers = gauge("routers_active", "Routers with a live lease.")
        self._peers = gauge("router_connected_peers", "Peers connected to a router, by its last lease.", "router")
        self._directory = gauge("router_dht_size", "Directory records of a router, by its last lease.", "router")
        self._renewed = gauge("router_lease_renewed_timestamp_seconds", "When its lease was last renewed.", "router")
        self._mesh_peers = gauge("mesh_connected_peers", "Peers connected to all routers.")
        self._success = gauge("mesh_state_scrape_success", "1 if the store answered when it was last read, else 0.")
        self._read_at = gauge("mesh_state_timestamp_seconds", "When the store last answered.")
        self._show(Census({}, {}, {}, 0, ()))

    def expect(self, codes: Mapping[str, Iterable[int]]) -> None:
        """Show what requests will be counted by, at 0. `codes`: those that each route may answer with."""
        for route, expected in {**codes, OTHER_ROUTE: OTHER_CODES}.items():
            self._durations.labels(route)
            for code in {*expected, *ANY_CODES}:
                self._requests.labels(route, str(code))

    def answered(self, route: str, code: int, seconds: float) -> None:
        self._requests.labels(route, str(code)).inc()
        self._durations.labels(route).observe(seconds)

    def nodes_deleted(self, count: int) -> None:
        self._deleted.inc(count)

    async def render(self) -> bytes:
        """All metrics in Prometheus' text format; the store is read anew if it was not just read."""
        if trio.current_time() >= self._census_due:
            self._census_due = trio.current_time() + CENSUS_INTERVAL
            await self._take_census()
        return generate_latest(self._registry)

    async def _take_census(self) -> None:
        try:
            with trio.fail_after(CENSUS_TIMEOUT):
                self._show(await self._store.census(self._wall_clock()))
        except (StoreError, trio.TooSlowError) as exc:
            logger.warning("no census", extra={"reason": exc})
            self._success.set(0)
            return
        self._success.set(1)
        self._read_at.set(self._wall_clock())

    def _show(self, census: Census) -> None:
        for role in (ROLE_NODE, ROLE_ROUTER):
            for state in NODE_STATES:
                self._nodes.labels(role, state).set(census.nodes.get((role, state), 0))
        for status in (Status.PENDING, Status.APPROVED, Status.REJECTED):
            self._enrollments.labels(status.value).set(census.enrollments.get(status, 0))
        for state in TOKEN_STATES:
            self._tokens.labels(state).set(census.tokens.get(state, 0))
        self._users.set(census.users)
        self._keys.set(census.signing_keys)
        self._retiring.set(census.retiring_until or 0)
        self._routers.set(len(census.leases))
        self._mesh_peers.set(sum(lease.connected_peers for lease in census.leases))
        for by_router in (self._peers, self._directory, self._renewed):
            by_router.clear()  # of routers that are gone
        for lease in census.leases:
            self._peers.labels(str(lease.peer)).set(lease.connected_peers)
            self._directory.labels(str(lease.peer)).set(lease.directory_size)
            self._renewed.labels(str(lease.peer)).set(lease.renewed_at)
