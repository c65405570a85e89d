"""Whether a mesh is at rest: all sides see the same, and every gauge is the size of what it is about."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from agentmesh.abc import Direction
from agentmesh.node import Node
from agentmesh.router import Router
from agentmesh.runtime.host import Host
from agentmesh.runtime.yamux.limits import INITIAL_WINDOW
from agentmesh.types import PeerId
from tests.soak.census import Census

Pair = tuple[PeerId, PeerId]
Circuit = tuple[PeerId, PeerId, PeerId]  # the router, who dialled, who was dialled


def disagreements(routers: Sequence[Router], nodes: Sequence[Node]) -> list[str]:
    """What keeps the mesh from being at rest, in words."""
    circuits = Counter(_dialed(nodes))
    return [
        *_compare("sessions with routers", _with_members(routers), _with_routers(routers, nodes)),
        *_compare("routers that are joined", _federated(routers), _all_pairs(routers)),
        *_compare("circuits, as relayed and dialled", _relayed(routers), circuits),
        *_compare("circuits, as accepted and dialled", _accepted(nodes), circuits),
        *_missing("reservations that members rely on", _held(nodes), _reserved(routers)),
        # One may be left that its member has given up, for as long as it has another session with the router.
        *_missing("reservations of members without a session", _reserved(routers), _with_members(routers)),
        *(text for router in routers for text in _router_gauges(router, nodes)),
        *(text for host in _hosts(routers, nodes) for text in _host_gauges(host)),
    ]


def _compare(what: str, mine: Iterable[object], theirs: Iterable[object]) -> Iterator[str]:
    here, there = Counter(mine), Counter(theirs)
    if here != there:
        yield f"{what}: {here - there} here and not there, {there - here} there and not here"


def _missing(what: str, needed: Iterable[object], found: Iterable[object]) -> Iterator[str]:
    if missing := set(needed).difference(found):
        yield f"{what}: {missing}"


def _with_members(routers: Sequence[Router]) -> Iterator[Pair]:
    peers = {router.peer for router in routers}
    return ((r.peer, session.peer) for r in routers for session in r.host.connections if session.peer not in peers)


def _federated(routers: Sequence[Router]) -> Iterator[Pair]:
    return ((router.peer, other) for router in routers for other in router.federation.peers)


def _all_pairs(routers: Sequence[Router]) -> Iterator[Pair]:
    return ((router.peer, other.peer) for router in routers for other in routers if other is not router)


def _with_routers(routers: Sequence[Router], nodes: Sequence[Node]) -> Iterator[Pair]:
    peers = {router.peer for router in routers}
    return ((session.peer, node.peer) for node in nodes for session in node.host.connections if session.peer in peers)


def _relayed(routers: Sequence[Router]) -> Iterator[Circuit]:
    return (
        (router.peer, entry.source, entry.destination) for router in routers for entry in router.relay.book.circuits
    )


def _dialed(nodes: Sequence[Node]) -> Iterator[Circuit]:
    for relay, node, other, direction in _ends(nodes):
        if direction is Direction.OUTBOUND:
            yield relay, node, other


def _accepted(nodes: Sequence[Node]) -> Iterator[Circuit]:
    for relay, node, other, direction in _ends(nodes):
        if direction is Direction.INBOUND:
            yield relay, other, node


def _ends(nodes: Sequence[Node]) -> Iterator[tuple[PeerId, PeerId, PeerId, Direction]]:
    """Every session over a circuit, as one of its ends has it: the router, the node, the other, who dialled."""
    for node in nodes:
        for session in node.host.connections:
            circuit = session.address.circuit if session.address else None
            if circuit is not None and circuit[0].peer is not None:
                yield circuit[0].peer, node.peer, session.peer, session.direction


def _reserved(routers: Sequence[Router]) -> Iterator[Pair]:
    return ((router.peer, held.peer) for router in routers for held in router.relay.book.reservations)


def _held(nodes: Sequence[Node]) -> Iterator[Pair]:
    return ((router, node.peer) for node in nodes for router in node.routers)


def _attached(nodes: Sequence[Node]) -> Iterator[Pair]:
    """A node may have sessions with other routers too, for circuits through them."""
    return ((record.peer, node.peer) for node in nodes for record in node.attachments.catalogue.attached)


def _hosts(routers: Sequence[Router], nodes: Sequence[Node]) -> Iterator[Host]:
    yield from (router.host for router in routers)
    yield from (node.host for node in nodes)


def _router_gauges(router: Router, nodes: Sequence[Node]) -> Iterator[str]:
    relay, host = router.relay.statistics(), router.host.statistics()
    sessions = list(router.host.connections)
    circuits, links = len(router.relay.book.circuits), router.floodsub.statistics().links
    expected = {
        "reservations": (relay.reservations, len(router.relay.book.reservations)),
        "circuits": (relay.circuits, circuits),
        "streams served": (host.streams.serving, circuits + links),
        "streams": (sum(session.statistics().streams for session in sessions), 2 * (circuits + links)),
        "links": (links, len(router.federation.peers) + sum(router.peer == held for held, _ in _attached(nodes))),
        "peers": (host.connections.peers, len({session.peer for session in sessions})),
        "inbound": (host.connections.inbound, sum(s.direction is Direction.INBOUND for s in sessions)),
        "admitted": (host.admitted, len({session.peer for session in sessions})),
    }
    yield from _differences(router.host, expected)


def _host_gauges(host: Host) -> Iterator[str]:
    statistics, memory, sessions = host.statistics(), host.connections.memory, list(host.connections)
    muxes = [session.mux.statistics() for session in sessions]
    channels = [stream.channel for session in sessions for stream in session.streams]
    grown = sum(channel.window.size - INITIAL_WINDOW for channel in channels if channel)
    expected = {
        "handshakes": (statistics.connections.handshakes, 0),
        "dialing": (statistics.dialing, 0),
        "bytes held": (memory.held, 0),
        "bytes of windows": (host.config.connections.max_host_window_bytes - memory.growth_left, grown),
        "lingering streams": (sum(mux.lingering_streams for mux in muxes), 0),
        "streams of muxes": (sum(mux.inbound_streams + mux.outbound_streams for mux in muxes), len(channels)),
    }
    yield from _differences(host, expected)


def _differences(host: Host, expected: Mapping[str, tuple[int, int]]) -> Iterator[str]:
    for name, (gauge, count) in expected.items():
        if gauge != count:
            yield f"{host.peer}: the gauge of {name} says {gauge}, there are {count}"


def crowds(routers: Sequence[Router], nodes: Sequence[Node], census: Census) -> list[str]:
    """What there is more of in this process than a mesh at rest needs, or less, in words."""
    sessions = [session for host in _hosts(routers, nodes) for session in host.connections]
    circuits = len(list(_dialed(nodes)))
    streams = sum(len(session.streams) for session in sessions)
    needed = {
        "runtime.session.MuxSession": len(sessions),
        "runtime.session.MuxSession._streams": streams,
        "runtime.yamux.channels.Channels._by_number": streams,
        "runtime.dialer.Dialer._dials": 0,
        "runtime.accept.StreamAcceptor._gated": len(list(_attached(nodes)))
        + sum(len(router.federation.peers) for router in routers),
        "node.admissions.RouterAdmissions._handshakes": 0,
        "node.admissions.RouterAdmissions._due": len(list(_with_routers(routers, nodes))),
        "protocols.relay.circuit.Circuit": circuits,
        "protocols.relay.book.RelayBook._circuits": circuits,
        "transports.circuit.CircuitTransport._places": circuits,
        "transports.circuit.CircuitPlace": circuits,
    }
    found = {name: census.count(f"agentmesh.{name}") for name in needed}
    return [f"{name}: {found[name]} instead of {needed[name]}" for name in needed if found[name] != needed[name]]
