"""Switches joined by wires that cut what goes over them as they like, without streams or a clock."""

import itertools
from collections import deque
from collections.abc import Iterable, Iterator

import attrs
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from agentmesh.identity import Identity
from agentmesh.protocols.floodsub.events import FloodsubEvent, LinkCut, Message, MessageReceived, Role
from agentmesh.protocols.floodsub.limits import FloodsubLimits
from agentmesh.protocols.floodsub.link import Link
from agentmesh.protocols.floodsub.machine import Switch
from agentmesh.protocols.floodsub.policy import Policy
from agentmesh.protocols.floodsub.signing import MIN_NUMBER, sign_message

TOPIC = "/test/topic"
IDENTITIES = [Identity(Ed25519PrivateKey.from_private_bytes(bytes([n]) * 32)) for n in range(16)]


@attrs.define(eq=False)
class Host:
    """One host: its switch, and what came out of it."""

    identity: Identity
    role: Role
    switch: Switch
    heard: list[bytes] = attrs.Factory(list[bytes])
    cuts: list[LinkCut] = attrs.Factory(list[LinkCut])
    numbers: Iterator[int] = attrs.Factory(lambda: itertools.count(MIN_NUMBER))

    def sign(self, data: bytes, topic: str = TOPIC) -> Message:
        return sign_message(self.identity, topic, data, next(self.numbers))

    def collect(self) -> None:
        while (event := self.switch.next_event()) is not None:
            self.take(event)

    def take(self, event: FloodsubEvent) -> None:
        if isinstance(event, MessageReceived):
            self.heard.append(event.message.data)
        else:
            self.cuts.append(event)


@attrs.define(eq=False)
class Wire:
    """What one host has sent to another and that is still under way."""

    source: Host
    target: Host
    out: Link
    into: Link
    data: deque[bytes] = attrs.Factory(deque[bytes])

    def carry(self, size: int, now: float) -> bool:
        """Let so many bytes arrive; False when there is nothing on the way."""
        if self.out.is_gone or self.into.is_gone:
            return False
        if more := self.out.outbox.take(1 << 16):
            self.data.append(more)
        if not self.data:
            return False
        first = self.data.popleft()
        if first[size:]:
            self.data.appendleft(first[size:])
        self.target.switch.receive_data(self.into, first[:size], now)
        self.target.collect()
        self.source.collect()
        return True


class Mesh:
    """Hosts and the wires between them. Nothing moves but by `carry`."""

    def __init__(self) -> None:
        self.now = 0.0
        self.hosts: list[Host] = []
        self.wires: list[Wire] = []

    def add(self, role: Role, limits: FloodsubLimits | None = None, policy: Policy | None = None) -> Host:
        identity = IDENTITIES[len(self.hosts)]
        host = Host(identity, role, Switch(identity.peer, role, limits, policy))
        self.hosts.append(host)
        return host

    def join(self, one: Host, other: Host) -> tuple[Link, Link]:
        """Link two hosts, as their drivers would; each one's end of it."""
        mine = one.switch.tell(other.identity.peer, other.role)
        theirs = other.switch.hear(one.identity.peer, one.role)
        other.switch.tell(one.identity.peer, one.role)
        one.switch.hear(other.identity.peer, other.role)
        self.wires += [Wire(one, other, mine, theirs), Wire(other, one, theirs, mine)]
        return mine, theirs

    def part(self, one: Host, other: Host) -> None:
        """Both ends see the link end."""
        for wire in self.wires:
            if {wire.source, wire.target} == {one, other}:
                wire.source.switch.end(wire.out)
                wire.target.switch.end(wire.into)
        self.wires = [wire for wire in self.wires if not wire.out.is_gone]
        one.collect()
        other.collect()

    def is_joined(self, one: Host, other: Host) -> bool:
        return any({wire.source, wire.target} == {one, other} for wire in self.wires)

    def carry(self, sizes: Iterable[int] = (1 << 16,)) -> None:
        """Let everything arrive, until nobody has anything more to say."""
        size, moved = itertools.cycle(sizes), True
        while moved:
            moved = False
            for wire in tuple(self.wires):
                moved = wire.carry(next(size), self.now) or moved

    def publish(self, host: Host, data: bytes, topic: str = TOPIC) -> Message:
        message = host.sign(data, topic)
        host.switch.publish(message, self.now)
        return message
