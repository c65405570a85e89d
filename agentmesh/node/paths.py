"""How to reach another member: over the session there is, else by a circuit through a router that both can use."""

import logging

import trio

from agentmesh.abc import Session, Stream
from agentmesh.control_plane.routers import RouterRecord
from agentmesh.errors import DialError, NotConnectedError
from agentmesh.node.attachments import ATTACH_ERRORS, Attachments
from agentmesh.runtime.host import Host
from agentmesh.types import Address, PeerId, ProtocolId

logger = logging.getLogger(__name__)


class Paths:
    """Opens streams to members wherever they are attached.

    Args:
        host: the node's.
        attachments: the routers it holds.
    """

    def __init__(self, host: Host, attachments: Attachments) -> None:
        self._host = host
        self._attachments = attachments

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
        """The session to `peer`: the standing one, or a new one through the first router that reaches it.

        Raises:
            NotConnectedError, DialError: as `open_stream`.
        """
        if (session := self._host.session(peer)) is not None:
            await trio.lowlevel.checkpoint()
            return session
        held = self._attachments.catalogue.attached
        if not held:
            raise NotConnectedError("attached to no router")
        try:
            return await self._host.connect(peer, _circuits(held, peer))
        except DialError:
            others = await self._transit()
            if not others:
                raise
            return await self._host.connect(peer, _circuits(others, peer))

    async def _transit(self) -> list[RouterRecord]:
        """Be admitted at the routers that this node does not hold: a router relays only between those it has
        admitted.
        """
        held = set(self._attachments.routers)
        admitted: list[RouterRecord] = []

        async def admit_at(record: RouterRecord) -> None:
            try:
                await self._attachments.admit_at(await self._host.connect(record.peer, record.addresses))
            except ATTACH_ERRORS as exc:
                logger.info("no transit", extra={"router": record.peer, "reason": exc})
            else:
                admitted.append(record)

        async with trio.open_nursery() as nursery:
            for record in self._attachments.catalogue.listed:
                if record.peer not in held:
                    nursery.start_soon(admit_at, record)
        return admitted


def _circuits(records: tuple[RouterRecord, ...] | list[RouterRecord], peer: PeerId) -> list[Address]:
    """One circuit address a router: its sessions stand already, so the way to it does not matter."""
    return [record.addresses[0].with_peer(record.peer) / f"p2p-circuit/p2p/{peer}" for record in records]
