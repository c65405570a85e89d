"""Who may do what, kept on both kinds of database, and seen by every replica at once."""

from functools import partial

import pytest
import trio

from agentmesh.control_plane.database import RacedError
from agentmesh.control_plane.policy.document import parse_policy
from agentmesh.control_plane.policy.model import Policy
from agentmesh.control_plane.policy.open import OPEN_POLICY
from agentmesh.control_plane.records import EnrolledBy, Owner, TokenOwner, User
from agentmesh.control_plane.store import Store, open_store, until_settled
from tests.control_plane.test_store import NODE, NOW, issue, peer, request, token

CLAIMS = {"user": frozenset({"alice"}), "group": frozenset({"b", "a"})}
ALICE = "https://idp.example|alice"
USER = User(ALICE, "https://idp.example", "alice@example.com", NOW)
OWNER = Owner(peer(1), EnrolledBy.PERSON, ALICE, CLAIMS, NOW + 9)
OTHER = parse_policy({"roles": [{"name": "dev", "allowed_services": ["mcp://a"]}]})


async def admit(store: Store, owner: Owner = OWNER) -> None:
    await store.access.admit(owner, USER, NODE, {"site": "a"}, issue(), NOW)


async def test_everything_survives_reopening(dsn: str) -> None:
    async with open_store(dsn) as store:
        await store.access.put_policy(OPEN_POLICY, NOW)
        await admit(store)
        await store.add_token(token(), TokenOwner(ALICE, True))
        await store.access.ban(peer(3), NOW)
    async with open_store(dsn) as store:
        standing = await store.access.standing(peer(1), "t")
        assert (standing.policy, standing.owner) == (OPEN_POLICY, OWNER)
        assert (standing.token_owner, standing.banned) == (TokenOwner(ALICE, True), False)
        assert await store.access.user(ALICE) == USER
        assert await store.access.user("nobody|x") is None
        node = await store.node(peer(1))
        assert node is not None
        assert (node.role, node.labels) == (NODE, {"site": "a"})
        assert await store.access.nodes("", 9) == [(node, OWNER)]
        assert (await store.mirror.look()).banned == {str(peer(3))}


async def test_replicas_see_a_new_policy_at_once(dsn: str) -> None:
    async with open_store(dsn) as one, open_store(dsn) as two:
        assert await two.access.policy() == Policy()
        for policy in (OTHER, OPEN_POLICY, OTHER):
            await one.access.put_policy(policy, NOW)
            assert (await two.access.standing(peer(1))).policy == await two.access.policy() == policy


async def test_the_first_policy_is_put_once(dsn: str) -> None:
    put = list[bool]()

    async def first(policy: Policy) -> None:
        async with open_store(dsn) as store:
            put.append(await until_settled(partial(store.access.first_policy, policy, NOW)))

    async with open_store(dsn), trio.open_nursery() as nursery:
        for policy in (OTHER, OPEN_POLICY, OTHER, OPEN_POLICY):
            nursery.start_soon(first, policy)
    assert sorted(put) == [False, False, False, True]


async def test_a_ban_comes_between_a_decision_and_its_change(dsn: str) -> None:
    async with open_store(dsn) as store:
        await store.add_token(token(max_usages=5))
        await admit(store)
        await store.access.ban(peer(1), NOW)
        with pytest.raises(RacedError):
            await admit(store)
        with pytest.raises(RacedError):
            await store.replace_issue(peer(1), b"credential", issue(b"next"), owner=OWNER)
        with pytest.raises(RacedError):  # another node of the same owner
            await store.grant(request(2), None, issue(), NOW, Owner(peer(2), EnrolledBy.TOKEN, ALICE))
        assert await store.node(peer(2)) is None
        assert (await store.look_up(peer(2), "t")).token == token(max_usages=5)
        await store.grant(request(4), None, issue(), NOW, Owner(peer(4), EnrolledBy.TOKEN))


async def test_bans_cover_the_owner_and_are_lifted_with_it(dsn: str) -> None:
    async with open_store(dsn) as store:
        await admit(store)
        await admit(store, Owner(peer(2), EnrolledBy.WORKLOAD, ALICE))
        assert await store.access.ban(peer(2), NOW) == [peer(2), peer(1)]
        assert await store.access.ban(peer(2), NOW + 1) == [peer(2), peer(1)]
        assert [await store.access.is_banned(who) for who in (ALICE, str(peer(1)), str(peer(2)), None)] == [
            True,
            False,
            True,
            False,
        ]
        assert (await store.access.standing(peer(1))).banned
        assert (await store.mirror.look()).banned == {str(peer(1)), str(peer(2))}
        await store.access.unban(peer(1))
        assert (await store.mirror.look()).banned == {str(peer(2))}
        await store.access.unban(peer(2))
        assert (await store.mirror.look()).banned == frozenset()


async def test_recovery_is_set_of_nodes_that_are_there(dsn: str) -> None:
    async with open_store(dsn) as store:
        assert not await store.access.set_autonomous_recovery(peer(1), True)
        await admit(store)
        await store.add_token(token())
        await store.grant(request(2), None, issue(), NOW)  # as before owners were noted
        for number in (1, 2):
            assert await store.access.set_autonomous_recovery(peer(number), True)
            owner = (await store.access.standing(peer(number))).owner
            assert owner is not None
            assert owner.autonomous_recovery
        assert (await store.access.standing(peer(1))).owner == Owner(
            OWNER.peer, OWNER.enrolled_by, ALICE, OWNER.claims, OWNER.session_ends_at, True
        )


async def test_nodes_come_in_pages(dsn: str) -> None:
    async with open_store(dsn) as store:
        for number in range(5):
            await admit(store, Owner(peer(number), EnrolledBy.PERSON, ALICE))
        pages, after = list[str](), ""
        while found := await store.access.nodes(after, 2):
            assert len(found) <= 2
            pages += [str(node.peer) for node, _ in found]
            after = pages[-1]
        assert sorted(pages) == sorted(str(peer(number)) for number in range(5))
