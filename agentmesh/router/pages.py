"""What an operator sees of a router: its metrics, under the names agentmesh_router_*, and its members."""

from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.requests import Request

from agentmesh.abc import Admission
from agentmesh.membership.pages import Family, Gauges, Page, Timing, make_pages
from agentmesh.pool.metrics import METRICS, Samples, router_samples
from agentmesh.router.agents.api import invariants_answer
from agentmesh.router.relay_metrics import RELAY_PREFIX, relay_families
from agentmesh.router.router import Router
from agentmesh.runtime.session import MuxSession

PREFIX = "agentmesh_router"
RESOURCES_PREFIX = "libp2p_rcmgr"
REFUSED = {"per_ip_limit": "per_ip_limit", "rate_limit": "rate_limit", "handshake_limit": "scope_limit"}


def router_pages(router: Router) -> Starlette:
    """`/metrics`, `/healthz`, `/readyz`, `/debug/members` and `/debug/invariants`."""
    registry = CollectorRegistry()
    registry.register(Gauges(PREFIX, lambda: _families(router)))
    registry.register(Gauges(RELAY_PREFIX, lambda: relay_families(router.relay)))
    registry.register(Gauges(RESOURCES_PREFIX, lambda: _resources(router)))
    registry.register(Samples(METRICS, lambda: router_samples(router.agents.service.table)))
    pages: dict[str, Page] = {
        "members": lambda request: _members(router, request),
        "invariants": lambda _: invariants_answer(router.agents),
    }
    return make_pages(registry, lambda: router.is_ready, pages)


def _families(router: Router) -> Iterator[Family | Timing]:
    yield from _state(router)
    yield from _room(router)
    yield from _counters(router)
    seconds = router.directory.statistics().seconds
    yield Timing("directory_request_seconds", "How long requests to its directory took.", seconds, ("op",))


def _state(router: Router) -> Iterator[Family]:
    host, membership = router.host.statistics(), router.membership
    yield Family("info", "1, of the router of this peer ID.", {str(router.peer): 1}, ("peer_id",))
    yield Family("ready", "1 while it is leased and not about to stop.", router.is_ready)
    yield Family("draining", "1 from the moment that it begins to stop.", router.members.is_closed)
    yield Family("authenticated_peers", "Peers that are admitted, other routers among them.", host.admitted)
    yield Family("connected_peers", "Peers that a session is open to.", host.connections.peers)
    yield Family("banned_peers", "Peers that are banned from the mesh.", len(membership.bans))
    yield Family("dht_routing_table_size", "Other routers that it is joined to.", len(router.federation.peers))
    yield Family("biscuit_expiry_timestamp_seconds", "When its credential ends.", membership.credential.expires_at)


def _room(router: Router) -> Iterator[Family]:
    connections, limits = router.host.statistics().connections, router.host.config.connections
    book = router.relay.config.book
    relay = router.relay.statistics()
    directions = {"inbound": connections.inbound, "outbound": connections.outbound}
    yield Family("connections", "Sessions that are open.", directions, ("direction",))
    marks = {"low": limits.low_watermark, "high": limits.high_watermark}
    yield Family(
        "connection_watermark", "Sessions above which some are closed, and how many are left.", marks, ("level",)
    )
    yield Family("conns_per_source_ip_limit", "Sessions that one source address may hold.", limits.max_per_source)
    budget = {
        "reservations": book.max_reservations,
        "reservations_per_ip": book.max_reservations_per_source,
        "circuits_per_peer": book.max_circuits_per_peer,
    }
    yield Family("relay_limit", "The relay's budget.", budget, ("limit",))
    yield Family("relay_reservations", "Members that it relays to.", relay.reservations)
    yield Family("relay_circuits", "Circuits that are open.", relay.circuits)


def _counters(router: Router) -> Iterator[Family]:
    refused = router.host.statistics().connections.refused
    reasons = {**{REFUSED[reason]: count for reason, count in refused.items()}, "other": 0}
    relay, directory = router.relay.statistics(), router.directory.statistics()
    refusals = {status.name: count for status, count in relay.refusals.items()}
    for name, text, value, labels in (
        ("auth_handshakes", "Handshakes that peers opened.", router.handshakes.results, ("result",)),
        ("lease_renewals", "Leases that were asked for.", router.lease.results, ("result",)),
        ("inbound_connections_refused", "Connections that were turned away.", reasons, ("reason",)),
        ("goaway_sent", "Members that were sent away.", router.departures.sent, ("reason", "result")),
        ("directory_requests", "Requests to its directory.", directory.requests, ("op", "result")),
        ("directory_placements", "Records placed on other routers.", directory.placements, ("result",)),
        ("relay_refusals", "Reservations and circuits that were refused.", refusals, ("status",)),
        ("relayed_bytes", "Bytes of all circuits, both ways.", relay.relayed_bytes, ()),
    ):
        yield Family(name, text, value, labels, counts=True)


def _resources(router: Router) -> Iterator[Family]:
    """As a libp2p node has it."""
    refused = router.host.statistics().connections.refused
    blocked = {("inbound", "system", "connection"): refused["handshake_limit"]}
    text = "Connections that found all places of handshakes taken."
    yield Family("blocked_resources", text, blocked, ("dir", "scope", "resource"))


def _members(router: Router, _: Request) -> list[dict[str, Any]]:
    """Every session, and what its peer is to the router."""
    return [_member(router, session) for session in router.host.connections]


def _member(router: Router, session: MuxSession) -> dict[str, Any]:
    peer, figures = session.peer, session.statistics()
    level = router.host.admissions.level(peer)
    return {
        "peer_id": str(peer),
        "role": level.name.lower() if level is not Admission.ANYONE else "stranger",
        "leaving": peer in router.members.leaving,
        "address": None if session.address is None else str(session.address),
        "direction": session.direction.value,
        "reserved": router.relay.book.holds(peer, router.membership.wall_clock()),
        "circuits": len(router.relay.book.circuits_of(peer)),
        "streams": figures.streams,
        "rtt_seconds": figures.rtt,
        "bytes_received": figures.bytes_received,
        "bytes_sent": figures.bytes_sent,
        "admitted_until": router.host.admissions.expires_at(peer),
    }
