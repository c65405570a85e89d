"""How to reach another member: over the session there is, else directly where that is looked for, else by a circuit
through a router that both can use.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial

import trio

from agentmesh.abc import Session, Stream
from agentmesh.control_plane.routers import RouterRecord
from agentmesh.errors import DialError, NotConnectedError
from agentmesh.node.catalogue import Catalogue
from agentmesh.node.standing import State
from agentmesh.protocols.directory import DirectoryClient, peer_key
from agentmesh.runtime.host import Host
from agentmesh.runtime.session import MuxSession
from agentmesh.types import Address, PeerId, ProtocolId

FIND_TIMEOUT = 5.0  # seconds to hear where a peer is
FIND_DIRECT_TIMEOUT = 1.0  # the same while there is a circuit that could be tried
MAX_DIRECT = 4  # addresses of a peer that are tried beside the circuits to it


class Paths:
    """Opens streams to members wherever they are attached.

    Args:
        host: the node's. Its circuit transport sees to it that the node is admitted at a router before it asks it for a
            circuit.
        catalogue: the routers, and which of them are attached.
        directory: says where a member is that the attached routers do not reach.
        direct: whether a member is dialled where it can be reached directly before a circuit is tried.
    """

    def __init__(self, host: Host, catalogue: Catalogue, directory: DirectoryClient, *, direct: bool = False) -> None:
        self._host = host
        self._directory = directory
        self._catalogue = catalogue
        self._first_way = self._direct_and_circuits if direct else _circuits

    async def open_stream(self, peer: PeerId, protocol: ProtocolId) -> Stream:
        """A stream to `peer`.

        Raises:
            NotConnectedError: this node is attached to no router.
            DialError: no router reaches the peer.
            RejectedError, SessionClosedError: as `Session.open_stream`.
        """
        session = await self.connect(peer)
        return await session.open_stream(protocol)

    async def connect(self, peer: PeerId) -> Session:
        """The session to `peer`: the standing one, or a new one by the first way that leads there.

        The attached routers are asked for one first, all at once; with `direct`, where the peer says that it can be
        dialled is tried a moment before that. Where a peer is that they do not reach, their directory may know. Else it
        may be attached elsewhere all the same: the other routers are asked, in groups of as many addresses as the host
        dials at once. Those that are about to close come last.

        Raises:
            NotConnectedError, DialError: as `open_stream`.
        Cancellation: safe. Callers of one peer share one dial.
        """
        if (session := self._host.session(peer)) is not None:
            await trio.lowlevel.checkpoint()
            return session
        failure: DialError | None = None
        for find in self._ways(peer):
            try:
                if addresses := await find():
                    return self._minded(await self._host.connect(peer, addresses))
            except DialError as exc:
                failure = exc
        if (retired := self._retired(peer)) is not None:
            return retired
        if failure is None or not self._catalogue.attached:
            raise NotConnectedError("this node is attached to no router") from failure
        raise failure

    def _retired(self, peer: PeerId) -> Session | None:
        """A session whose path is about to end, and lasts for a moment: better than none."""
        return next((one for one in self._host.connections.sessions_of(peer) if one.accepts_streams), None)

    def _ways(self, peer: PeerId) -> Iterator[Callable[[], Awaitable[Sequence[Address]]]]:
        for number, routers in enumerate(self._groups()):
            yield partial(_circuits if number else self._first_way, routers, peer)
            if not number:
                yield partial(self._announced, peer)
        if self._retired(peer) is None:
            yield partial(_circuits, self._catalogue.leaving, peer)

    def _minded(self, session: MuxSession) -> Session:
        """A session through a router that closes is good for this stream, and not for the next."""
        relay = _relay_of(session.address) if session.address else None
        if relay is not None and self._catalogue.is_leaving(relay):
            self._host.connections.retire(session)
        return session

    async def _direct_and_circuits(self, routers: Sequence[RouterRecord], peer: PeerId) -> Sequence[Address]:
        """The host tries the direct ones first: circuits come last among its transports, and each has a moment for
        itself.
        """
        direct = list[Address]()
        with trio.move_on_after(FIND_DIRECT_TIMEOUT), suppress(DialError):
            found = await self._directory.find_providers(peer_key(peer))
            direct = [address for one in found if one.peer == peer for address in one.addresses]
        usable = [address for address in direct if address.circuit is None]
        return [*usable[:MAX_DIRECT], *await _circuits(routers, peer)]

    async def _announced(self, peer: PeerId) -> Sequence[Address]:
        """Where a peer says it is, but for circuits through routers that have been asked."""
        with trio.move_on_after(FIND_TIMEOUT):
            found = await self._directory.find_peer(peer)
            return self._usable(found.addresses) if found else ()
        return ()

    def _usable(self, addresses: Sequence[Address]) -> Sequence[Address]:
        """One address for each router that is known: it is dialled by what the catalogue says of it."""
        usable = dict[PeerId | Address, Address]()
        for address in addresses:
            relay = _relay_of(address)
            state = None if relay is None else self._catalogue.state(relay)
            if state is not State.ATTACHED and not (relay and self._catalogue.is_leaving(relay)):
                usable.setdefault(address if relay is None or state is None else relay, address)
        return list(usable.values())

    def _groups(self) -> Iterator[Sequence[RouterRecord]]:
        """The routers to ask, group after group; none when none is attached."""
        attached = self._catalogue.attached
        if not attached:
            return
        yield attached
        held = {record.peer for record in (*attached, *self._catalogue.leaving)}
        others = [record for record in self._catalogue.listed if record.peer not in held]
        size = self._host.config.max_dial_addresses
        for start in range(0, len(others), size):
            yield others[start : start + size]


async def _circuits(routers: Sequence[RouterRecord], peer: PeerId) -> Sequence[Address]:
    await trio.lowlevel.checkpoint()
    return [_circuit(router, peer) for router in routers]


def _relay_of(address: Address) -> PeerId | None:
    return address.circuit[0].peer if address.circuit is not None else None


def _circuit(router: RouterRecord, peer: PeerId) -> Address:
    """The transport knows where a router is, and takes the session to it if there is one."""
    return Address.parse(f"/p2p/{router.peer}/p2p-circuit/p2p/{peer}")
