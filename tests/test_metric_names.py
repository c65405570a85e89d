"""The metrics of a router and a node: each name with its type and labels, there from the start, and no other."""

import re
from collections.abc import Mapping
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families
from starlette.applications import Starlette
from trio.testing import MockClock

from agentmesh.node.pages import node_pages
from agentmesh.router.pages import router_pages
from tests.node.fleet import open_fleet

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "metrics.md"

Names = Mapping[str, tuple[str, ...]]  # "<type> <name>", and the labels

ROUTER: Names = {
    "gauge agentmesh_router_info": ("peer_id",),
    "gauge agentmesh_router_ready": (),
    "gauge agentmesh_router_draining": (),
    "gauge agentmesh_router_authenticated_peers": (),
    "gauge agentmesh_router_connected_peers": (),
    "gauge agentmesh_router_connections": ("direction",),
    "gauge agentmesh_router_connection_watermark": ("level",),
    "gauge agentmesh_router_relay_limit": ("limit",),
    "gauge agentmesh_router_banned_peers": (),
    "gauge agentmesh_router_dht_routing_table_size": (),
    "gauge agentmesh_router_biscuit_expiry_timestamp_seconds": (),
    "gauge agentmesh_router_conns_per_source_ip_limit": (),
    "counter agentmesh_router_auth_handshakes_total": ("result",),
    "counter agentmesh_router_lease_renewals_total": ("result",),
    "counter agentmesh_router_inbound_connections_refused_total": ("reason",),
    "counter agentmesh_router_goaway_sent_total": ("reason", "result"),
    "counter agentmesh_router_directory_requests_total": ("op", "result"),
    "counter agentmesh_router_directory_placements_total": ("result",),
    "histogram agentmesh_router_directory_request_seconds": ("op",),
    # as relays of libp2p have them
    "gauge libp2p_relaysvc_status": (),
    "counter libp2p_relaysvc_reservations_total": ("type",),
    "counter libp2p_relaysvc_reservation_request_response_status_total": ("status",),
    "counter libp2p_relaysvc_reservation_rejections_total": ("reason",),
    "counter libp2p_relaysvc_connections_total": ("type",),
    "counter libp2p_relaysvc_connection_request_response_status_total": ("status",),
    "counter libp2p_relaysvc_connection_rejections_total": ("reason",),
    "counter libp2p_relaysvc_data_transferred_bytes_total": (),
    "gauge libp2p_rcmgr_blocked_resources": ("dir", "scope", "resource"),
    # ours alone
    "gauge agentmesh_router_relay_reservations": (),
    "gauge agentmesh_router_relay_circuits": (),
    "counter agentmesh_router_relay_refusals_total": ("status",),
    "counter agentmesh_router_relayed_bytes_total": (),
    # of agents' connections, by names that dashboards have: three of them count, without a _total
    "gauge tunnelmesh_agent_connections": ("agent_id", "instance_id", "server_node_id"),
    "gauge tunnelmesh_agent_connection_capacity": ("agent_id", "server_node_id"),
    "gauge tunnelmesh_agent_active_streams": ("agent_id", "instance_id", "connection_id", "server_node_id"),
    "gauge tunnelmesh_agent_connection_rtt": ("agent_id", "instance_id", "connection_id", "server_node_id"),
    "unknown tunnelmesh_agent_connection_errors": ("agent_id", "server_node_id", "reason"),
    "unknown tunnelmesh_agent_connection_scale_decisions": ("agent_id", "instance_id", "decision"),
    "unknown tunnelmesh_agent_selection": ("agent_id", "server_node_id", "scope"),
}
NODE: Names = {
    "gauge agentmesh_node_ready": (),
    "gauge agentmesh_node_mesh_connected": (),
    "gauge agentmesh_node_connected_peers": (),
    "gauge agentmesh_node_authenticated_peers": (),
    "gauge agentmesh_node_biscuit_expiry_timestamp_seconds": (),
    "gauge agentmesh_node_services_registered": ("type",),
    "gauge agentmesh_node_routers": ("state",),
    "gauge agentmesh_node_router_candidates": ("match",),
    "gauge agentmesh_node_requests_in_flight": (),
    "counter agentmesh_node_router_goaway_received_total": ("reason",),
    "counter agentmesh_node_directory_requests_total": ("op", "result"),
    "histogram agentmesh_node_directory_request_seconds": ("op",),
    "counter agentmesh_node_inference_tokens_total": ("peer_id", "model", "token_type"),
    "counter agentmesh_node_facade_rejections_total": ("reason",),
    "counter agentmesh_node_facade_retries_total": (),
    "counter agentmesh_node_agents_untracked_total": (),
    "gauge agentmesh_node_agents_seen": (),
    "histogram agentmesh_node_request_ttfb_seconds": ("route",),
    "histogram agentmesh_node_request_duration_seconds": ("route", "code"),
}
AGENT: Names = {
    "gauge agentmesh_agent_ready": (),
    "gauge agentmesh_agent_connections": ("state",),
    "gauge agentmesh_agent_connections_limit": (),
    "gauge agentmesh_agent_routers": (),
    "gauge agentmesh_agent_streams": (),
    "gauge agentmesh_agent_biscuit_expiry_timestamp_seconds": (),
    "unknown tunnelmesh_agent_connection_scale_decisions": ("agent_id", "instance_id", "decision"),
}
BY_LABEL = {  # what one label is, each from the start
    ("agentmesh_router_connections", "direction"): {"inbound", "outbound"},
    ("agentmesh_router_connection_watermark", "level"): {"low", "high"},
    ("agentmesh_router_relay_limit", "limit"): {"reservations", "reservations_per_ip", "circuits_per_peer"},
    ("agentmesh_router_goaway_sent", "reason"): {"DRAINING", "OVERLOADED"},
    ("agentmesh_router_directory_request_seconds", "op"): {
        "provide",
        "place",
        "find_providers",
        "find_peer",
        "unknown",
    },
    ("libp2p_relaysvc_reservations", "type"): {"opened", "renewed", "closed"},
    ("libp2p_relaysvc_connections", "type"): {"opened", "closed"},
    ("libp2p_relaysvc_reservation_request_response_status", "status"): {"ok", "rejected", "error"},
    ("agentmesh_agent_connections", "state"): {"active", "draining", "missing"},
    ("agentmesh_node_routers", "state"): {"attached", "wanted"},
    ("agentmesh_node_facade_rejections", "reason"): {
        *("peer_revoked", "provider_backoff", "label_mismatch", "label_unattested"),
        *("no_eligible_provider", "attempts_exceeded"),
    },
    ("agentmesh_node_request_ttfb_seconds", "route"): {
        *("health", "service-registry", "egress", "models", "completions", "mcp", "other"),
    },
}
COME_LATER = {  # nobody knows the models before they answer, nor the agents before they come
    "agentmesh_node_inference_tokens",
    "tunnelmesh_agent_connections",
    "tunnelmesh_agent_connection_capacity",
    "tunnelmesh_agent_active_streams",
    "tunnelmesh_agent_connection_rtt",
    "tunnelmesh_agent_connection_scale_decisions",
    "tunnelmesh_agent_selection",
}
BUCKET = "le"


async def text_of(app: Starlette) -> str:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://program") as client:
        return (await client.get("/metrics")).text


def check(text: str, names: Names) -> None:
    """What is shown is what is listed; and of what is listed by label, everything is shown."""
    shown: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        labels = {label for sample in family.samples for label in sample.labels} - {BUCKET}
        total = "_total" if family.type == "counter" else ""
        shown[f"{family.type} {family.name}{total}"] = labels
        assert family.documentation.endswith("."), family.name
        if family.name in COME_LATER:
            shown[f"{family.type} {family.name}{total}"] = set(names[f"{family.type} {family.name}{total}"])
        for (name, label), values in BY_LABEL.items():
            if name == family.name:
                assert {sample.labels[label] for sample in family.samples} == values
    assert shown == {name: set(labels) for name, labels in names.items()}


def test_the_document_has_them_all_with_their_labels() -> None:
    rows = re.findall(r"^\| `(\w+)` \|([^|]*)\|", DOCUMENT.read_text(), re.MULTILINE)
    written = {name: set(re.findall(r"`(\w+)`", labels)) for name, labels in rows}
    promised = {name.split()[1]: set(labels) for names in (ROUTER, NODE, AGENT) for name, labels in names.items()}
    assert written == promised


async def test_the_metrics_of_a_router_and_of_a_node_are_those_that_are_promised(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        router, node = await fleet.router("router"), await fleet.node("node", ready_timeout=0.0)
        check(await text_of(router_pages(router)), ROUTER)
        check(await text_of(node_pages(node)), NODE)
