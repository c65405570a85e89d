"""What the control plane says reaches every router that is up, once, signed; and what was not said is said later."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio

from agentmesh.abc import Stream
from agentmesh.control_plane import publisher
from agentmesh.control_plane.config import Config
from agentmesh.control_plane.policy.model import Policy
from agentmesh.control_plane.publisher import run_publisher
from agentmesh.control_plane.server import Plane, open_plane
from agentmesh.control_plane.store import open_store
from agentmesh.credentials import verify
from agentmesh.events import EVENT_WINDOW, EVENTS_TOPIC, Banned, Event, KeyRotated, PolicyUpdated, read_event
from agentmesh.identity import Identity
from agentmesh.membership.gate import level_of
from agentmesh.protocols import auth
from agentmesh.protocols.auth import AuthPolicy
from agentmesh.protocols.floodsub import Floodsub, Role, TopicReader
from agentmesh.runtime.admission import AdmissionBook
from agentmesh.runtime.host import open_host
from agentmesh.transports.memory import MemoryHub, MemoryTransport
from agentmesh.types import Address
from tests.control_plane.plane import Harness, open_harness
from tests.control_plane.test_bans import owned_token


@pytest.fixture(autouse=True)
def look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher, "LOOK_INTERVAL", 0.01)


@attrs.frozen
class ListeningRouter:
    """A router that is up. `linked` has one for each link that a publisher made."""

    mesh: Harness
    reader: TopicReader
    linked: trio.Semaphore

    async def heard(self) -> Event:
        """The next event."""
        async for message in self.reader:
            return read_event(message.data, self.mesh.plane.authority.trusted)
        raise AssertionError


@attrs.frozen
class Site:
    """A control plane that publishes, and a network on which routers are."""

    mesh: Harness
    hub: MemoryHub

    @asynccontextmanager
    async def router(self, number: int) -> AsyncGenerator[ListeningRouter]:
        identity, credential = await self.mesh.admitted("router")
        book, floodsub = AdmissionBook(self.mesh.clock), Floodsub(Role.ROUTER, wall_clock=self.mesh.clock)
        trusted, linked = self.mesh.plane.authority.trusted, trio.Semaphore(0)
        gate = AuthPolicy(
            verify=lambda token, peer: verify(token, peer=peer, trusted=trusted, now=self.mesh.clock()),
            own=lambda: credential,
            admit=lambda peer, shown: book.admit(peer, level_of(shown), shown.expires_at),
        )

        async def serve(stream: Stream) -> None:
            linked.release()
            await floodsub.serve(stream)

        address = Address.parse(f"/memory/{number}")
        async with open_host(
            identity=identity,
            transports=[MemoryTransport(self.hub)],
            protocols=[auth.protocol(gate), attrs.evolve(floodsub.protocol(), serve=serve)],
            listen=[address],
            admissions=book,
        ):
            lease = self.mesh.lease_request(identity, credential, addresses=[str(address.with_peer(identity.peer))])
            assert (await self.mesh.post("/routers/lease", lease)).status_code == 200
            with floodsub.subscribe(EVENTS_TOPIC) as reader:
                yield ListeningRouter(self.mesh, reader, linked)

    async def publish(self, plane: Plane) -> None:
        await run_publisher(
            plane.store,
            plane.authority,
            plane.herald,
            transports=[MemoryTransport(self.hub)],
            reconnect_interval=0.05,
            wall_clock=self.mesh.clock,
        )


@asynccontextmanager
async def open_site(folder: Path) -> AsyncGenerator[Site]:
    async with open_harness(folder) as mesh, trio.open_nursery() as nursery:
        site = Site(mesh, MemoryHub())
        nursery.start_soon(site.publish, mesh.plane)
        with trio.fail_after(20):
            yield site
        nursery.cancel_scope.cancel()


async def test_control_plane_pub_sub_event_integration(tmp_path: Path) -> None:
    """A policy, a ban and a rotation are each told by one event that verifies."""
    async with open_site(tmp_path) as site, site.router(1) as router:
        banned, _ = await site.mesh.admitted()
        await site.mesh.put_policy({})
        await site.mesh.ban(banned)
        rotation = await site.mesh.plane.authority.rotate(grace=3600)
        assert rotation is not None
        await site.mesh.plane.herald.rotated(rotation)
        now = site.mesh.clock.now
        assert [await router.heard() for _ in range(3)] == [
            PolicyUpdated(now),
            Banned(banned.peer, now),
            KeyRotated(rotation.current.public, now),
        ]
        assert await site.mesh.plane.store.outbox.waiting() == []


async def test_every_router_hears_it(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site, site.router(1) as one, site.router(2) as two:
        for router in (one, two):
            await router.linked.acquire()
        stranger = Identity.generate()
        await site.mesh.ban(stranger)
        assert await one.heard() == await two.heard() == Banned(stranger.peer, site.mesh.clock.now)


async def test_a_ban_of_somebody_names_every_node_of_theirs(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site, site.router(1) as router:
        token, mine = await owned_token(site.mesh), [Identity.generate() for _ in range(3)]
        for identity in mine:
            await site.mesh.enroll(site.mesh.enroll_request(identity, token))
        await site.mesh.ban(mine[0])
        heard = [await router.heard() for _ in mine]
        assert {event.peer for event in heard if isinstance(event, Banned)} == {identity.peer for identity in mine}


async def test_what_is_said_before_there_is_a_router_is_heard_by_the_first(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        await site.mesh.put_policy({})
        async with site.router(1) as router:
            assert isinstance(await router.heard(), PolicyUpdated)


async def test_a_router_that_was_away_is_dialled_again(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        async with site.router(1) as router:
            await router.linked.acquire()
        async with site.router(1) as router:
            await site.mesh.put_policy({})
            assert isinstance(await router.heard(), PolicyUpdated)


async def test_of_two_replicas_one_publishes(tmp_path: Path) -> None:
    config = Config(db_dsn=str(tmp_path / "control-plane.db"))
    async with (
        open_site(tmp_path) as site,
        open_plane(config, site.mesh.clock) as replica,
        site.router(1) as router,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(site.publish, replica)
        for _ in range(2):
            await router.linked.acquire()
        for plane in (site.mesh.plane, replica) * 2:
            await plane.herald.put_policy(Policy())
        assert [type(await router.heard()) for _ in range(4)] == [PolicyUpdated] * 4
        await replica.herald.ban(Identity.generate().peer)
        assert isinstance(await router.heard(), Banned)  # and not one of those before, once more
        nursery.cancel_scope.cancel()


async def test_what_is_too_old_to_be_honoured_is_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with open_site(tmp_path) as site:
        await site.mesh.put_policy({})
        site.mesh.clock.now += EVENT_WINDOW + 1
        async with site.router(1) as router:
            await site.mesh.ban(stranger := Identity.generate())
            assert await router.heard() == Banned(stranger.peer, site.mesh.clock.now)
    assert "an event came to no router in time" in caplog.text


async def test_publish_event_validates_peer_id(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as mesh:
        for peer_id in ("", "nobody", "12D3KooW", "'; DROP TABLE events; --"):
            response = await mesh.admin("POST", "/revoke", json={"peer_id": peer_id})
            assert (response.status_code, response.text) == (400, "peer_id is not a peer ID\n")
        assert await mesh.plane.store.outbox.waiting() == []


async def test_a_change_and_its_event_are_kept_together(dsn: str) -> None:
    async with open_plane(Config(db_dsn=dsn)) as plane:
        await plane.herald.ban(Identity.generate().peer)
        key = plane.authority.trusted
    async with open_store(dsn) as store:  # as after a crash
        (event,) = await store.outbox.waiting()
        assert isinstance(read_event(event.data, key), Banned)
        claims = list[bool]()

        async def claim() -> None:
            claims.append(await store.outbox.claim(event, event.created_at))

        async with trio.open_nursery() as nursery:
            for _ in range(6):
                nursery.start_soon(claim)
        assert sorted(claims) == [False] * 5 + [True]
        assert await store.outbox.waiting() == []
        assert [await store.outbox.forget(event.created_at + late) for late in (0, 1)] == [0, 1]
