"""Who may do what, as the database has it: the policy, whose what is, bans. Beside `store`, in its manner."""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import attrs
from sqlalchemy import Connection

from agentmesh.control_plane import access_queries, bans, queries
from agentmesh.control_plane.access_queries import Found
from agentmesh.control_plane.database import Database
from agentmesh.control_plane.outbox import put_events
from agentmesh.control_plane.policy.document import parse_policy, policy_document
from agentmesh.control_plane.policy.model import Policy
from agentmesh.control_plane.records import (
    BootstrapToken,
    Issue,
    Node,
    Owner,
    TokenOwner,
    User,
)
from agentmesh.types import PeerId


@attrs.frozen
class Standing:
    """How a peer stands, as of one moment."""

    policy: Policy
    owner: Owner | None  # None: it is no node, or one from before owners were noted
    token_owner: TokenOwner
    banned: bool  # the peer, or whoever owns it
    token_banned: bool  # whoever owns the bootstrap token


class AccessStore:
    """Any call raises StoreError when the database does not answer. `now` and other instants: wall-clock seconds.

    Cancellation: as with Store.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._revision, self._policy = 0, Policy()  # as last read; another replica may have put a newer one

    # ── policy ──

    async def policy(self) -> Policy:
        """The policy in force; the empty one when nobody has set any."""
        return self._newest(await self._database.read(partial(access_queries.policy_since, revision=self._revision)))

    async def put_policy(self, policy: Policy, now: float, events: Sequence[bytes] = ()) -> None:
        """Put a policy in force, and the signed events that tell of it into the outbox."""

        def job(connection: Connection) -> None:
            access_queries.put_policy(connection, _written(policy), now)
            put_events(connection, events, now)

        await self._database.write(job)

    async def first_policy(self, policy: Policy, now: float) -> bool:
        """Make this the policy if there is none. Whether it is now."""
        return await self._database.write(partial(access_queries.first_policy, document=_written(policy), now=now))

    def _newest(self, found: tuple[int, str] | None) -> Policy:
        # Answers to two questions may come in the wrong order.
        if found is not None and found[0] > self._revision:
            self._revision, self._policy = found[0], parse_policy(json.loads(found[1]))
        return self._policy

    # ── enrollment ──

    async def standing(self, peer: PeerId, token_id: str = "") -> Standing:
        """How a peer stands, and the owner of the bootstrap token that it shows."""
        job = partial(access_queries.standing, peer=peer, token_id=token_id, revision=self._revision)
        return self.standing_of(await self._database.read(job))

    @property
    def revision(self) -> int:
        """Of the policy as it was last read."""
        return self._revision

    def standing_of(self, found: Found) -> Standing:
        """What a transaction has found, read with `revision`."""
        owner, token_owner, banned = found.owner, found.token_owner, found.banned
        return Standing(
            policy=self._newest(found.policy),
            owner=owner,
            token_owner=token_owner,
            banned=bool(banned & {str(found.peer), owner.identity if owner else None}),
            token_banned=token_owner.identity in banned,
        )

    async def admit(
        self, owner: Owner, user: User, role: str, labels: Mapping[str, str], issue: Issue, now: float
    ) -> None:
        """Admit a peer on an identity provider's word, or again.

        Raises:
            RacedError: it or its owner is banned by now, or another call admitted it.
        """

        def job(connection: Connection) -> None:
            access_queries.note_owner(connection, owner)
            access_queries.put_user(connection, user)
            queries.admit(connection, owner.peer, role, labels, issue, now)

        await self._database.write(job)

    # ── tokens ──

    async def token_owners(self, token_ids: Sequence[str]) -> Mapping[str, TokenOwner]:
        """Whose these bootstrap tokens are, of those that have an owner or recover."""
        return await self._database.read(partial(access_queries.owners_of_tokens, token_ids=token_ids))

    async def nodes(self, after: str, limit: int) -> list[tuple[Node, Owner | None]]:
        """Nodes by peer ID, of those behind `after`, with whose they are."""
        return await self._database.read(partial(access_queries.nodes_listed, after=after, limit=limit))

    async def nodes_of(self, identity: str) -> list[tuple[Node, Owner]]:
        """The nodes of somebody."""
        return await self._database.read(partial(access_queries.nodes_of, identity=identity))

    async def tokens_of(self, identity: str) -> list[tuple[BootstrapToken, TokenOwner]]:
        """The bootstrap tokens of somebody, newest first."""
        return await self._database.read(partial(access_queries.tokens_of, identity=identity))

    async def user(self, user_id: str) -> User | None:
        return await self._database.read(partial(access_queries.user, user_id=user_id))

    async def put_user(self, user: User) -> None:
        """Note somebody who came; of one who was here before, the first instant stays."""
        await self._database.write(partial(access_queries.put_user, user=user))

    async def set_autonomous_recovery(self, peer: PeerId, enabled: bool) -> bool:
        """False: there is no such node."""
        return await self._database.write(partial(access_queries.set_autonomous_recovery, peer=peer, enabled=enabled))

    # ── bans ──

    async def ban(
        self, peer: PeerId, now: float, tell: Callable[[list[PeerId]], Sequence[bytes]] = lambda peers: ()
    ) -> list[PeerId]:
        """Ban a peer and whoever owns it; give all the peers that are out by that, this one first.

        Args:
            tell: makes of those peers the signed events for the outbox.
        """

        def job(connection: Connection) -> list[PeerId]:
            owner, out = access_queries.owner(connection, peer), [peer]
            bans.ban(connection, str(peer), now)
            if owner is not None and owner.identity is not None:
                bans.ban(connection, owner.identity, now)
                out += [other for other in access_queries.peers_of(connection, owner.identity) if other != peer]
            put_events(connection, tell(out), now)
            return out

        return await self._database.write(job)

    async def unban(self, peer: PeerId) -> None:
        """Lift the ban of a peer, and of whoever owns it."""

        def job(connection: Connection) -> None:
            owner = access_queries.owner(connection, peer)
            bans.unban(connection, str(peer), owner.identity if owner else None)

        await self._database.write(job)

    async def is_banned(self, *identities: str | None) -> bool:
        """Whether one of these is banned: a peer ID, or "<issuer>|<subject>". None is nobody."""

        def job(connection: Connection) -> bool:
            return bans.is_banned(connection, *identities)

        return await self._database.read(job)


def _written(policy: Policy) -> str:
    return json.dumps(policy_document(policy), separators=(",", ":"))
