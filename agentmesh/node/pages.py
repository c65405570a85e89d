"""What an operator sees of a node: its metrics, under the names agentmesh_node_*, and how it stands to the mesh."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import trio
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.requests import Request

from agentmesh.errors import AddressError, MeshError, StreamResetError
from agentmesh.membership.pages import Family, Gauges, Page, Timing, make_pages
from agentmesh.node.figures import ApiFigures
from agentmesh.node.node import Node
from agentmesh.protocols.directory import Operation
from agentmesh.protocols.ping import PING_ID, ping
from agentmesh.services.table import SERVICE_TYPES
from agentmesh.types import PeerId

PREFIX = "agentmesh_node"
OPERATIONS = (Operation.PROVIDE, Operation.FIND_PROVIDERS, Operation.FIND_PEER)  # what members ask
CONNECTIVITY_TIMEOUT = 15.0  # seconds


def node_pages(node: Node, *, debug: bool = False, socket_path: Path | None = None) -> Starlette:
    """`/metrics`, `/healthz` and `/readyz`.

    Args:
        socket_path: where the local API's socket is, if it has one; told on `/debug/mesh-info`.
        debug: with `/debug/mesh-info`, `/debug/network-info`, `/debug/connectivity` and `/debug/token-info`.
    """
    registry = CollectorRegistry()
    registry.register(Gauges(PREFIX, lambda: _families(node)))
    pages: dict[str, Page] = {
        "mesh-info": lambda _: _mesh_info(node, socket_path),
        "network-info": lambda _: _network_info(node),
        "connectivity": lambda request: _connectivity(node, request),
        "token-info": lambda _: _token_info(node),
    }
    return make_pages(registry, lambda: bool(node.routers), pages if debug else {})


def _families(node: Node) -> Iterator[Family | Timing]:
    host, catalogue = node.host.statistics(), node.attachments.catalogue
    served = Counter(key.type for key in node.services)
    by_type = {kind: served[kind] for kind in sorted(SERVICE_TYPES)}
    yield Family("ready", "1 while a router is held.", bool(node.routers))
    yield Family("mesh_connected", "1 while a router is held.", bool(node.routers))
    yield Family("connected_peers", "Peers that a session is open to.", host.connections.peers)
    authenticated = len(node.attachments.admissions) + host.admitted
    yield Family("authenticated_peers", "Routers that admitted it, and peers that it has admitted.", authenticated)
    yield Family("biscuit_expiry_timestamp_seconds", "When its credential ends.", node.membership.credential.expires_at)
    yield Family("services_registered", "Services that it serves.", by_type, ("type",))
    routers = {"attached": len(node.routers), "wanted": catalogue.wanted}
    yield Family("routers", "Routers that are held, and that are to be.", routers, ("state",))
    candidates = {"selector": len(catalogue.matching), "any": len(catalogue.listed)}
    yield Family("router_candidates", "Routers that are listed, and that the selector admits.", candidates, ("match",))
    received = node.attachments.goaways.received
    yield Family("router_goaway_received", "Times that a router sent it away.", received, ("reason",), counts=True)
    asked = node.directory.figures
    requests = {(op, result): count for (op, result), count in asked.requests.items() if op in OPERATIONS}
    yield Family("directory_requests", "Requests to routers.", requests, ("op", "result"), counts=True)
    seconds = {op: asked.seconds[op] for op in OPERATIONS}
    yield Timing("directory_request_seconds", "How long requests to routers took.", seconds, ("op",))
    yield from _of_programs(node.figures)


def _of_programs(figures: ApiFigures) -> Iterator[Family | Timing]:
    """What programs of this machine ask of the node."""
    yield Family("requests_in_flight", "Requests of the local API under way.", figures.in_flight)
    yield Timing("request_ttfb_seconds", "Until an answer of the local API began.", figures.first_byte, ("route",))
    yield Timing(
        "request_duration_seconds", "Until an answer of the local API was whole.", figures.whole, ("route", "code")
    )
    by_model = ("peer_id", "model", "token_type")
    for name, text, value, labels in (
        ("inference_tokens", "Tokens that models used, as they said.", figures.tokens, by_model),
        ("facade_rejections", "Completions and providers that were refused.", figures.rejections, ("reason",)),
        ("facade_retries", "Completions that another provider was asked for.", figures.retries, ()),
        ("agents_untracked", "Requests of agents beyond those told apart.", figures.untracked, ()),
    ):
        yield Family(name, text, value, labels, counts=True)
    yield Family("agents_seen", "Programs that asked, told by User-Agent.", len(figures.agents))


def _mesh_info(node: Node, socket_path: Path | None) -> dict[str, Any]:
    routers = [str(router) for router in node.routers]
    return {
        "peer_id": str(node.peer),
        "connected_peers": [str(peer) for peer in node.host.connections.peers],
        "attached_routers": routers,
        "router_peer_id": routers[0] if routers else None,
        "local_api_socket": None if socket_path is None else str(socket_path),
    }


def _network_info(node: Node) -> dict[str, Any]:
    listening = [str(address) for address in node.host.addresses if address.circuit is None]
    return {
        "listen_addresses": listening,
        "announced_addresses": [str(address) for address in node.addresses],
        "directory_addresses": [str(address) for address in node.announcer.announced],
    }


def _token_info(node: Node) -> dict[str, Any]:
    left = node.membership.credential.expires_at - node.membership.wall_clock()
    return {"has_token": True, "expires_in_seconds": max(int(left), 0), "is_expired": left <= 0}


async def _connectivity(node: Node, request: Request) -> dict[str, Any]:
    """How far away a member is, and the first router."""
    try:
        peer = PeerId.parse(request.query_params.get("peer_id", ""))
    except AddressError as exc:
        raise ValueError(f"peer_id: {exc}") from exc
    found: dict[str, Any] = {
        "connected_peers": len(node.host.connections.peers),
        "total_known_peers": len(node.host.connections.peers),
    }
    with trio.move_on_after(CONNECTIVITY_TIMEOUT):
        found |= await _measure(node, peer, "ping")
        if node.routers:
            found |= await _measure(node, node.routers[0], "router")
    return found


async def _measure(node: Node, peer: PeerId, name: str) -> dict[str, Any]:
    try:
        async with await node.open_stream(peer, PING_ID) as stream:
            rtt = await ping(stream)
    except (MeshError, StreamResetError, trio.BrokenResourceError, trio.TooSlowError) as exc:
        return {f"{name}_latency_ms": None, f"{name}_error": True, f"{name}_error_msg": str(exc)}
    return {f"{name}_latency_ms": rtt * 1000, f"{name}_error": False, f"{name}_error_msg": ""}
