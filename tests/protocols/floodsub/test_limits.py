"""What costs a peer its link, and only that peer: each bound is filled, and counted by its name."""

from typing import Any

import attrs
import pytest

from agentmesh.errors import ErrorCode, LimitExceededError, RejectedError, RemoteProtocolError
from agentmesh.protocols.floodsub.events import CutReason, Fate, LinkCut, Message, Role, Subscription, Verdict
from agentmesh.protocols.floodsub.limits import FloodsubLimits, PeerLimits
from agentmesh.protocols.floodsub.link import Link
from agentmesh.protocols.floodsub.policy import Policy
from agentmesh.protocols.floodsub.wire import encode_publish, encode_subscriptions
from agentmesh.runtime.yamux import Allowance
from agentmesh.types import PeerId
from agentmesh.wire.framing import encode_frame, encode_varint
from tests.protocols.floodsub.mesh import IDENTITIES, TOPIC, Host, Mesh

MALLORY = IDENTITIES[-1].peer


class Siege:
    """A router with an honest subscriber, and Mallory, who sends it what he likes."""

    def __init__(
        self, limits: FloodsubLimits | None = None, policy: Policy | None = None, role: Role = Role.LEAF
    ) -> None:
        self.mesh = Mesh()
        self.router = self.mesh.add(Role.ROUTER, limits, policy)
        self.alice = self.mesh.add(Role.LEAF)
        self.mesh.join(self.alice, self.router)
        self.alice.switch.subscribe(TOPIC)
        self.mesh.carry()
        self.role = role
        self.link = self.come()

    def come(self) -> Link:
        link = self.router.switch.hear(MALLORY, self.role)
        self.router.switch.tell(MALLORY, self.role)
        self.router.collect()
        return link

    def send(self, *rpcs: bytes, now: float = 0.0) -> None:
        self.router.switch.receive_data(self.link, b"".join(map(encode_frame, rpcs)), now)

    def assert_cut(self, reason: CutReason, code: int) -> None:
        self.router.collect()
        assert self.router.cuts == [LinkCut(self.link.number, MALLORY, reason, code)]
        assert self.router.switch.cuts[reason] == 1
        assert (self.link.is_gone, self.link.reason, self.link.code) == (True, reason, code)
        assert self.router.switch.link(MALLORY) is None
        self.send(b"\xff")  # what comes behind is not looked at
        self.mesh.publish(self.router, b"still here")
        self.mesh.carry()
        assert b"still here" in self.alice.heard


def mallorys(number: int = 0, data: bytes = b"data", topic: str = TOPIC) -> Message:
    host = Host(IDENTITIES[-1], Role.LEAF, Mesh().add(Role.LEAF).switch)
    return [host.sign(data, topic) for _ in range(number + 1)][number]


def limits(**changes: Allowance) -> FloodsubLimits:
    settings: dict[str, Any] = dict(changes)
    return FloodsubLimits(member=PeerLimits(**settings))


VIOLATION, LIMIT = ErrorCode.PROTOCOL_VIOLATION, ErrorCode.RESOURCE_LIMIT_EXCEEDED


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\x80\x00", VIOLATION),
        (encode_varint(FloodsubLimits().max_rpc_bytes + 1), LIMIT),
        (encode_frame(b"\xff"), VIOLATION),
        (encode_frame(encode_publish(mallorys(data=bytes(FloodsubLimits().max_message_bytes)))), LIMIT),
        (encode_frame(encode_publish(attrs.evolve(mallorys(), signature=bytes(64)))), VIOLATION),
        (encode_frame(encode_publish(attrs.evolve(mallorys(), key=IDENTITIES[0].public_key_bytes))), VIOLATION),
    ],
    ids=["varint", "rpc", "garbage", "message", "signature", "key"],
)
def test_what_breaks_the_protocol_ends_the_link(data: bytes, code: int) -> None:
    siege = Siege()
    with pytest.raises(RemoteProtocolError):
        siege.router.switch.receive_data(siege.link, data, 0.0)
    siege.assert_cut(CutReason.BROKEN, code)
    assert siege.router.switch.fates[Fate.ACCEPTED] == 0


def test_a_forged_message_does_not_stand_in_the_way_of_the_real_one() -> None:
    siege = Siege()
    siege.router.switch.subscribe(TOPIC)
    real = siege.alice.sign(b"real")
    with pytest.raises(RemoteProtocolError):
        siege.send(encode_publish(attrs.evolve(real, signature=bytes(64))))
    siege.alice.switch.publish(real, 0.0)
    siege.mesh.carry()
    assert siege.router.heard == [b"real"]


def test_too_many_messages() -> None:
    siege = Siege(limits(max_messages=Allowance(3, 1)))
    for number in range(3):
        siege.send(encode_publish(mallorys(number)))
    with pytest.raises(LimitExceededError) as crossed:
        siege.send(encode_publish(mallorys(3)))
    assert crossed.value.limit == "max_messages"
    siege.assert_cut(CutReason.MESSAGES, LIMIT)


def test_rpcs_that_say_nothing_count_as_messages() -> None:
    siege = Siege(limits(max_messages=Allowance(3, 1)))
    with pytest.raises(LimitExceededError):
        siege.send(*[b""] * 4)
    siege.assert_cut(CutReason.MESSAGES, LIMIT)


def test_a_new_link_pays_no_debt() -> None:
    siege = Siege(limits(max_messages=Allowance(3, 1)))
    siege.send(*[b""] * 3)
    siege.router.switch.end(siege.link)
    siege.link = siege.come()
    with pytest.raises(LimitExceededError):
        siege.send(b"")
    siege.link = siege.come()
    siege.send(b"", now=1.0)


def test_too_many_bytes() -> None:
    siege = Siege(limits(max_bytes=Allowance(1000, 10)))
    with pytest.raises(LimitExceededError):
        siege.router.switch.receive_data(siege.link, encode_varint(2000) + bytes(1000), 0.0)
    siege.assert_cut(CutReason.BYTES, LIMIT)


def test_too_many_changes() -> None:
    siege = Siege(limits(max_changes=Allowance(10, 1)))
    for _ in range(5):
        siege.send(encode_subscriptions([Subscription(TOPIC), Subscription(TOPIC, wanted=False)]))
    with pytest.raises(LimitExceededError):
        siege.send(encode_subscriptions([Subscription(TOPIC)]))
    siege.assert_cut(CutReason.CHANGES, LIMIT)


def test_a_million_topics() -> None:
    siege = Siege()
    with pytest.raises(LimitExceededError) as crossed:
        for start in range(0, 1_000_000, 100):
            siege.send(encode_subscriptions([Subscription(f"/topic/{n}") for n in range(start, start + 100)]))
    assert crossed.value.limit == "max_subscriptions"
    assert siege.router.switch.topics == 1
    siege.assert_cut(CutReason.SUBSCRIPTIONS, LIMIT)


def test_so_many_topics_and_no_more_in_all() -> None:
    siege = Siege(FloodsubLimits(max_topics=3))
    siege.send(encode_subscriptions([Subscription("/a"), Subscription("/b"), Subscription(TOPIC)]))
    with pytest.raises(RejectedError):
        siege.send(encode_subscriptions([Subscription("/c")]))
    siege.assert_cut(CutReason.TOPICS, LIMIT)
    assert siege.router.switch.topics == 1


def test_a_router_may_do_more() -> None:
    default, siege = PeerLimits(), Siege(role=Role.ROUTER)
    siege.send(encode_subscriptions([Subscription(f"/topic/{n}") for n in range(default.max_subscriptions + 1)]))
    siege.send(*[b""] * (default.max_messages.burst + 1))
    assert not siege.link.is_gone


def test_messages_that_are_rejected_cost_nothing_at_first_and_are_never_passed_on() -> None:
    verdicts = iter([Verdict.REJECT, Verdict.IGNORE, *[Verdict.REJECT] * 2])
    siege = Siege(limits(max_rejected=Allowance(2, 1)), Policy(validate=lambda message: next(verdicts)))
    for number in range(3):
        siege.send(encode_publish(mallorys(number)))
    with pytest.raises(LimitExceededError) as crossed:
        siege.send(encode_publish(mallorys(3)))
    assert crossed.value.limit == "max_rejected"
    siege.mesh.carry()
    assert siege.alice.heard == []
    assert (siege.router.switch.fates[Fate.REJECTED], siege.router.switch.fates[Fate.IGNORED]) == (3, 1)
    siege.assert_cut(CutReason.REJECTED, LIMIT)


def test_what_is_ignored_once_is_not_judged_again() -> None:
    judged: list[Message] = []

    def judge(message: Message) -> Verdict:
        judged.append(message)
        return Verdict.IGNORE

    siege = Siege(policy=Policy(validate=judge))
    siege.send(*[encode_publish(mallorys())] * 3)
    assert judged == [mallorys()]


def test_who_may_not_subscribe_is_sent_nothing() -> None:
    def allowed(peer: PeerId, topic: str) -> bool:
        return topic == TOPIC

    siege = Siege(policy=Policy(may_subscribe=allowed))
    siege.send(encode_subscriptions([Subscription("/secret"), Subscription(TOPIC)]))
    assert (set(siege.link.topics), siege.link.told) == ({TOPIC}, {TOPIC})
    siege.mesh.publish(siege.alice, b"secret", "/secret")
    siege.mesh.carry()
    assert siege.router.switch.fates[Fate.UNWANTED] == 1


@pytest.mark.parametrize(
    "bounds",
    [FloodsubLimits(max_outbox_messages=3), FloodsubLimits(max_outbox_bytes=1000)],
    ids=["max_outbox_messages", "max_outbox_bytes"],
)
def test_a_peer_that_takes_nothing_loses_itself_and_nobody_else(bounds: FloodsubLimits) -> None:
    siege = Siege(bounds)
    siege.send(encode_subscriptions([Subscription(TOPIC)]))
    for number in range(20):
        siege.mesh.publish(siege.alice, str(number).encode())
        siege.mesh.publish(siege.router, f"router {number}".encode())
        siege.mesh.carry()
    assert siege.alice.heard == [f"router {number}".encode() for number in range(20)]
    siege.assert_cut(CutReason.SLOW, LIMIT)


def test_what_we_subscribe_to_has_to_fit_as_well() -> None:
    """A host of very many topics has more to say to a peer than one RPC holds."""
    host = Mesh().add(Role.ROUTER, FloodsubLimits(max_outbox_messages=1))
    for number in range(600):
        host.switch.subscribe(f"/topic/{number}")
    for begin in (host.switch.tell, host.switch.hear):
        assert begin(MALLORY, Role.LEAF).is_gone
    host.collect()
    assert [cut.reason for cut in host.cuts] == [CutReason.SLOW] * 2


def test_a_newer_stream_takes_the_place_of_the_old_one() -> None:
    siege = Siege()
    siege.send(encode_subscriptions([Subscription("/old")]))
    newer = siege.come()
    siege.router.collect()
    assert siege.router.cuts == [LinkCut(siege.link.number, MALLORY, CutReason.REPLACED, ErrorCode.SUPPLANTED)]
    assert siege.router.switch.link(MALLORY) is newer
    assert siege.router.switch.topics == 1, "what was said on the old one is forgotten"
    siege.router.switch.end(siege.link)
    assert siege.router.switch.link(MALLORY) is newer, "the end of the old one is not the end of the new one"


def test_so_many_links_and_no_more() -> None:
    siege = Siege(FloodsubLimits(max_links=2))
    for call in (siege.router.switch.hear, siege.router.switch.tell):
        with pytest.raises(RejectedError):
            call(IDENTITIES[5].peer, Role.LEAF)
    siege.router.switch.end(siege.link)
    siege.router.switch.hear(IDENTITIES[5].peer, Role.LEAF)


def test_the_defaults_fit_together() -> None:
    bounds = FloodsubLimits()
    for peer in (bounds.member, bounds.router):
        assert peer.max_bytes.burst >= bounds.max_rpc_bytes
        assert peer.max_changes.burst >= peer.max_subscriptions
    assert bounds.max_outbox_bytes >= bounds.max_rpc_bytes >= bounds.max_message_bytes
    assert bounds.max_topics * 300 <= bounds.max_outbox_bytes, "all topics can be told to a router at once"
