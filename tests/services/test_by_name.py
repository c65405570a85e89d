"""Services by name: who is called, who is tried when that fails, and what a caller is told. For httpx and httpx2."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from agentmesh.abc import Stream
from agentmesh.errors import CredentialError, DialError, NotConnectedError
from agentmesh.protocols.http import Receive, Scope, Send
from agentmesh.protocols.http.wire import DEFAULT_LIMITS
from agentmesh.runtime.nursery import open_background
from agentmesh.services import Calls, NamedCalls, Providers, ServiceKey, ServiceTable, host_name
from agentmesh.services.by_name import MAX_ATTEMPTS
from agentmesh.services.here import Here
from agentmesh.services.labels import Labels
from agentmesh.services.providers import BACKOFF
from agentmesh.types import PeerId
from tests.services.libraries import Library
from tests.services.mesh import ALICE, CREDENTIAL, WINDOW, Mesh

PEERS = [PeerId.from_ed25519(bytes([number]) * 32) for number in range(100, 105)]
NAME = "http://weather.mcp.mesh"
SERVICE = ServiceKey("mcp", "weather")


class Replica:
    """Answers with what it is told to, and remembers what it was asked."""

    def __init__(self, status: int = 200, *headers: tuple[bytes, bytes]) -> None:
        self.status = status
        self.headers = headers
        self.scopes: list[Scope] = []
        self.bodies: list[bytes] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scopes.append(scope)
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        self.bodies.append(body)
        await send({"type": "http.response.start", "status": self.status, "headers": list(self.headers)})
        await send({"type": "http.response.body", "body": b"%d" % self.status})


@attrs.define
class World:
    """Providers by peer; those that are not there cannot be reached."""

    nursery: trio.Nursery
    replicas: dict[PeerId, Replica] = attrs.Factory(dict[PeerId, Replica])
    found: Sequence[PeerId] = ()
    failure: DialError | None = None
    takes: float = 0.0
    lookups: int = 0
    has: dict[PeerId, str] = attrs.Factory(dict[PeerId, str])
    own: dict[str, str] = attrs.Factory(dict[str, str])
    table: ServiceTable = attrs.Factory(ServiceTable)

    def add(self, *replicas: Replica) -> tuple[Replica, ...]:
        self.replicas = dict(zip(PEERS, replicas, strict=False))
        self.found = PEERS[: len(replicas)]
        return replicas

    async def find(self, service: ServiceKey) -> Sequence[PeerId]:
        assert service == SERVICE
        self.lookups += 1
        await trio.sleep(self.takes)
        if self.failure is not None:
            raise self.failure
        return self.found

    async def open_peer(self, peer: PeerId) -> Stream:
        await trio.lowlevel.checkpoint()
        if peer not in self.replicas:
            raise DialError(f"nobody is {peer}")
        return Mesh(self.replicas[peer], self.nursery, DEFAULT_LIMITS, WINDOW).open_stream()

    async def attest(self, peer: PeerId, any_of: Labels, all_of: Labels = ()) -> None:
        await trio.lowlevel.checkpoint()
        if any_of and ("site", self.has.get(peer, "")) not in any_of:
            raise CredentialError("other labels", "unattested")

    def asked(self) -> list[int]:
        return [len(replica.scopes) for replica in self.replicas.values()]


@asynccontextmanager
async def open_world(library: Library) -> AsyncGenerator[tuple[World, Any]]:
    async with open_background() as nursery:
        world = World(nursery)
        here = Here(world.table, ALICE)
        nursery.start_soon(here.run)
        calls = Calls(world.open_peer, lambda: CREDENTIAL, world.attest)
        named = NamedCalls(calls, ALICE, here.open, Providers(world.find), lambda: world.own)
        async with library.client(named) as client:
            yield world, client


async def test_a_name_leads_to_who_serves_it(library: Library) -> None:
    async with open_world(library) as (world, client):
        (replica,) = world.add(Replica())
        answer = await client.post(f"{NAME}/a%2Fb//c;d?e=%25", content=b"hello")
        assert (answer.status_code, answer.content, replica.bodies) == (200, b"200", [b"hello"])
        (scope,) = replica.scopes
        assert (scope["raw_path"], scope["query_string"]) == (b"/mcp/weather/a%2Fb//c;d", b"e=%25")
        assert (b"host", host_name(PEERS[0]).encode()) in scope["headers"]


async def test_providers_take_turns(library: Library) -> None:
    async with open_world(library) as (world, client):
        world.add(*(Replica() for _ in range(3)))
        for _ in range(6):
            assert (await client.get(NAME)).status_code == 200
        assert world.asked() == [2, 2, 2]
        assert world.lookups == 1


@pytest.mark.parametrize("status", [429, 502, 503, 504])
async def test_another_is_tried_where_one_cannot_answer(library: Library, status: int) -> None:
    async with open_world(library) as (world, client):
        bad, good = world.add(Replica(status), Replica())
        answer = await client.post(NAME, content=b"whole")
        assert (answer.status_code, bad.bodies, good.bodies) == (200, [b"whole"], [b"whole"])


async def test_another_is_tried_where_one_cannot_be_reached(library: Library) -> None:
    async def body() -> AsyncGenerator[bytes]:
        yield b"once"

    async with open_world(library) as (world, client):
        _, good = world.add(Replica(), Replica())
        del world.replicas[PEERS[0]]
        assert (await client.post(NAME, content=body())).status_code == 200
        assert good.bodies == [b"once"], "nothing of it was sent before"


async def test_what_cannot_be_sent_again_is_sent_once(library: Library) -> None:
    async def body() -> AsyncGenerator[bytes]:
        yield b"once"

    async with open_world(library) as (world, client):
        world.add(Replica(503), Replica())
        assert (await client.post(NAME, content=body())).status_code == 503
        assert world.asked() == [1, 0]


async def test_other_answers_are_answers(library: Library) -> None:
    async with open_world(library) as (world, client):
        world.add(Replica(500), Replica())
        assert (await client.get(NAME)).status_code == 500
        assert world.asked() == [1, 0]


async def test_after_three_the_last_answer_is_given(library: Library) -> None:
    async with open_world(library) as (world, client):
        world.add(*(Replica(status) for status in (503, 502, 429, 200)))
        answer = await client.get(NAME)
        assert (answer.status_code, answer.content) == (429, b"429")
        assert world.asked() == [1, 1, 1, 0]
        assert MAX_ATTEMPTS == 3


async def test_an_answer_is_better_than_none(library: Library) -> None:
    async with open_world(library) as (world, client):
        world.add(Replica(503), Replica())
        del world.replicas[PEERS[1]]
        answer = await client.get(NAME)
        assert (answer.status_code, "x-mesh-error" in answer.headers) == (503, False)


async def test_who_does_not_serve_it_any_more_is_passed_over(library: Library) -> None:
    async with open_world(library) as (world, client):
        world.add(Replica(404, (b"X-Mesh-Error", b"unknown-service")), Replica())
        assert (await client.get(NAME)).status_code == 200
        world.add(Replica(404), Replica(404))
        assert (await client.get(NAME)).status_code == 404, "the service's own"


async def test_who_failed_is_left_alone_for_a_while(library: Library, autojump_clock: MockClock) -> None:
    async with open_world(library) as (world, client):
        bad, good = world.add(Replica(503), Replica())
        await client.get(NAME)
        for _ in range(10):
            assert (await client.get(NAME)).status_code == 200
        assert (len(bad.scopes), len(good.scopes)) == (1, 11)
        await trio.sleep(BACKOFF)
        bad.status = 200
        for _ in range(10):
            assert (await client.get(NAME)).status_code == 200
        assert len(bad.scopes) == 6
        assert BACKOFF == 15.0


async def test_who_failed_is_better_than_nobody(library: Library) -> None:
    async with open_world(library) as (world, client):
        (only,) = world.add(Replica(503))
        assert (await client.get(NAME)).status_code == 503
        only.status = 200
        assert (await client.get(NAME)).status_code == 200


@pytest.mark.parametrize(
    ("failure", "error"),
    [(None, "no-provider"), (DialError("hm"), "unreachable"), (NotConnectedError("hm"), "not-connected")],
)
async def test_where_nobody_is_the_mesh_says_so(library: Library, failure: DialError | None, error: str) -> None:
    async with open_world(library) as (world, client):
        world.failure = failure
        answer = await client.get(NAME)
        assert (answer.status_code, answer.headers["x-mesh-error"]) == (503, error)
        world.failure = None
        world.add(Replica())
        assert (await client.get(NAME)).status_code == 200, "it is looked up again"


async def test_lookups_are_shared(library: Library, autojump_clock: MockClock) -> None:
    async with open_world(library) as (world, client):
        world.takes = 5.0

        async def get(status: int) -> None:
            assert (await client.get(NAME)).status_code == status

        async def all_get(status: int) -> None:
            async with trio.open_nursery() as nursery:
                for _ in range(10):
                    nursery.start_soon(get, status)

        for expected in (503, 200):
            began = trio.current_time()
            await all_get(expected)
            assert trio.current_time() - began == 5.0
            world.add(Replica())
        assert world.lookups == 2
        await trio.sleep(60)
        await get(200)
        assert world.lookups == 3


# ── labels ──


async def test_only_who_has_a_required_label_is_called(library: Library) -> None:
    async with open_world(library) as (world, client):
        world.add(*(Replica() for _ in range(5)))
        world.has = {PEERS[4]: "b"}
        for _ in range(3):
            answer = await client.get(NAME, headers={"X-Mesh-Required-Labels": "site=a, site=b"})
            assert answer.status_code == 200
        assert world.asked() == [0, 0, 0, 0, 3]
        assert not [name for name, _ in world.replicas[PEERS[4]].scopes[0]["headers"] if b"labels" in name]


@pytest.mark.parametrize(
    ("labels", "status", "error"), [("site=c", 403, "unattested"), ("site", 400, "malformed"), ("", 400, "malformed")]
)
async def test_where_nobody_has_it_nobody_is_called(library: Library, labels: str, status: int, error: str) -> None:
    async with open_world(library) as (world, client):
        world.add(Replica(), Replica())
        for url in (NAME, f"http://{host_name(PEERS[0])}/mcp/weather"):
            answer = await client.get(url, headers={"X-Mesh-Required-Labels": labels})
            assert (answer.status_code, answer.headers["x-mesh-error"]) == (status, error)
        assert world.asked() == [0, 0]


# ── this member's own ──


async def test_an_own_service_comes_first(library: Library) -> None:
    async with open_world(library) as (world, client):
        world.add(Replica())
        own = Replica()
        world.table.register("mcp", "weather", own)
        answer = await client.post(f"{NAME}/a", content=b"hello", headers={"X-Mesh-Anything": "1"})
        assert (answer.status_code, own.bodies) == (200, [b"hello"])
        (scope,) = own.scopes
        assert (scope["raw_path"], scope["root_path"]) == (b"/mcp/weather/a", "/mcp/weather")
        assert not [name for name, _ in scope["headers"] if name.startswith(b"x-mesh-")]
        assert (world.lookups, world.asked()) == (0, [0])
        own.status = 503
        assert (await client.get(NAME)).status_code == 200
        assert world.asked() == [1]


async def test_an_own_service_is_passed_over_where_it_lacks_the_label(library: Library) -> None:
    async with open_world(library) as (world, client):
        (far,) = world.add(Replica())
        own = Replica()
        world.table.register("mcp", "weather", own)
        world.has, world.own = {PEERS[0]: "b"}, {"site": "a"}
        for label in ("site=b", "site=a", "site=b, site=a"):
            assert (await client.get(NAME, headers={"X-Mesh-Required-Labels": label})).status_code == 200
        assert (len(far.scopes), len(own.scopes)) == (1, 2)
        assert (await client.get(NAME, headers={"X-Mesh-Required-Labels": "site=c"})).status_code == 403


async def test_an_own_answer_that_is_left_in_the_middle_is_felt(library: Library) -> None:
    left = trio.Event()

    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        try:
            while True:
                await send({"type": "http.response.body", "body": bytes(1000), "more_body": True})
        finally:
            left.set()

    async with open_world(library) as (world, client):
        world.table.register("mcp", "weather", endless)
        async with client.stream("GET", NAME) as answer:
            assert answer.status_code == 200
        with trio.fail_after(5):
            await left.wait()


# ── redirects ──


def absolute(peer: PeerId) -> bytes:
    return f"http://{host_name(peer)}/mcp/weather/there".encode()


def relative(peer: PeerId) -> bytes:
    return b"/mcp/weather/there"


@pytest.mark.parametrize("location", [relative, absolute])
@pytest.mark.parametrize("is_own", [False, True])
async def test_a_redirect_leads_to_the_name_again(
    library: Library, location: Callable[[PeerId], bytes], is_own: bool
) -> None:
    async with open_world(library) as (world, client):
        replica = Replica(307, (b"location", location(ALICE if is_own else PEERS[0])))
        if is_own:
            world.table.register("mcp", "weather", replica)
        else:
            world.add(replica)
        answer = await client.get(NAME)
        assert answer.headers["location"] == f"{NAME}/there"


async def test_other_names_are_none(library: Library) -> None:
    async with open_world(library) as (_, client):
        with pytest.raises(library.module.InvalidURL):
            await client.get("http://nobody.peer.mesh/")
        with pytest.raises(library.module.UnsupportedProtocol):
            await client.get("https://weather.mcp.mesh/")
