"""What the control plane says reaches routers and members by floodsub, and is done there."""

from collections import Counter
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from agentmesh.control_plane import publisher
from agentmesh.control_plane.policy.open import OPEN_POLICY
from agentmesh.credentials import SigningKey
from agentmesh.errors import CredentialError
from agentmesh.events import EVENTS_TOPIC, Banned, sign_event
from agentmesh.identity import Identity
from agentmesh.protocols.floodsub import CutReason, Fate, Message
from agentmesh.protocols.floodsub.signing import SIGN_PREFIX
from agentmesh.protocols.floodsub.wire import encode_publish
from tests.membership.plane import wall_clock
from tests.node.fleet import open_fleet, wait_attached
from tests.node.loopback import app, open_loopback, url_of

TOLD_WITHIN = 1.0  # seconds from the admin's word to the last member


@pytest.fixture(autouse=True)
def look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher, "LOOK_INTERVAL", 0.05)


async def test_a_ban_reaches_every_router_and_member_within_a_second(tmp_path: Path) -> None:
    async with (
        open_loopback(tmp_path, "r1", "r2") as mesh,
        await mesh.node() as alice,
        await mesh.node() as bob,
        bob.serve("http", "app", app()),
        alice.http_client(timeout=10) as client,
    ):
        routers = await mesh.wait_linked(alice, bob)
        assert (await client.get(url_of(bob))).status_code == 200
        assert bob.host.session(alice.peer) is not None
        with trio.fail_after(TOLD_WITHIN):
            await mesh.control_plane.herald.ban(alice.peer)
            hosts = [bob.host, *(router.host for router in routers)]
            while any(host.session(alice.peer) for host in hosts) or alice.routers:  # noqa: ASYNC110
                await trio.sleep(0.01)
        assert all(alice.peer in one.bans for one in (bob.membership, *(router.membership for router in routers)))
        assert (await client.get(url_of(bob))).status_code in (502, 503)


async def test_an_event_is_signed_once_whoever_hears_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the control plane, and once more as a message; it is encoded once by whoever passes it on."""
    counts = Counter[str]()
    signed, sent = SigningKey.sign, Identity.sign

    def sign(self: SigningKey, data: bytes) -> bytes:
        counts["event"] += 1
        return signed(self, data)

    def send(self: Identity, data: bytes) -> bytes:
        counts["message"] += data.startswith(SIGN_PREFIX)
        return sent(self, data)

    def encode(message: Message) -> bytes:
        counts["encoded"] += 1
        return encode_publish(message)

    async with (
        open_loopback(tmp_path, "r1", "r2") as mesh,
        await mesh.node() as alice,
        await mesh.node() as bob,
        await mesh.node() as carol,
    ):
        members = [alice, bob, carol]
        await mesh.wait_linked(*members)
        monkeypatch.setattr(SigningKey, "sign", sign)
        monkeypatch.setattr(Identity, "sign", send)
        monkeypatch.setattr("agentmesh.protocols.floodsub.machine.encode_publish", encode)
        peer = Identity.generate().peer
        await mesh.control_plane.herald.ban(peer)
        with trio.fail_after(20):
            while not all(peer in member.membership.bans for member in members):  # noqa: ASYNC110
                await trio.sleep(0.01)
    assert counts == {"event": 1, "message": 1, "encoded": 3}


async def test_key_rotation_integration(tmp_path: Path) -> None:
    """A new key is honoured everywhere as soon as it is told, and everybody goes on calling."""
    async with (
        open_loopback(tmp_path, "r1", "r2") as mesh,
        await mesh.node() as alice,
        await mesh.node() as bob,
        bob.serve("http", "app", app()),
        alice.http_client(timeout=10) as client,
    ):
        routers = await mesh.wait_linked(alice, bob)
        rotation = await mesh.control_plane.authority.rotate(grace=3600)
        assert rotation is not None
        await mesh.control_plane.herald.rotated(rotation)
        members = [alice.membership, bob.membership, *(router.membership for router in routers)]
        with trio.fail_after(TOLD_WITHIN):
            while any(rotation.current.public not in member.trusted.keys for member in members):  # noqa: ASYNC110
                await trio.sleep(0.01)
        assert await alice.membership.renew()  # signed with the new key
        assert (await client.get(url_of(bob))).status_code == 200


async def test_a_policy_reaches_members_while_they_run(tmp_path: Path) -> None:
    async with (
        open_loopback(tmp_path, "r1", policy=None) as mesh,
        await mesh.node() as alice,
        await mesh.node() as bob,
        bob.serve("http", "app", app()),
        alice.http_client(timeout=10) as client,
    ):
        await mesh.wait_linked(alice, bob)
        assert (await client.get(url_of(bob))).status_code == 403
        await mesh.control_plane.herald.put_policy(OPEN_POLICY)
        with trio.fail_after(5):
            while (await client.get(url_of(bob))).status_code != 200:  # noqa: ASYNC110
                await trio.sleep(0.05)


async def test_members_are_leaves_of_the_routers_they_hold(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        routers = [await fleet.router(name) for name in ("r1", "r2", "r3")]
        node = await fleet.node("alice")
        held = [router for router in routers if router.host.session(node.peer) is not None]
        await wait_attached(node, *held)
        await trio.sleep(5)
        links = [router.floodsub.statistics().links for router in routers]
        assert links == [int(router in held) + 2 for router in routers]
        await fleet.stop(next(name for name, router in zip(("r1", "r2", "r3"), routers, strict=True) if router in held))
        await trio.sleep(60)
        assert {router.peer for router in routers} >= set(node.routers)
        (new,) = (router for router in routers if router not in held)
        assert new.floodsub.statistics().links == 2  # the node, and the router that is left


async def test_a_link_that_is_cut_comes_back(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        router = await fleet.router("r1")
        node = await fleet.node("alice")
        await trio.sleep(5)
        session = router.host.session(node.peer)
        assert session is not None
        for stream in session.streams:
            if stream.protocol == "/floodsub/1.0.0":
                stream.reset(0)
        await trio.sleep(5)
        statistics = router.floodsub.statistics()
        assert (statistics.links, statistics.cuts[CutReason.ENDED] > 0) == (1, True)


async def test_a_member_that_forges_events_is_cut_off_and_passed_on_by_nobody(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        router = await fleet.router("r1")
        alice, mallory = await fleet.node("alice"), await fleet.node("mallory")
        await trio.sleep(5)
        forged = sign_event(type(fleet.plane.keys[0]).generate(), Banned(alice.peer, wall_clock()))
        for _ in range(100):
            await mallory.floodsub.publish(EVENTS_TOPIC, forged)
        await trio.sleep(1)
        statistics = router.floodsub.statistics()
        assert statistics.messages[Fate.ACCEPTED] == 0
        assert statistics.cuts[CutReason.REJECTED] >= 1
        assert alice.peer not in router.membership.bans
        assert alice.routers == (router.peer,)


async def test_who_was_cut_off_catches_up_when_it_is_back(autojump_clock: MockClock) -> None:
    """A policy that was told while a node held no router is not waited for until the next look."""
    async with open_fleet() as fleet:
        await fleet.router("r1")
        alice = await fleet.node("alice")
        await alice.publish("talk", b"x")
        await trio.sleep(100)
        fleet.network.block("alice", "r1")
        await trio.sleep(120)
        assert not alice.routers
        fleet.plane.rules = ()
        fleet.network.heal("alice", "r1")
        with trio.fail_after(120):
            await alice.wait_ready()
        await trio.sleep(5)
        with pytest.raises(CredentialError):
            await alice.publish("talk", b"x")
