"""Who gets into a router, and what is known of those who are in."""

from random import Random
from weakref import WeakSet

import attrs

from agentmesh.abc import Session, Stream
from agentmesh.membership import Membership
from agentmesh.membership.gate import admission_book, auth_policy
from agentmesh.membership.rulebook import Rulebook
from agentmesh.membership.shown import Admit, ShownCredentials
from agentmesh.protocols import auth
from agentmesh.protocols.auth import AuthStatistics
from agentmesh.router.federation import Federation
from agentmesh.router.members import Members
from agentmesh.runtime.admission import AdmissionBook
from agentmesh.runtime.registry import Protocol


@attrs.frozen
class Entrance:
    """Made by `make_entrance`.

    Attributes:
        admissions: whom the host admits.
        federation: the other routers.
        members: who is admitted.
        rules: the mesh's policy.
        shown: their credentials.
        handshakes: how they ended.
        entered: the sessions on which one succeeded.
    """

    admissions: AdmissionBook
    federation: Federation
    members: Members
    rules: Rulebook
    shown: ShownCredentials
    _membership: Membership
    handshakes: AuthStatistics = attrs.field(factory=AuthStatistics)
    entered: WeakSet[Session] = attrs.field(factory=WeakSet[Session])

    def protocol(self, admit: Admit) -> Protocol:
        """The handshake. `admit` is called with whoever passes it; it is, or ends in, `shown.admit`."""
        policy = attrs.evolve(auth_policy(self._membership, self.admissions), admit=admit)
        handshake = auth.protocol(policy, statistics=self.handshakes)

        async def serve(stream: Stream) -> None:
            await handshake.serve(stream)  # which raises when it comes to nothing
            self.entered.add(stream.session)

        return attrs.evolve(handshake, serve=serve, run=self.members.run)


def make_entrance(membership: Membership) -> Entrance:
    """Of the router whose membership this is."""
    admissions = admission_book(membership)
    federation = Federation(membership, admissions)
    members = Members(admissions, federation)
    rules = Rulebook(lambda: membership.client.rules(membership.token()), Random(str(membership.identity.peer)))
    return Entrance(admissions, federation, members, rules, ShownCredentials(admissions, members.admit), membership)
