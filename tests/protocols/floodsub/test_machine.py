"""Many switches and the wires between them: whoever subscribes hears each message once, and nobody else any."""

import itertools

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from agentmesh.protocols.floodsub.events import CutReason, Fate, Role
from agentmesh.protocols.floodsub.forwarding import REACHES, ROWS, Source
from agentmesh.protocols.floodsub.limits import FloodsubLimits
from agentmesh.testing.strategies import chunkings
from tests.protocols.floodsub.mesh import TOPIC, Host, Mesh

TOPICS = [TOPIC, "/test/other"]


def test_every_cell_is_decided() -> None:
    assert set(ROWS) == set(itertools.product(Role, Source)) == set(REACHES)
    assert {len(row) for row in ROWS.values()} == {len(Role)}


class Meshes(RuleBasedStateMachine):
    """Routers that all hold each other, and leaves that come, go, subscribe and publish in any order."""

    @initialize(routers=st.integers(1, 3), leaves=st.integers(1, 4))
    def build(self, routers: int, leaves: int) -> None:
        self.mesh = Mesh()
        self.routers = [self.mesh.add(Role.ROUTER) for _ in range(routers)]
        self.leaves = [self.mesh.add(Role.LEAF) for _ in range(leaves)]
        self.subscribed: set[tuple[Host, str]] = set()
        self.count = 0
        for one, other in itertools.combinations(self.routers, 2):
            self.mesh.join(one, other)

    @rule(leaf=st.integers(0, 3), router=st.integers(0, 2))
    def join(self, leaf: int, router: int) -> None:
        one, other = self.leaves[leaf % len(self.leaves)], self.routers[router % len(self.routers)]
        if not self.mesh.is_joined(one, other):
            self.mesh.join(one, other)

    @rule(leaf=st.integers(0, 3), router=st.integers(0, 2))
    def part(self, leaf: int, router: int) -> None:
        self.mesh.part(self.leaves[leaf % len(self.leaves)], self.routers[router % len(self.routers)])

    @rule(who=st.integers(0, 6), topic=st.sampled_from(TOPICS), wanted=st.booleans())
    def subscribe(self, who: int, topic: str, wanted: bool) -> None:
        host = self.mesh.hosts[who % len(self.mesh.hosts)]
        if wanted:
            host.switch.subscribe(topic)
            self.subscribed.add((host, topic))
        else:
            host.switch.unsubscribe(topic)
            self.subscribed.discard((host, topic))

    @rule(sizes=chunkings(200))
    def carry(self, sizes: list[int]) -> None:
        self.mesh.carry(sizes)

    @rule(who=st.integers(0, 6), topic=st.sampled_from(TOPICS), sizes=chunkings(200))
    def publish(self, who: int, topic: str, sizes: list[int]) -> None:
        self.mesh.carry()
        author = self.mesh.hosts[who % len(self.mesh.hosts)]
        for host in self.mesh.hosts:
            host.heard.clear()
        self.count += 1
        data = str(self.count).encode()
        self.mesh.publish(author, data, topic)
        self.mesh.carry(sizes)
        for host in self.mesh.hosts:
            hears = (host, topic) in self.subscribed and host is not author
            hears = hears and self.is_linked(author) and self.is_linked(host)
            assert host.heard == ([data] if hears else [])

    def is_linked(self, host: Host) -> bool:
        """To any router; they hold each other."""
        return host in self.routers or any(self.mesh.is_joined(host, router) for router in self.routers)

    @rule()
    def rest(self) -> None:
        """Once all has arrived, each knows what the other subscribes to towards it."""
        self.mesh.carry()
        for wire in self.mesh.wires:
            assert set(wire.into.topics) == wire.out.told

    @invariant()
    def nobody_is_told_what_is_not_so(self) -> None:
        for wire in self.mesh.wires:
            leaves = [w.into for w in self.mesh.wires if w.target is wire.source and w.source.role is Role.LEAF]
            wanted = {topic for host, topic in self.subscribed if host is wire.source}
            if wire.source.role is Role.ROUTER:
                others = leaves if wire.target.role is Role.ROUTER else [wire.out]
                wanted |= {topic for link in others for topic in link.topics}
            assert wire.out.told == wanted

    @invariant()
    def the_gauges_are_recomputed(self) -> None:
        for host in self.mesh.hosts:
            links = [wire.out for wire in self.mesh.wires if wire.source is host]
            assert set(host.switch.links) == set(links)
            assert host.switch.topics == len({topic for link in links for topic in link.topics})
            assert host.switch.cuts[CutReason.ENDED] == sum(host.switch.cuts.values()) == len(host.cuts)


TestMeshes = Meshes.TestCase
TestMeshes.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def mesh_of(leaves: int, limits: FloodsubLimits | None = None) -> tuple[Mesh, Host, list[Host]]:
    """One router with so many leaves, all of which subscribe to TOPIC."""
    mesh = Mesh()
    router = mesh.add(Role.ROUTER, limits)
    members = [mesh.add(Role.LEAF) for _ in range(leaves)]
    for member in members:
        mesh.join(member, router)
        member.switch.subscribe(TOPIC)
    mesh.carry()
    return mesh, router, members


def test_a_leaf_publishes_to_all_its_routers_whatever_they_subscribe_to() -> None:
    mesh = Mesh()
    routers, leaf = [mesh.add(Role.ROUTER) for _ in range(2)], mesh.add(Role.LEAF)
    for router in routers:
        mesh.join(leaf, router)
    assert leaf.switch.publish(leaf.sign(b"data"), 0.0) == 2
    mesh.carry()
    assert [router.switch.fates[Fate.UNWANTED] for router in routers] == [1, 1]


def test_a_leaf_passes_nothing_on() -> None:
    """Not even to another router that subscribes: that is the routers' own business."""
    mesh = Mesh()
    routers, leaf = [mesh.add(Role.ROUTER) for _ in range(2)], mesh.add(Role.LEAF)
    for router in routers:
        mesh.join(leaf, router)
        router.switch.subscribe(TOPIC)
    mesh.carry()
    assert routers[0].switch.publish(routers[0].sign(b"data"), 0.0) == 0
    leaf.switch.subscribe(TOPIC)
    mesh.carry()
    mesh.publish(routers[0], b"data")
    mesh.carry()
    assert (leaf.heard, routers[1].heard) == ([b"data"], [])


def test_what_comes_over_two_routers_is_heard_once() -> None:
    mesh = Mesh()
    routers, leaves = [mesh.add(Role.ROUTER) for _ in range(2)], [mesh.add(Role.LEAF) for _ in range(2)]
    mesh.join(*routers)
    for leaf, router in itertools.product(leaves, routers):
        mesh.join(leaf, router)
    for leaf in leaves:
        leaf.switch.subscribe(TOPIC)
    mesh.carry()
    mesh.publish(leaves[0], b"data")
    mesh.carry()
    assert (leaves[0].heard, leaves[1].heard) == ([], [b"data"])
    assert leaves[1].switch.fates[Fate.DUPLICATE] == 1
    assert leaves[0].switch.fates[Fate.DUPLICATE] == 0, "nothing comes back to its author"
    assert sum(router.switch.fates[Fate.ACCEPTED] for router in routers) == 2


def test_a_message_is_encoded_once_for_all_who_hear_it() -> None:
    mesh, router, members = mesh_of(5)
    mesh.publish(members[0], b"data")
    for wire in mesh.wires:
        if wire.source is members[0]:
            wire.carry(1 << 16, 0.0)
    frames = {id(link.outbox.take(1)) for link in router.switch.links if len(link.outbox)}
    assert len(frames) == 1


def test_a_message_of_ours_that_comes_back_is_not_taken_for_anothers() -> None:
    """Long after it was forgotten, too."""
    mesh, router, members = mesh_of(2)
    message = mesh.publish(members[0], b"data")
    mesh.now = 10_000.0
    router.switch.publish(message, mesh.now)
    mesh.carry()
    assert (members[0].heard, members[1].heard) == ([], [b"data"])


def test_what_was_seen_is_known_again_for_a_while() -> None:
    mesh, router, members = mesh_of(2, FloodsubLimits(seen_ttl=10.0))
    message = mesh.publish(members[0], b"data")
    mesh.carry()
    for mesh.now, accepted in ((9.0, 1), (11.0, 2)):
        members[0].switch.publish(message, mesh.now)
        mesh.carry()
        assert router.switch.fates[Fate.ACCEPTED] == accepted
    assert members[1].heard == [b"data"], "a leaf has a memory of its own"
