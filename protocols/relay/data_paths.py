"""Which circuits of a member may have a connection of their own, and where that goes."""

import trio

from agentmesh.abc import DataDialer, Direction, Session, Stream
from agentmesh.protocols.relay.data_circuit import DataCircuit
from agentmesh.protocols.relay.events import CircuitLimits, Offer
from agentmesh.types import Address, PeerId

RETRY_INTERVAL = 60.0  # seconds for which a relay is not asked again where our connection did not come


class DataPaths:
    """Those of one member.

    Args:
        dialer: what dials them; None when there are to be none.
    """

    def __init__(self, dialer: DataDialer | None) -> None:
        self._dialer = dialer
        self._barred_until: dict[PeerId, float] = {}

    @property
    def enabled(self) -> bool:
        return self._dialer is not None

    def may_have(self, session: Session) -> bool:
        """Whether circuits over this session may: we dialled the relay, in a way that works for them too."""
        return bool(self.addresses(session)) and trio.current_time() >= self._barred_until.get(session.peer, 0.0)

    def circuit(self, stream: Stream, early: bytes, peer: PeerId, limits: CircuitLimits, offer: Offer) -> DataCircuit:
        """A circuit with an offer. The caller runs its `pair`, by way of ours, and its `hold`."""
        assert self._dialer is not None
        addresses = self.addresses(stream.session, offer.addresses)
        return DataCircuit(stream, early, peer, limits, offer.ticket, self._dialer, addresses)

    async def pair(self, circuit: DataCircuit) -> None:
        """`DataCircuit.pair`. Whoever could not come does not ask for a while, since every attempt may cost time."""
        if await circuit.pair():
            self._barred_until.pop(circuit.relay, None)
            return
        now = trio.current_time()
        self._barred_until = {relay: until for relay, until in self._barred_until.items() if until > now}
        self._barred_until[circuit.relay] = now + RETRY_INTERVAL

    def addresses(self, session: Session, named: tuple[Address, ...] = ()) -> list[Address]:
        """Where we have come before, then what the relay names on the same host: it shall not send us elsewhere."""
        dialled = session.address
        if self._dialer is None or dialled is None or session.direction is not Direction.OUTBOUND:
            return []
        if not self._dialer.can_carry(dialled):
            return []
        same_host = [address.without_peer() for address in named if address.parts[:1] == dialled.parts[:1]]
        found = dict.fromkeys([dialled.without_peer(), *same_host])
        return [address for address in found if self._dialer.can_carry(address)]
