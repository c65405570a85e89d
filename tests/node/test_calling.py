"""Nodes that call services by name, and only members that have the right labels."""

from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest
import trio
from trio.testing import MockClock

from agentmesh.credentials import ROLE_NODE, Credential
from agentmesh.errors import CredentialError
from agentmesh.node import Node
from agentmesh.node.announcer import DEBOUNCE
from agentmesh.node.labels import KNOWN_TTL, MAX_KNOWN, REFUSED_TTL, LabelGate
from agentmesh.services.labels import Labels, suffices
from agentmesh.types import PeerId
from tests.node.fleet import Fleet, open_fleet
from tests.node.loopback import app, url_of

SOON = DEBOUNCE + 1.0
PEERS = [PeerId.from_ed25519(number.to_bytes(32, "big")) for number in range(3)]
SITE = {"site": "a"}


async def get(node: Node, url: str = "http://app.http.mesh/", **headers: str) -> httpx.Response:
    async with node.http_client(timeout=30) as client:
        return await client.get(url, headers={name.replace("_", "-"): value for name, value in headers.items()})


async def trio_of(fleet: Fleet, **settings: Any) -> tuple[Node, Node, Node]:
    """A router, a caller, and two members of which the second is attested a site."""
    await fleet.router("router")
    caller = await fleet.node("caller", **settings)
    return caller, await fleet.node("plain"), await fleet.node("labelled", labels=SITE)


async def test_a_service_is_called_by_its_name(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        caller, first, second = await trio_of(fleet)
        assert (await get(caller)).status_code == 503
        async with first.serve("http", "app", app()), second.serve("http", "app", app()):
            await trio.sleep(SOON)
            assert {(await get(caller)).text for _ in range(4)} == {f"hello {caller.peer}"}
            assert {first.peer, second.peer} <= set(caller.host.connections.peers)
            assert (await get(first)).text == f"hello {first.peer}", "its own"


async def test_another_provider_takes_over_from_one_that_is_gone(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        caller, first, second = await trio_of(fleet)
        async with first.serve("http", "app", app()), second.serve("http", "app", app()):
            await trio.sleep(SOON)
            fleet.network.freeze("plain")
            for _ in range(3):
                async with caller.http_client(timeout=5) as client:
                    assert (await client.get("http://app.http.mesh/")).status_code == 200
            fleet.network.thaw("plain")


async def test_check_peer_labels(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        caller, first, second = await trio_of(fleet)
        async with first.serve("http", "app", app()), second.serve("http", "app", app()):
            await trio.sleep(SOON)
            for _ in range(4):
                assert (await get(caller, x_mesh_required_labels="site=b, site=a")).status_code == 200
            answer = await get(caller, x_mesh_required_labels="site=b")
            assert (answer.status_code, answer.headers["x-mesh-error"]) == (403, "unattested")
            answer = await get(caller, url_of(first), x_mesh_required_labels="site=a")
            assert (answer.status_code, answer.headers["x-mesh-error"]) == (403, "unattested")
            assert (await get(caller, url_of(second), x_mesh_required_labels="site=a")).status_code == 200


async def test_check_peer_labels_enforces_egress_floor(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        caller, first, second = await trio_of(fleet, require_labels=SITE)
        async with first.serve("http", "app", app()), second.serve("http", "app", app()):
            await trio.sleep(SOON)
            for _ in range(4):
                assert (await get(caller)).status_code == 200
            assert (await get(caller, url_of(first))).status_code == 403
            assert (await get(caller, url_of(second))).status_code == 200
            assert (await get(caller, x_mesh_required_labels="zone=x")).status_code == 403


async def test_label_gate_dials_over_limited_connections(autojump_clock: MockClock) -> None:
    """A member that can be reached through a router alone shows its labels there, before anything else is sent."""
    async with open_fleet() as fleet:
        caller, _, labelled = await trio_of(fleet)
        async with labelled.serve("http", "app", app()):
            assert caller.host.session(labelled.peer) is None
            assert (await get(caller, url_of(labelled), x_mesh_required_labels="site=a")).status_code == 200
            session = caller.host.session(labelled.peer)
            assert session is not None
            assert session.address is not None
            assert session.address.circuit is not None


async def test_members_are_discovered_by_their_labels(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        await fleet.router("router")
        nodes = [await fleet.node(f"n{n}", labels={"site": "ab"[n % 2], "zone": "xyz"[n]}) for n in range(3)]
        caller = await fleet.node("caller")
        async with AsyncExitStack() as serving:
            for node in nodes:
                await serving.enter_async_context(node.serve("http", "app", app()))
            await trio.sleep(SOON)

            async def found(any_of: Labels = (), all_of: Labels = (), asker: Node = caller) -> set[int]:
                peers = [node.peer for node in nodes]
                discovered = asker.discover("http", "app", any_of=any_of, all_of=all_of)
                return {peers.index(one.peer) async for one in discovered}

            assert await found() == {0, 1, 2}
            assert await found([("site", "a")]) == {0, 2}
            assert await found([("site", "b"), ("zone", "z")]) == {1, 2}
            assert await found([("site", "c")]) == set()
            assert await found((), [("site", "a"), ("zone", "x")]) == {0}
            assert await found([("site", "a")], [("zone", "z")]) == {2}
            assert await found([("site", "a")], asker=nodes[0]) == {0, 2}, "its own labels are its credential's"
            fleet.network.freeze("n0")
            await trio.sleep(KNOWN_TTL)
            assert await found([("site", "a")]) == {2}, "who cannot be asked is left out"
            strict = await fleet.node("strict", require_labels={"zone": "z"})
            assert await found([("site", "a"), ("site", "b")], asker=strict) == {2}
            fleet.network.thaw("n0")


# ── the gate ──


def test_verify_peer_labels_does_not_short_circuit() -> None:
    """That one of what the caller requires is there does not save from the floor, nor the floor from the caller."""
    floor = {"site": "a", "zone": "x"}
    for has, required, expected in (
        ({"site": "a", "zone": "x"}, (("site", "a"),), True),
        ({"site": "a"}, (("site", "a"),), False),
        ({"site": "a", "zone": "x"}, (("site", "b"), ("zone", "y")), False),
        ({"site": "a", "zone": "x"}, (("site", "b"), ("zone", "x")), True),
        ({"site": "a", "zone": "y"}, (), False),
        ({"site": "a", "zone": "x"}, (), True),
    ):
        assert suffices(has, required, floor.items()) is expected


async def test_label_gate_key(autojump_clock: MockClock) -> None:
    """What was found for one requirement, or by one floor, is not the answer for another."""
    members = Members()
    members.labels = {"site": "a", "zone": "x"}
    open_gate, strict = (LabelGate(floor, members.show, trio.current_time) for floor in ({}, {"zone": "y"}))
    for required in ((("site", "a"),), (("zone", "x"),), (("site", "b"), ("zone", "x"))):
        await open_gate.check(PEERS[0], required)
    refused: list[tuple[LabelGate, Labels]] = [(open_gate, (("site", "b"),)), (strict, (("site", "a"),)), (strict, ())]
    for gate, labels in refused:
        with pytest.raises(CredentialError):
            await gate.check(PEERS[0], labels)
    await open_gate.check(PEERS[0], (("site", "a"),))


class Members:
    """What members show, and how often they were asked."""

    def __init__(self) -> None:
        self.labels: dict[str, str] = {}
        self.expires_at = 1e9
        self.asked = 0

    async def show(self, peer: PeerId) -> Credential:
        self.asked += 1
        await trio.sleep(0.5)
        return Credential(b"", peer, ROLE_NODE, dict(self.labels), self.expires_at)


async def test_a_member_is_asked_once_by_all_who_want_to_know(autojump_clock: MockClock) -> None:
    members = Members()
    gate = LabelGate(SITE, members.show, trio.current_time)

    async def check() -> None:
        with pytest.raises(CredentialError):
            await gate.check(PEERS[0], ())

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(check)
    assert members.asked == 1
    members.labels = SITE
    await trio.sleep(REFUSED_TTL)
    for _ in range(3):
        await gate.check(PEERS[0], ())
    assert members.asked == 2


async def test_what_is_known_of_a_member_ends(autojump_clock: MockClock) -> None:
    members = Members()
    members.labels = SITE
    gate = LabelGate({}, members.show, trio.current_time)
    await gate.check(PEERS[0], ())
    assert members.asked == 0, "nothing is required"
    for expected in (1, 2):
        await gate.check(PEERS[0], (("site", "a"),))
        assert members.asked == expected
        await trio.sleep(KNOWN_TTL)
    members.expires_at = trio.current_time() + 10
    await gate.check(PEERS[0], (("site", "a"),))
    await trio.sleep(10)
    members.expires_at = 1e9
    await gate.check(PEERS[0], (("site", "b"), ("site", "a")))
    assert members.asked == 4


async def test_what_is_known_is_bounded(autojump_clock: MockClock) -> None:
    members = Members()
    members.labels = SITE
    gate = LabelGate(SITE, members.show, trio.current_time)
    async with trio.open_nursery() as nursery:
        for number in range(MAX_KNOWN + 3):
            nursery.start_soon(gate.check, PeerId.from_ed25519(number.to_bytes(32, "big")), ())
    assert len(gate) == MAX_KNOWN
