"""How a node calls services: of members, by their names, and its own."""

from collections.abc import Mapping, Sequence

from agentmesh.abc import Stream
from agentmesh.membership import Membership
from agentmesh.node.labels import LabelGate, show_over
from agentmesh.node.paths import Paths
from agentmesh.protocols.directory import DirectoryClient, service_key
from agentmesh.protocols.http import HTTP_ID
from agentmesh.services import Calls, NamedCalls, Providers
from agentmesh.services.here import Here
from agentmesh.services.table import ServiceKey
from agentmesh.types import PeerId


def make_calls(
    membership: Membership, paths: Paths, directory: DirectoryClient, here: Here, floor: Mapping[str, str]
) -> NamedCalls:
    """What an application's HTTP clients send by.

    Args:
        membership: the node's.
        paths: to other members.
        directory: says who serves what.
        here: the node's own services.
        floor: labels that every member has to have that is called.
    """

    async def open_peer(peer: PeerId) -> Stream:
        return await paths.open_stream(peer, HTTP_ID)

    async def find(service: ServiceKey) -> Sequence[PeerId]:
        return [one.peer for one in await directory.find_providers(service_key(service.type, service.name))]

    gate = LabelGate(floor, show_over(paths, membership), membership.wall_clock)
    calls = Calls(open_peer, membership.token, gate.check)
    return NamedCalls(calls, membership.identity.peer, here.open, Providers(find), lambda: membership.credential.labels)
