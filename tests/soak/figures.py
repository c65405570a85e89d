"""What the routers counted in a soak, all of them together."""

from collections import Counter
from collections.abc import Sequence

import attrs

from agentmesh.router import Router


@attrs.define
class Figures:
    """Sums over the routers; the counters by the names that the library gives them."""

    reservations: int = 0
    circuits: int = 0
    relayed_bytes: int = 0
    refusals: Counter[str] = attrs.Factory(Counter[str])
    failed_handshakes: Counter[str] = attrs.Factory(Counter[str])
    abuse: Counter[str] = attrs.Factory(Counter[str])


def figures_of(routers: Sequence[Router]) -> Figures:
    found = Figures()
    for router in routers:
        host, relay = router.host.statistics(), router.relay.statistics()
        found.reservations += relay.granted
        found.circuits += relay.opened
        found.relayed_bytes += relay.relayed_bytes
        found.refusals.update({status.name: count for status, count in relay.refusals.items()})
        found.failed_handshakes.update(host.handshakes_failed)
        found.abuse.update(host.connections.abused)
    return found
