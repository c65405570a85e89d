"""A router's directory: who are the other routers, and where a member is that this one holds."""

from collections.abc import Sequence, Set

import attrs

from agentmesh.membership import Membership
from agentmesh.protocols.directory import Directory, DirectoryConfig
from agentmesh.protocols.directory.neighbours import REPLICATION
from agentmesh.protocols.relay import Relay
from agentmesh.router.addresses import addresses_of
from agentmesh.router.federation import Federation
from agentmesh.runtime.host import Host
from agentmesh.runtime.registry import Protocol
from agentmesh.types import Address, PeerId


def make_directory(
    membership: Membership,
    federation: Federation,
    relay: Relay,
    external: Sequence[Address],
    config: DirectoryConfig,
) -> tuple[Directory, Protocol]:
    """A directory that asks the federation, and forgets whoever is banned; and the protocol to be listed for it.

    Args:
        membership: says how many routers hold a record.
        federation: the other routers.
        relay: says who can be reached through this one.
        external: where this one is dialled; where it listens when there are none.
        config: the bounds.
    """
    hosts = list[Host]()

    def replication() -> int:
        return membership.mesh_info.directory_replication or REPLICATION

    def reach(peer: PeerId) -> Sequence[Address]:
        if not relay.book.holds(peer, membership.wall_clock()):
            return ()
        own = addresses_of(hosts[0], external)
        return [Address((*address.parts, ("p2p-circuit", None))).with_peer(peer) for address in own]

    def forget(peers: Set[PeerId]) -> None:
        for peer in peers:
            directory.forget(peer)

    async def run(host: Host) -> None:
        hosts.append(host)
        await directory.run(host)

    directory = Directory(config, federation=federation, replication=replication, reach=reach)
    membership.bans.on_ban(forget)
    return directory, attrs.evolve(directory.protocol(), run=run)
