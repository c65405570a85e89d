"""Whether a mesh is at rest: all sides see the same, and every gauge is the size of what it is about."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from agentmesh.abc import Direction
from agentmesh.node import Node
from agentmesh.router import Router
from agentmesh.runtime.host import Host
from agentmesh.types import PeerId

Pair = tuple[PeerId, PeerId]
Circuit = tuple[PeerId, PeerId, PeerId]  # the router, who dialled, who was dialled


def disagreements(routers: Sequence[Router], nodes: Sequence[Node]) -> list[str]:
    """What keeps the mesh from being at rest, in words."""
    circuits = Counter(_dialed(nodes))
    return [
        *_compare("sessions with routers", _with_members(routers), _with_routers(routers, nodes)),
        *_compare("circuits, as relayed and dialled", _relayed(routers), circuits),
        *_compare("circuits, as accepted and dialled", _accepted(nodes), circuits),
        *_missing("reservations that members rely on", _held(nodes), _reserved(routers)),
        # One may be left that its member has given up, for as long as it has another session with the router.
        *_missing("reservations of members without a session", _reserved(routers), _with_members(routers)),
        *(text for router in routers for text in _router_gauges(router)),
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
    return ((router.peer, session.peer) for router in routers for session in router.host.connections)


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


def _hosts(routers: Sequence[Router], nodes: Sequence[Node]) -> Iterator[Host]:
    yield from (router.host for router in routers)
    yield from (node.host for node in nodes)


def _router_gauges(router: Router) -> Iterator[str]:
    relay, host = router.relay.statistics(), router.host.statistics()
    sessions = list(router.host.connections)
    circuits = len(router.relay.book.circuits)
    expected = {
        "reservations": (relay.reservations, len(router.relay.book.reservations)),
        "circuits": (relay.circuits, circuits),
        "streams served": (host.streams.serving, circuits),
        "streams": (sum(session.statistics().streams for session in sessions), 2 * circuits),
        "peers": (host.connections.peers, len({session.peer for session in sessions})),
        "inbound": (host.connections.inbound, len(sessions)),
        "admitted": (host.admitted, len({session.peer for session in sessions})),
    }
    for name, (gauge, count) in expected.items():
        if gauge != count:
            yield f"{router.peer}: the gauge of {name} says {gauge}, there are {count}"


def _host_gauges(host: Host) -> Iterator[str]:
    statistics = host.statistics()
    busy = {"handshakes": statistics.connections.handshakes, "dialing": statistics.dialing}
    for session in host.connections:
        mux = session.mux.statistics()
        busy["lingering streams"] = busy.get("lingering streams", 0) + mux.lingering_streams
        busy["bytes held"] = busy.get("bytes held", 0) + mux.held_bytes
        busy["streams of a mux alone"] = mux.inbound_streams + mux.outbound_streams - session.statistics().streams
    for name, count in busy.items():
        if count:
            yield f"{host.peer}: {count} {name}"
